//! Listeners: how many connections there may be and for how long, with or without TLS, and a shutdown that loses no request.
//!
//! A connection has [`head_timeout`](ServerConfig::head_timeout) from its beginning to its first complete head, TLS included,
//! and as long again from the first byte of each further head; between requests it may be idle. Clients must keep reading
//! what is sent to them. No request sets a timer for this: a connection records what it does, and all connections are checked
//! a few times a second, so times are kept to within an eighth, and a quarter of a second.

mod connection;
mod connection_limiter;
mod connections;
pub mod fast_path;
mod frame_budget;
mod http2_stream;
mod state;
mod tracked;
mod workers;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::body::IncomingBody;
use connection_limiter::ConnectionLimiter;
use connections::Connections;
use workers::Acceptor;

pub use workers::Workers;

/// The error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Whether an address may have any number of connections.
pub type ExemptAddresses = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// Called with the peer's address when a head is rejected before a handler sees it.
pub type OnRejectedHead = Arc<dyn Fn(SocketAddr, RejectedHead) + Send + Sync>;

/// What connections may do.
#[derive(Clone)]
pub struct ServerConfig {
    /// Maximum number of connections. Near it, those without a request are closed to make room.
    pub max_connections: usize,
    /// Maximum number of connections of one address (IPv6: of a /64); 0 for no limit.
    pub per_address: usize,
    /// Addresses that `per_address` does not apply to: proxies, which connect on behalf of many clients. None by default.
    pub exempt: ExemptAddresses,
    /// Does nothing by default.
    pub on_rejected_head: OnRejectedHead,
    /// Time for the TLS handshake and the head of the first request, and for the head of each further one.
    pub head_timeout: Duration,
    /// How long a connection may be idle between requests.
    pub idle_timeout: Duration,
    /// How long a client may stop reading what is sent to it.
    pub send_timeout: Duration,
    /// Maximum size of a request's head, in bytes.
    pub max_head_bytes: usize,
    /// Maximum number of concurrent requests on an HTTP/2 connection.
    pub max_streams: u32,
    /// Maximum age of an HTTP/2 connection. Some end up to an eighth earlier, so that not all end at once.
    pub max_age: Duration,
    /// How long requests in flight may take to end at shutdown.
    pub drain: Duration,
    /// Whether the [fast path](fast_path) serves usual HTTP/1.1 requests instead of hyper.
    pub fast_path: bool,
    /// The TLS configuration; `None` for plain text.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Counts connections.
    pub metrics: ServerMetrics,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            per_address: 1_000,
            exempt: Arc::new(|_| false),
            on_rejected_head: Arc::new(|_, _| {}),
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            send_timeout: Duration::from_secs(60),
            max_head_bytes: 32 * 1_024,
            max_streams: 100,
            max_age: Duration::from_secs(3_600),
            drain: Duration::from_secs(30),
            fast_path: true,
            tls: None,
            metrics: ServerMetrics::default(),
        }
    }
}

/// Why a head was rejected before a handler saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectedHead {
    /// It is not a head of HTTP/1.
    Malformed,
    /// It has too many bytes or headers.
    TooLong,
    /// Its target is too long.
    TargetTooLong,
}

impl RejectedHead {
    /// `None` if the connection ended for another reason.
    fn of(error: &hyper::Error) -> Option<Self> {
        match (error.is_parse(), error.is_parse_too_large()) {
            (false, _) => None,
            (true, false) => Some(Self::Malformed),
            // hyper distinguishes the two by text alone.
            (true, true) if error.to_string().contains("URI") => Some(Self::TargetTooLong),
            (true, true) => Some(Self::TooLong),
        }
    }

    /// The status of the response.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::TooLong => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
        }
    }

    /// The reason as a label: `malformed` or `too_long`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLong | Self::TargetTooLong => "too_long",
        }
    }
}

/// Answers requests.
pub trait Handler: Clone + Send + Sync + 'static {
    /// The body of its responses.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;

    /// Answers a request that came over a connection from `peer`. If the client disconnects, the future is dropped.
    fn handle(
        &self,
        request: Request<IncomingBody>,
        peer: SocketAddr,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// Serves connections on the current runtime until `stop` is cancelled. Then accepts no more, and returns when all requests in
/// flight have ended, or when their time is over.
pub async fn serve<H: Handler>(
    listener: TcpListener,
    config: ServerConfig,
    stop: CancellationToken,
    handler: H,
) {
    let config = Arc::new(config);
    let limiter = ConnectionLimiter::new(&config);
    let mut acceptor = Acceptor::new(listener, Arc::clone(&config), Arc::clone(&limiter));
    let connections = Connections::new(config);
    let make_room = |count| connections.shed(count);
    while let Some((socket, peer, permit)) = acceptor.next(&stop, make_room).await {
        connections.serve(socket, peer, permit, handler.clone());
    }
    // From here on the system refuses connections, unless another process holds the socket as well.
    drop(acceptor);
    connections.end(&limiter).await;
}

type ByReason = Family<[(&'static str, &'static str); 1], Counter>;

/// All reasons, so that each is exported from the beginning.
const REFUSED: &str = "full address";
const CLOSED: &str =
    "malformed handshake control_frames head_timeout idle_timeout send_timeout age shed drain";

/// Metrics of one listener. They are not exported until they are registered.
#[derive(Clone, Debug)]
pub struct ServerMetrics {
    open: Gauge,
    accepted: Counter,
    refused: ByReason,
    closed: ByReason,
}

impl Default for ServerMetrics {
    fn default() -> Self {
        let all = |reasons: &'static str| {
            let family = ByReason::default();
            for reason in reasons.split(' ') {
                drop(family.get_or_create(&[("reason", reason)]));
            }
            family
        };
        Self {
            open: Gauge::default(),
            accepted: Counter::default(),
            refused: all(REFUSED),
            closed: all(CLOSED),
        }
    }
}

impl ServerMetrics {
    /// Metrics that are exported by this registry.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.register(registry);
        metrics
    }

    /// Exports them by this registry.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Open connections";
        registry.register("connections_open", help, self.open.clone());
        let help = "Accepted connections";
        registry.register("connections_accepted", help, self.accepted.clone());
        let help = "Connections closed at once because of a maximum, of all or of their address";
        registry.register("connections_refused", help, self.refused.clone());
        let help = "Connections closed for what they sent, for being slow, or to make room";
        registry.register("connections_closed_early", help, self.closed.clone());
    }

    /// Counts a connection that was closed at once.
    fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts a connection that the server closes.
    fn closed(&self, reason: &'static str) {
        self.closed.get_or_create(&[("reason", reason)]).inc();
    }
}
