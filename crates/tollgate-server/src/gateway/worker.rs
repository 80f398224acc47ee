//! The threads of the gateway: one that accepts connections, and workers, each with a runtime of its own, on which a connection stays for as long as it lives.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::body::RequestBody;
use crate::listen::tls::Certificate;
use crate::listen::{Arrivals, Crowd, ListenConfig, Place, Places, Served};

/// What stands behind the gateway: it answers every request.
pub trait Behind<B>:
    Service<Request<RequestBody>, Response = Response<B>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<B, S> Behind<B> for S where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// A connection on its way to a worker.
type Arrival = (StdStream, SocketAddr, Place);

/// A worker, as the one who accepts sees it.
#[derive(Debug)]
pub(super) struct Worker {
    crowd: Arc<Crowd>,
    arrivals: UnboundedSender<Arrival>,
}

/// Starts a worker with the service that `make` makes on its thread.
pub(super) fn start<S, B>(
    nth: usize,
    config: Arc<ListenConfig>,
    places: Arc<Places>,
    make: impl FnOnce() -> S + Send + 'static,
) -> io::Result<(Worker, JoinHandle<()>)>
where
    S: Served<B>,
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let runtime = runtime()?;
    let (arrivals, waiting) = unbounded_channel();
    let (tell, told) = mpsc::channel();
    let thread = thread::Builder::new()
        .name(format!("gateway-{nth}"))
        .spawn(move || {
            runtime.block_on(async move {
                let crowd = Crowd::new(config);
                // Nobody listens only if the start failed elsewhere.
                let _ = tell.send(Arc::clone(&crowd));
                work(waiting, &crowd, &places, &make()).await;
            });
        })?;
    let crowd = told
        .recv()
        .map_err(|_| io::Error::other("a worker ended at its start"))?;
    Ok((Worker { crowd, arrivals }, thread))
}

async fn work<S, B>(
    mut waiting: UnboundedReceiver<Arrival>,
    crowd: &Crowd,
    places: &Places,
    service: &S,
) where
    S: Served<B>,
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    while let Some((socket, peer, place)) = waiting.recv().await {
        match TcpStream::from_std(socket) {
            Ok(socket) => crowd.serve(socket, peer, place, service.clone()),
            Err(error) => tracing::error!(%error, "a connection could not be served"),
        }
    }
    crowd.end(places).await;
}

/// Hands whoever connects to the worker that has the fewest connections, until the end.
pub(super) fn accept(
    listener: StdListener,
    arrivals: impl FnOnce(TcpListener) -> Arrivals + Send + 'static,
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
    let arrivals = arrivals(listener);
    thread::Builder::new()
        .name("gateway-accept".to_owned())
        .spawn(move || {
            runtime.block_on(async move {
                if let Some(certificate) = certificate {
                    tokio::spawn(async move { certificate.follow().await });
                }
                hand_out(arrivals, &workers, &stop).await;
            });
        })
}

async fn hand_out(mut arrivals: Arrivals, workers: &[Worker], stop: &CancellationToken) {
    let mut next = 0_usize;
    let make_room = |count: usize| {
        let each = count.div_ceil(workers.len());
        workers.iter().for_each(|worker| worker.crowd.shed(each));
    };
    while let Some((socket, peer, place)) = arrivals.next(stop, make_room).await {
        // Of those with equally few, each in its turn.
        next = next.wrapping_add(1);
        let turns = workers.iter().cycle().skip(next % workers.len());
        let turns = turns.take(workers.len());
        let Some(worker) = turns.min_by_key(|worker| worker.crowd.len()) else {
            return;
        };
        match socket.into_std() {
            // It is gone only when all is.
            Ok(socket) => _ = worker.arrivals.send((socket, peer, place)),
            Err(error) => tracing::error!(%error, "a connection could not be handed to a worker"),
        }
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
