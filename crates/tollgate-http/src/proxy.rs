//! The reverse proxy: forwards requests to the servers of their path, and returns their responses.
//!
//! A request goes through `request_head` (what is for this hop alone is removed, forwarding headers are set), `upstream` (which
//! server), `forward` (over which connection, and what is sent again) and `connection`, an HTTP/1.1 connection on which the
//! `fast_path` or hyper speaks; or hyper's HTTP/2. Its response goes through `response_body`. Beside them: `slots` (how many
//! requests at a time, and whose), `pool` (idle connections), `connect`, `health` and `checks`, `tunnel` (WebSocket), `metrics`.

mod checks;
mod config;
mod connect;
mod connection;
mod failure;
pub mod fast_path;
mod forward;
mod health;
mod hyper_connection;
mod metrics;
mod outgoing;
mod pool;
mod request_body;
mod request_head;
mod response_body;
mod server;
mod slots;
mod stream;
mod tunnel;
mod upstream;

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::upgrade::OnUpgrade;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::headers::{self, ReservedNames};
use crate::tls::TlsError;
use forward::Answer;
use outgoing::Outgoing;
use pool::Pool;
use request_body::RequestBody;
use request_head::Forwarding;
use response_body::Source;
use slots::Claim;
use tunnel::Tunnels;
use upstream::Upstream;

pub use config::{HealthCheck, HostField, Protocol, UpstreamConfig};
pub use failure::Failure;
pub use metrics::ProxyMetrics;
pub use response_body::{ProxyBody, ProxyBodyError};
pub use tunnel::{Tunnel, TunnelEnd};

/// What a proxy has to know of the listener in front of it.
#[derive(Clone)]
pub struct ProxySettings {
    /// Whether clients use TLS.
    pub is_tls: bool,
    /// Whether to add a `Via` header to requests.
    pub via: bool,
    /// Whether usual HTTP/1.1 exchanges take the [fast path](fast_path).
    pub fast_path: bool,
    /// Headers that mean something to the limiter: no trailer of a request may have such a name.
    pub reserved: ReservedNames,
}

impl Default for ProxySettings {
    fn default() -> Self {
        Self {
            is_tls: false,
            via: false,
            fast_path: true,
            reserved: Arc::new(|_| false),
        }
    }
}

impl fmt::Debug for ProxySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxySettings")
            .field("is_tls", &self.is_tls)
            .field("via", &self.via)
            .field("fast_path", &self.fast_path)
            .finish_non_exhaustive()
    }
}

/// Who sent a request, and where it goes.
#[derive(Clone, Copy)]
pub struct ClientInfo<'a> {
    /// The other end of the connection.
    pub peer: IpAddr,
    /// The client's address, by which slots of a server are shared between clients.
    pub address: IpAddr,
    /// Whether an address is a trusted proxy: its forwarding headers are passed on, and it stands for many clients.
    pub trusts: &'a (dyn Fn(IpAddr) -> bool + Sync),
    /// The path in the normal form by which rules match it; it decides which upstream gets the request.
    pub path: &'a str,
}

/// What became of a request.
#[derive(Debug)]
pub struct Forwarded {
    /// The response of a server, or why there is none.
    pub result: Result<Response<ProxyBody>, Failure>,
    /// How long it took; `None` if no server was asked.
    pub took: Option<Duration>,
    /// The connection that a response with status 101 upgraded.
    pub tunnel: Option<Tunnel>,
}

/// Why there can be no proxy.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProxyError {
    /// This is not the address of a server.
    Address(String),
    /// Certificates that cannot be used.
    Tls(TlsError),
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(
                f,
                "{address:?} is not the address of a server; expected http://host:port"
            ),
            Self::Tls(error) => error.fmt(f),
        }
    }
}

impl Error for ProxyError {}

impl From<TlsError> for ProxyError {
    fn from(error: TlsError) -> Self {
        Self::Tls(error)
    }
}

/// Forwards requests. A clone shares everything; [`Proxy::worker`] has connections of its own.
#[derive(Clone)]
pub struct Proxy {
    worker: Arc<Worker>,
}

/// What the clones for one thread share.
struct Worker {
    shared: Arc<Shared>,
    /// The longest path first.
    routes: Vec<Route>,
}

/// What all threads share.
struct Shared {
    settings: ProxySettings,
    upstreams: Vec<Arc<Upstream>>,
    tunnels: Tunnels,
}

/// An upstream, and the connections to its servers, in their order.
struct Route {
    upstream: Arc<Upstream>,
    pools: Vec<Arc<Pool>>,
}

