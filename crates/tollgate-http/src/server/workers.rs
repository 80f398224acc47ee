//! Threads that serve connections: one accepts them, and each worker has a runtime of its own, on which a connection stays for
//! as long as it lives. So a request never changes threads.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::accept::Acceptor;
use super::connection_limiter::{ConnectionLimiter, ConnectionPermit};
use super::connections::Connections;
use super::{Handler, ServerConfig};
use crate::tls::Certificate;

/// The threads of a server.
#[derive(Debug)]
pub struct Workers {
    threads: Vec<JoinHandle<()>>,
}

/// A worker, as the accepting thread sees it.
struct WorkerHandle {
    connections: Arc<Connections>,
    /// Every connection has a permit, so there are never many.
    queue: UnboundedSender<(StdStream, SocketAddr, ConnectionPermit)>,
}

impl Workers {
    /// Serves connections on `count` threads until `stop` is cancelled. `handler` makes the handler of a worker, on its thread
    /// and within its runtime. A `certificate` is reloaded when its files change.
    ///
    /// # Errors
    /// When the system provides no threads or the listener cannot be used.
    pub fn start<H: Handler>(
        count: usize,
        config: ServerConfig,
        listener: StdListener,
        certificate: Option<Arc<Certificate>>,
        handler: impl Fn() -> H + Send + Sync + 'static,
        stop: CancellationToken,
    ) -> io::Result<Self> {
        let config = Arc::new(config);
        let limiter = ConnectionLimiter::new(&config);
        let handler = Arc::new(handler);
        let (mut workers, mut threads) = (Vec::new(), Vec::new());
        for nth in 0..count.max(1) {
            let (config, limiter, handler) = (config.clone(), limiter.clone(), handler.clone());
            let (worker, thread) = start_worker(nth, config, limiter, move || handler())?;
            workers.push(worker);
            threads.push(thread);
        }
        let runtime = current_thread_runtime()?;
        listener.set_nonblocking(true)?;
        let listener = {
            let _guard = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let acceptor = Acceptor::new(listener, config, limiter);
        threads.push(spawn("accept".to_owned(), runtime, async move {
            if let Some(certificate) = certificate {
                tokio::spawn(async move { certificate.follow().await });
            }
            distribute(acceptor, &workers, &stop).await;
        })?);
        Ok(Self { threads })
    }

    /// Waits until all connections have ended.
    pub async fn ended(self) {
        let joined = tokio::task::spawn_blocking(move || {
            for thread in self.threads {
                // The thread itself has reported a panic.
                let _ = thread.join();
            }
        });
        let _ = joined.await;
    }
}

/// Starts a worker with the handler that `make` makes on its thread.
fn start_worker<H: Handler>(
    nth: usize,
    config: Arc<ServerConfig>,
    limiter: Arc<ConnectionLimiter>,
    make: impl FnOnce() -> H + Send + 'static,
) -> io::Result<(WorkerHandle, JoinHandle<()>)> {
    let (queue, mut receiver) = unbounded_channel();
    let (started, is_started) = mpsc::channel();
    let runtime = current_thread_runtime()?;
    let thread = spawn(format!("worker-{nth}"), runtime, async move {
        let connections = Connections::new(config);
        // It is not received only if the start failed elsewhere.
        let _ = started.send(Arc::clone(&connections));
        let handler = make();
        while let Some((socket, peer, permit)) = receiver.recv().await {
            match TcpStream::from_std(socket) {
                Ok(socket) => connections.serve(socket, peer, permit, handler.clone()),
                Err(error) => tracing::error!(%error, "failed to serve a connection"),
            }
        }
        connections.end(&limiter).await;
    })?;
    let connections = is_started.recv();
    let connections = connections.map_err(|_| io::Error::other("a worker ended at its start"))?;
    Ok((WorkerHandle { connections, queue }, thread))
}

/// Gives each connection to the worker that has the fewest, until `stop`.
async fn distribute(mut acceptor: Acceptor, workers: &[WorkerHandle], stop: &CancellationToken) {
    let mut next = 0_usize;
    let make_room = |count: usize| {
        let each = count.div_ceil(workers.len());
        for worker in workers {
            worker.connections.shed(each);
        }
    };
    while let Some((socket, peer, permit)) = acceptor.next(stop, make_room).await {
        // Workers with equally few take turns.
        next = next.wrapping_add(1);
        let (before, after) = workers.split_at(next % workers.len());
        let turns = after.iter().chain(before);
        let Some(worker) = turns.min_by_key(|worker| worker.connections.len()) else {
            return;
        };
        match socket.into_std() {
            // A worker ends only after this thread.
            Ok(socket) => _ = worker.queue.send((socket, peer, permit)),
            Err(error) => tracing::error!(%error, "failed to give a connection to a worker"),
        }
    }
}

fn current_thread_runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Runs a future to its end on a thread of its own.
fn spawn(
    name: String,
    runtime: Runtime,
    future: impl Future<Output = ()> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    thread::Builder::new()
        .name(name)
        .spawn(move || runtime.block_on(future))
}
