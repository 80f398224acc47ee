//! Accepting connections and speaking HTTP on them: how many, for how long, with or without TLS, and a shutdown that
//! drops no request. Every listener of the program works like this. It knows nothing of what it serves.
//!
//! A connection has [`head_timeout`](ServerConfig::head_timeout) from its beginning to its first complete head, TLS
//! included, and as long again from the first byte of each further head; between requests it may be idle. Clients must
//! keep reading what is sent to them. No request sets a timer for this: a connection records what it does, and all of
//! them are checked a few times a second, so times are kept to within an eighth, and a quarter of a second.

mod accept;
mod connection;
mod connection_limits;
mod connections;
pub mod fast_path;
mod frame_budget;
mod gathered;
mod in_flight;
mod metrics;
mod prefixed_stream;
mod rejected_head;
mod state;
mod tracked_stream;
mod workers;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::body::IncomingBody;
use accept::Acceptor;
use connection_limits::ConnectionLimits;
use connections::Connections;

pub use metrics::ServerMetrics;
pub use rejected_head::{OnRejectedHead, RejectedHead};
pub use workers::Workers;

/// The error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What connections may do.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Maximum number of connections. Near it, those without a request are closed to make room.
    pub max_connections: usize,
    /// Maximum number of connections of one address (IPv6: of a /64); 0 for no limit.
    pub per_address: usize,
    /// Addresses that `per_address` does not apply to: proxies, which connect on behalf of many clients.
    pub exempt: ExemptAddresses,
    /// Called for heads that are rejected before a handler sees them.
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
    /// Whether usual HTTP/1.1 requests are read and answered by the [fast path](fast_path) instead of hyper.
    pub fast_path: bool,
    /// How to speak TLS; `None` for plain text.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Where connections are counted.
    pub metrics: ServerMetrics,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            per_address: 1_000,
            exempt: ExemptAddresses::default(),
            on_rejected_head: OnRejectedHead::default(),
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

/// Addresses that may have any number of connections. None by default.
#[derive(Clone, Default)]
pub struct ExemptAddresses(Option<Arc<dyn Fn(IpAddr) -> bool + Send + Sync>>);

impl ExemptAddresses {
    /// Those for which `is_exempt` returns true.
    pub fn new(is_exempt: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_exempt)))
    }

    fn contains(&self, ip: IpAddr) -> bool {
        self.0.as_ref().is_some_and(|is_exempt| is_exempt(ip))
    }
}

impl fmt::Debug for ExemptAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExemptAddresses")
            .field(&self.0.is_some())
            .finish()
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

/// Serves clients that connect until `stop` is cancelled; then accepts no more, and returns when all requests in flight
/// have ended, or when their time is over.
pub async fn serve<H: Handler>(
    listener: TcpListener,
    config: ServerConfig,
    stop: CancellationToken,
    handler: H,
) {
    let limits = ConnectionLimits::of(&config);
    let mut acceptor = Acceptor::new(listener, &config, Arc::clone(&limits));
    let connections = Connections::new(Arc::new(config));
    let make_room = |count| connections.shed(count);
    while let Some((socket, peer, permit)) = acceptor.next(&stop, make_room).await {
        connections.serve(socket, peer, permit, handler.clone());
    }
    // From here on the system refuses connections, unless another process holds the socket as well.
    drop(acceptor);
    connections.end(&limits).await;
}