impl Proxy {
    /// A proxy for these upstreams. It connects to nothing yet.
    ///
    /// # Errors
    /// When the address of a server is malformed, or certificates cannot be read.
    pub fn new(
        upstreams: &[UpstreamConfig],
        settings: ProxySettings,
        metrics: &ProxyMetrics,
    ) -> Result<Self, ProxyError> {
        let upstreams = upstreams
            .iter()
            .map(|config| Upstream::new(config, metrics, settings.fast_path));
        let mut upstreams =
            (upstreams.map(|upstream| upstream.map(Arc::new))).collect::<Result<Vec<_>, _>>()?;
        upstreams.sort_by_key(|upstream| std::cmp::Reverse(upstream.config.path.len()));
        let tunnels = Tunnels::new(metrics.tunnels(), metrics.tunnels_idle());
        Ok(Self::of(Arc::new(Shared {
            settings,
            upstreams,
            tunnels,
        })))
    }

    /// The same proxy with connections of its own, for a thread with a runtime of its own.
    #[must_use]
    pub fn worker(&self) -> Self {
        Self::of(Arc::clone(&self.worker.shared))
    }

    fn of(shared: Arc<Shared>) -> Self {
        let route = |upstream: &Arc<Upstream>| {
            let open = &upstream.metrics.connections;
            let pool = |server| Arc::new(Pool::new(Arc::clone(server), open.clone()));
            Route {
                upstream: Arc::clone(upstream),
                pools: upstream.servers.iter().map(pool).collect(),
            }
        };
        let routes = shared.upstreams.iter().map(route).collect();
        Self {
            worker: Arc::new(Worker { shared, routes }),
        }
    }

    /// Checks servers, where that is configured, until `stop` is cancelled.
    pub fn watch(&self, stop: &CancellationToken) {
        for upstream in &self.worker.shared.upstreams {
            checks::start(upstream, stop);
        }
    }

    /// Waits for upgraded connections to end, and cuts them after `within`. All else ends with its client's connection.
    pub async fn end(&self, within: Duration) {
        self.worker.shared.tunnels.end(within).await;
    }

    /// Forwards a request. Its head is prepared at once, and sent when the future is polled.
    pub fn forward<B>(
        &self,
        request: Request<B>,
        client: &ClientInfo<'_>,
    ) -> impl Future<Output = Forwarded> + Send + use<B>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        let worker = Arc::clone(&self.worker);
        let prepared = worker.prepare(request, client);
        async move {
            match prepared {
                Ok(prepared) => worker.send(prepared).await,
                Err(failure) => Forwarded {
                    result: Err(failure),
                    took: None,
                    tunnel: None,
                },
            }
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes = self.worker.routes.iter();
        f.debug_list()
            .entries(routes.map(|route| &*route.upstream.config.path))
            .finish()
    }
}

/// A request that can be sent.
struct Prepared {
    request: Box<Outgoing>,
    /// Which of the routes it takes.
    route: usize,
    claim: Claim,
    /// The client's side of the connection, if it asks for a WebSocket.
    upgrade: Option<OnUpgrade>,
}

