//! Threads that serve connections: one accepts them, and each worker has a runtime of its own, on which a connection stays for
//! as long as it lives. So a request never changes threads. Connections are accepted as far as there is room for them.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::connection_limiter::{ConnectionLimiter, ConnectionPermit};
use super::connections::Connections;
use super::{Handler, ServerConfig};
use crate::descriptors;
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

/// How long a new connection waits for others to make room. If none does, all have requests in flight.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// How many connections without a request are closed if there is no file descriptor for a new one.
const ROOM_FOR_DESCRIPTORS: usize = 16;

/// Pause after the system could not accept a connection.
const RETRY_ACCEPT: Duration = Duration::from_millis(100);

/// How long connections that the system has already made are accepted at shutdown.
const LAST_CALL: Duration = Duration::from_millis(500);

pub(super) struct Acceptor {
    listener: TcpListener,
    limiter: Arc<ConnectionLimiter>,
    config: Arc<ServerConfig>,
    /// When to stop accepting, once the shutdown has begun.
    last_call: Option<Instant>,
}

impl Acceptor {
    pub(super) fn new(
        listener: TcpListener,
        config: Arc<ServerConfig>,
        limiter: Arc<ConnectionLimiter>,
    ) -> Self {
        Self {
            listener,
            limiter,
            config,
            last_call: None,
        }
    }

    /// The next connection, with its permit. At shutdown those that the system has already made, and then `None`.
    /// `make_room` closes that many others.
    pub(super) async fn next(
        &mut self,
        stop: &CancellationToken,
        make_room: impl Fn(usize),
    ) -> Option<(TcpStream, SocketAddr, ConnectionPermit)> {
        loop {
            if stop.is_cancelled() {
                let last_call = *self.last_call.get_or_insert(Instant::now() + LAST_CALL);
                if Instant::now() > last_call {
                    return None;
                }
            }
            // A connection that the system has already made is ready at once, so it comes before the shutdown.
            let accepted = tokio::select! {
                biased;
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => return None,
            };
            let error = match accepted {
                Ok((socket, peer)) => {
                    self.config.metrics.accepted.inc();
                    self.wait_for_room(&make_room).await;
                    let is_exempt = (self.config.exempt)(peer.ip());
                    match self.limiter.take(peer.ip(), is_exempt) {
                        Ok(permit) => return Some((socket, peer, permit)),
                        Err(reason) => self.config.metrics.refused(reason),
                    }
                    continue;
                }
                Err(error) => error,
            };
            match error.kind() {
                // The client has already disconnected.
                ErrorKind::ConnectionRefused
                | ErrorKind::ConnectionAborted
                | ErrorKind::ConnectionReset => continue,
                _ if descriptors::are_exhausted(&error) => {
                    descriptors::report_exhausted("accepting a connection");
                    make_room(ROOM_FOR_DESCRIPTORS);
                }
                _ => tracing::error!(%error, "failed to accept a connection"),
            }
            tokio::time::sleep(RETRY_ACCEPT).await;
        }
    }

    /// Connections that are closed to make room take a moment to end.
    async fn wait_for_room(&self, make_room: &impl Fn(usize)) {
        let deadline = Instant::now() + ROOM_WAIT;
        loop {
            let surplus = self.limiter.surplus();
            if surplus > 0 {
                make_room(surplus);
            }
            if !self.limiter.is_full() || Instant::now() > deadline {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
