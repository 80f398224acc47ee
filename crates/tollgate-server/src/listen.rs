//! Accepting connections and speaking HTTP on them: how many, for how long, with or without TLS, and an end that drops nobody.
//!
//! Every door of the program listens in this way. It knows nothing of what is served.
//!
//! A connection has [`head_timeout`](ListenConfig::head_timeout) from its beginning to its first whole head, TLS included, and as long again from the first
//! byte of each further head; between requests it may be idle. What is sent to it must be taken. No request sets a timer for this: a connection notes
//! what it does, and all of them are looked at a few times a second, so that times are kept to within an eighth, and a quarter of a second.

mod arriving;
mod by_hyper;
mod connection;
mod crowd;
mod date;
mod frame_budget;
mod gathered;
mod metrics;
mod places;
mod plain;
mod preface;
mod refused;
mod refused_target;
mod replayed;
mod request;
mod spare;
mod stream;
pub mod tls;
mod watch;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::descriptors;
pub use arriving::Arriving;
pub(crate) use crowd::Crowd;
pub use metrics::ListenMetrics;
pub(crate) use places::{Full, Place, Places};
pub use refused::{OnRefusedHead, RefusedHead};

/// What a connection may do.
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// The most connections at a time. When it gets tight, those without a request make room.
    pub most_connections: usize,
    /// The most connections of one address (IPv6: of a /64); 0 for any number.
    pub most_per_address: usize,
    /// Whose connections are not counted like that: proxies, who stand for many.
    pub uncounted: Uncounted,
    /// Who hears of heads that are refused before a service sees them.
    pub on_refused_head: OnRefusedHead,
    /// How long a caller may take to finish the handshake of TLS and the head of its first request, and the head of each further one.
    pub head_timeout: Duration,
    /// How long a connection may be idle between requests.
    pub idle_timeout: Duration,
    /// How long a caller may take nothing of what is sent to it.
    pub send_timeout: Duration,
    /// The most bytes of a request's head.
    pub most_head_bytes: usize,
    /// The most requests at a time on a connection of HTTP/2.
    pub most_streams: u32,
    /// How old a connection of HTTP/2 may become; some go up to an eighth earlier, so that not all do at once.
    pub longest_age: Duration,
    /// How long requests that are under way may take to end once there is an end to it all.
    pub drain: Duration,
    /// How to speak TLS, if it is to be spoken.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Where connections are counted.
    pub metrics: ListenMetrics,
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            most_connections: 10_000,
            most_per_address: 1_000,
            uncounted: Uncounted::default(),
            on_refused_head: OnRefusedHead::default(),
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            send_timeout: Duration::from_secs(60),
            most_head_bytes: 32 * 1_024,
            most_streams: 100,
            longest_age: Duration::from_secs(3_600),
            drain: Duration::from_secs(30),
            tls: None,
            metrics: ListenMetrics::default(),
        }
    }
}

/// Addresses that may have any number of connections. Nobody by default.
#[derive(Clone, Default)]
pub struct Uncounted(Option<Arc<dyn Fn(IpAddr) -> bool + Send + Sync>>);

impl Uncounted {
    /// Those of which this is true.
    pub fn those(are: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(are)))
    }

    fn contains(&self, ip: IpAddr) -> bool {
        self.0.as_ref().is_some_and(|are| are(ip))
    }
}

impl fmt::Debug for Uncounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Uncounted").field(&self.0.is_some()).finish()
    }
}

/// What is wanted of a service that is served: a response to every request, and no error. A [`PeerAddr`](tollgate_tower::layer::PeerAddr)
/// is among a request's extensions.
pub trait Served<B>:
    Service<
        Request<Arriving>,
        Response = Response<B>,
        Error = std::convert::Infallible,
        Future: Send,
    > + Clone
    + Send
    + 'static
{
}

impl<B, S> Served<B> for S where
    S: Service<
            Request<Arriving>,
            Response = Response<B>,
            Error = std::convert::Infallible,
            Future: Send,
        > + Clone
        + Send
        + 'static
{
}

