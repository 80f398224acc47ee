//! The service as a program. It prints the address it listens at, and serves until it is ended.

#![expect(clippy::print_stdout, reason = "whoever starts it reads the address")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use ride_hailing::journal::Journal;
use ride_hailing::pool::{Capacity, Pool};
use ride_hailing::server;
use tokio::net::TcpListener;

/// A ride-hailing service made for 800 requests a second.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Threads, each of which serves one request at a time.
    #[arg(long, default_value_t = 40)]
    workers: usize,
    /// How long a request holds a thread, in milliseconds.
    #[arg(long, default_value_t = 50)]
    service_time_ms: u64,
    /// How many requests may wait for a thread; more get 503.
    #[arg(long, default_value_t = 4_000)]
    queue: usize,
}

// One thread reads and writes: it has little to do, and the cores are for the callers and the gateway.
#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let arguments = Arguments::parse();
    let capacity = Capacity {
        workers: arguments.workers,
        service_time: Duration::from_millis(arguments.service_time_ms),
        queue: arguments.queue,
    };
    let journal = Arc::new(Journal::default());
    let pool = Pool::start(capacity, Arc::clone(&journal))?;
    let listener = TcpListener::bind(arguments.listen).await?;
    println!("listening at {}", listener.local_addr()?);
    server::serve(listener, pool, journal).await;
    Ok(())
}
