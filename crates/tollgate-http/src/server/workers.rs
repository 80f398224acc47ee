//! Threads that serve connections: one accepts them, and each worker has a runtime of its own, on which a connection stays for
//! as long as it lives. So a request never changes threads.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::accept::Acceptor;
use super::connection_limits::{ConnectionLimits, ConnectionPermit};
use super::connections::Connections;
use super::{Handler, ServerConfig};
use crate::tls::Certificate;

/// The threads of a server.
#[derive(Debug)]
pub struct Workers {
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Serves clients that connect to `listener` on `count` threads until `stop` is cancelled. `handler` makes the handler of a
    /// worker, on its thread and within its runtime. A `certificate` is reloaded when its files change.
    ///
    /// # Errors
    /// When the system gives no threads or the listener cannot be used.
    pub fn start<H: Handler>(
        count: usize,
        config: ServerConfig,
        listener: StdListener,
        certificate: Option<Arc<Certificate>>,
        handler: impl Fn() -> H + Send + Sync + 'static,
        stop: CancellationToken,
    ) -> io::Result<Self> {
        let config = Arc::new(config);
        let limits = ConnectionLimits::of(&config);
        let handler = Arc::new(handler);
        let (mut workers, mut threads) = (Vec::new(), Vec::new());
        for nth in 0..count.max(1) {
            let handler = Arc::clone(&handler);
            let (worker, thread) =
                start(nth, Arc::clone(&config), Arc::clone(&limits), move || {
                    handler()
                })?;
            workers.push(worker);
            threads.push(thread);
        }
        let acceptor = move |listener| Acceptor::new(listener, &config, limits);
        threads.push(accept(listener, acceptor, workers, certificate, stop)?);
        Ok(Self { threads })
    }

    /// Waits until all connections have ended.
    pub async fn ended(self) {
        let ended = tokio::task::spawn_blocking(move || {
            for thread in self.threads {
                // A panic has been reported by the thread.
                let _ = thread.join();
            }
        });
        let _ = ended.await;
    }
}

/// A connection on its way to a worker.
type Arrival = (StdStream, SocketAddr, ConnectionPermit);

/// A worker, as the accepting thread sees it.
#[derive(Debug)]
struct Worker {
    connections: Arc<Connections>,
    arrivals: UnboundedSender<Arrival>,
}

/// Starts a worker with the handler that `make` makes on its thread.
fn start<H: Handler>(
    nth: usize,
    config: Arc<ServerConfig>,
    limits: Arc<ConnectionLimits>,
    make: impl FnOnce() -> H + Send + 'static,
) -> io::Result<(Worker, JoinHandle<()>)> {
    let runtime = runtime()?;
    let (arrivals, waiting) = unbounded_channel();
    let (started, is_started) = mpsc::channel();
    let thread = thread::Builder::new()
        .name(format!("worker-{nth}"))
        .spawn(move || {
            runtime.block_on(async move {
                let connections = Connections::new(config);
                // Nobody receives it only if the start failed elsewhere.
                let _ = started.send(Arc::clone(&connections));
                work(waiting, &connections, &limits, &make()).await;
            });
        })?;
    let connections = is_started
        .recv()
        .map_err(|_| io::Error::other("a worker ended at its start"))?;
    Ok((
        Worker {
            connections,
            arrivals,
        },
        thread,
    ))
}

async fn work<H: Handler>(
    mut waiting: UnboundedReceiver<Arrival>,
    connections: &Connections,
    limits: &ConnectionLimits,
    handler: &H,
) {
    while let Some((socket, peer, permit)) = waiting.recv().await {
        match TcpStream::from_std(socket) {
            Ok(socket) => connections.serve(socket, peer, permit, handler.clone()),
            Err(error) => tracing::error!(%error, "failed to serve a connection"),
        }
    }
    connections.end(limits).await;
}

/// Accepts connections and gives each to the worker that has the fewest, until `stop`.
fn accept(
    listener: StdListener,
    acceptor: impl FnOnce(TcpListener) -> Acceptor + Send + 'static,
    workers: Vec<Worker>,
    certificate: Option<Arc<Certificate>>,
    stop: CancellationToken,
) -> io::Result<JoinHandle<()>> {
    let runtime = runtime()?;
    listener.set_nonblocking(true)?;
    let listener = {
        let _guard = runtime.enter();
        TcpListener::from_std(listener)?
    };
    let acceptor = acceptor(listener);
    thread::Builder::new()
        .name("accept".to_owned())
        .spawn(move || {
            runtime.block_on(async move {
                if let Some(certificate) = certificate {
                    tokio::spawn(async move { certificate.follow().await });
                }
                distribute(acceptor, &workers, &stop).await;
            });
        })
}

async fn distribute(mut acceptor: Acceptor, workers: &[Worker], stop: &CancellationToken) {
    let mut next = 0_usize;
    let make_room = |count: usize| {
        let each = count.div_ceil(workers.len());
        workers
            .iter()
            .for_each(|worker| worker.connections.shed(each));
    };
    while let Some((socket, peer, permit)) = acceptor.next(stop, make_room).await {
        // Workers with equally few take turns.
        next = next.wrapping_add(1);
        let turns = workers.iter().cycle().skip(next % workers.len());
        let turns = turns.take(workers.len());
        let Some(worker) = turns.min_by_key(|worker| worker.connections.len()) else {
            return;
        };
        match socket.into_std() {
            // A worker ends only after this thread.
            Ok(socket) => _ = worker.arrivals.send((socket, peer, permit)),
            Err(error) => tracing::error!(%error, "failed to give a connection to a worker"),
        }
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