/// Serves whoever connects until `stop` is cancelled; then accepts nobody any more, and returns when all that was under way has ended, or
/// when its time is over.
pub async fn serve<S, B>(
    listener: TcpListener,
    config: ListenConfig,
    stop: CancellationToken,
    service: S,
) where
    S: Served<B>,
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let places = Places::of(&config);
    let mut arrivals = Arrivals::new(listener, &config, Arc::clone(&places));
    let crowd = Crowd::new(Arc::new(config));
    let make_room = |count| crowd.shed(count);
    while let Some((socket, peer, place)) = arrivals.next(&stop, make_room).await {
        crowd.serve(socket, peer, place, service.clone());
    }
    // From here on the system refuses connections; or whoever else holds the socket accepts them.
    drop(arrivals);
    crowd.end(&places).await;
}

/// Those who connect, as far as there is room for them.
#[derive(Debug)]
pub(crate) struct Arrivals {
    listener: TcpListener,
    places: Arc<Places>,
    uncounted: Uncounted,
    metrics: ListenMetrics,
    /// When to look for no more, once there is an end.
    last_call: Option<Instant>,
}

/// How long somebody who connects is kept waiting for others to make room. If nobody does, all have requests under way.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// How many connections without a request are closed if there is no file descriptor for a new one.
const ROOM_FOR_DESCRIPTORS: usize = 16;

/// Pause after the system could not accept a connection.
const RETRY_ACCEPT: Duration = Duration::from_millis(100);

/// How long those who had connected are taken in at the end, if ever more do.
const LAST_CALL: Duration = Duration::from_millis(500);

impl Arrivals {
    pub(crate) fn new(listener: TcpListener, config: &ListenConfig, places: Arc<Places>) -> Self {
        Self {
            listener,
            places,
            uncounted: config.uncounted.clone(),
            metrics: config.metrics.clone(),
            last_call: None,
        }
    }

    /// The next connection, with its place. At the end those that had connected by then, and then `None`. `make_room` is to end so many others.
    pub(crate) async fn next(
        &mut self,
        stop: &CancellationToken,
        make_room: impl Fn(usize),
    ) -> Option<(TcpStream, SocketAddr, Place)> {
        loop {
            if stop.is_cancelled() {
                let last_call = *self.last_call.get_or_insert(Instant::now() + LAST_CALL);
                if Instant::now() > last_call {
                    return None;
                }
            }
            // A connection that the system has made for us is at hand at once, so it comes before the end.
            let accepted = tokio::select! {
                biased;
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => return None,
            };
            match accepted {
                Ok((socket, peer)) => {
                    self.metrics.accepted.inc();
                    self.wait_for_room(&make_room).await;
                    match self
                        .places
                        .take(peer.ip(), self.uncounted.contains(peer.ip()))
                    {
                        Ok(place) => return Some((socket, peer, place)),
                        Err(Full::All) => _ = self.metrics.full.inc(),
                        Err(Full::Address) => _ = self.metrics.address_full.inc(),
                    }
                }
                // The caller's own fault, or gone already.
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) if descriptors::are_exhausted(&error) => {
                    descriptors::report_exhausted("accepting a connection");
                    make_room(ROOM_FOR_DESCRIPTORS);
                    tokio::time::sleep(RETRY_ACCEPT).await;
                }
                Err(error) => {
                    tracing::error!(%error, "failed to accept a connection");
                    tokio::time::sleep(RETRY_ACCEPT).await;
                }
            }
        }
    }
}

impl Arrivals {
    /// Those who make room take a moment to go.
    async fn wait_for_room(&self, make_room: &impl Fn(usize)) {
        let patience = Instant::now() + ROOM_WAIT;
        loop {
            let too_many = self.places.too_many();
            if too_many > 0 {
                make_room(too_many);
            }
            if !self.places.are_taken() || Instant::now() > patience {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}