impl Worker {
    fn prepare<B>(&self, request: Request<B>, client: &ClientInfo<'_>) -> Result<Prepared, Failure>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        if *request.method() == Method::CONNECT {
            return Err(Failure::Connect);
        }
        let nth = self.route(client.path).ok_or(Failure::NoUpstream)?;
        let upstream = &self.routes.get(nth).ok_or(Failure::NoUpstream)?.upstream;
        let settings = &self.shared.settings;
        let is_contended = upstream.is_contended();
        let mut claim = Claim {
            // A proxy that names no client stands for many.
            client: Some(client.address)
                .filter(|address| is_contended && !(client.trusts)(*address)),
            is_long_lived: is_contended && request_head::accepts_event_stream(request.headers()),
        };
        let request = request.map(|body| RequestBody::of(body, &settings.reserved));
        // Boxed, as it is handed on many times.
        let mut request = Box::new(Outgoing::new(request));
        let is_websocket = request.prepare(&Forwarding {
            client,
            is_tls: settings.is_tls,
            may_upgrade: upstream.config.protocol == Protocol::Http1,
            adds_via: settings.via,
        });
        claim.is_long_lived |= is_websocket;
        let upgrade = request.take_upgrade().filter(|_| is_websocket);
        Ok(Prepared {
            request,
            route: nth,
            claim,
            upgrade,
        })
    }

    async fn send(&self, prepared: Prepared) -> Forwarded {
        let Some(route) = self.routes.get(prepared.route) else {
            return Forwarded {
                result: Err(Failure::NoUpstream),
                took: None,
                tunnel: None,
            };
        };
        let began = Instant::now();
        let progress = prepared.request.request().body().progress();
        let answer = forward::forward(route, prepared.request, prepared.claim, began).await;
        let now = Instant::now();
        let took = now - began;
        let is_sending = progress.is_some_and(|progress| !progress.has_ended());
        let mut tunnel = None;
        let result = match answer {
            Ok(answer) if answer.response.status() == StatusCode::SWITCHING_PROTOCOLS => self
                .upgraded(answer, prepared.upgrade, &route.upstream)
                .map(|(response, opened)| {
                    tunnel = Some(opened);
                    response
                }),
            Ok(answer) => route.answered(answer, is_sending, now),
            Err(failure) => Err(failure),
        };
        let metrics = &route.upstream.metrics;
        match &result {
            Ok(response) => metrics.answered(response.status(), took),
            Err(failure) => metrics.failed(*failure),
        }
        Forwarded {
            result,
            took: Some(took),
            tunnel,
        }
    }

    /// The route of the longest path that this one begins with, by whole segments.
    fn route(&self, path: &str) -> Option<usize> {
        if let [only] = &*self.routes
            && only.upstream.config.path == "/"
        {
            return Some(0);
        }
        self.routes.iter().position(|route| {
            let prefix = route.upstream.config.path.trim_end_matches('/');
            let rest = path.strip_prefix(prefix);
            rest.is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// A server that agreed to a WebSocket, or to something that the client did not ask for.
    fn upgraded(
        &self,
        answer: Answer<'_>,
        front: Option<OnUpgrade>,
        upstream: &Upstream,
    ) -> Result<(Response<ProxyBody>, Tunnel), Failure> {
        let mut response = answer.response;
        let (Some(front), Some(connection)) = (front, answer.connection) else {
            return Err(Failure::Garbled);
        };
        if !headers::remove_hop_by_hop(response.headers_mut()) {
            return Err(Failure::Garbled);
        }
        upstream.succeeded(&answer.pool.server);
        let timeout = upstream.config.tunnel_timeout;
        let tunnel = (self.shared.tunnels).start(front, *connection, answer.slot, timeout);
        request_head::add_upgrade(response.headers_mut());
        *response.version_mut() = Version::HTTP_11;
        Ok((response.map(|_| ProxyBody::whole(Bytes::new())), tunnel))
    }
}

impl Route {
    /// The response of a server, for the client.
    fn answered(
        &self,
        mut answer: Answer<'_>,
        is_sending: bool,
        now: Instant,
    ) -> Result<Response<ProxyBody>, Failure> {
        let upstream = &self.upstream;
        if !headers::remove_hop_by_hop(answer.response.headers_mut()) {
            let failure = Failure::Garbled;
            upstream.failed(&answer.pool.server, &failure.to_string(), "lengths differ");
            return Err(failure);
        }
        let status = answer.response.status();
        match status.as_u16() {
            502..=504 => upstream.failed(&answer.pool.server, "status", status.as_str()),
            _ => upstream.succeeded(&answer.pool.server),
        }
        if request_head::is_event_stream(answer.response.headers())
            && !answer.slot.become_long_lived()
        {
            return Err(Failure::Busy);
        }
        let connection = match (answer.connection, is_sending) {
            // The client still sends, and the server has answered already: both go on by themselves.
            (Some(connection), true) => {
                connection.detach();
                None
            }
            (connection, _) => connection,
        };
        let source = Source {
            connection,
            pool: answer.pool,
            slot: answer.slot,
            idle_timeout: upstream.config.idle_timeout,
            cut: &upstream.metrics.cut,
        };
        let (mut parts, received) = answer.response.into_parts();
        parts.version = Version::HTTP_11;
        let body = ProxyBody::of(received, source, now);
        Ok(Response::from_parts(parts, body))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Empty;

    use super::*;

    /// It is made for each request. Large futures are allocated and moved more slowly.
    #[test]
    fn a_request_in_flight_is_small() {
        let metrics = ProxyMetrics::new(&mut prometheus_client::registry::Registry::default());
        let proxy = Proxy::new(&[], ProxySettings::default(), &metrics).unwrap();
        let client = ClientInfo {
            peer: [192, 0, 2, 7].into(),
            address: [192, 0, 2, 7].into(),
            trusts: &|_| false,
            path: "/",
        };
        let forwarding = proxy.forward(Request::new(Empty::<Bytes>::new()), &client);
        let size = size_of_val(&forwarding);
        assert!(size <= 1_024, "{size} bytes");
    }
}
