//! The reverse proxy: forwards requests to the servers of their path, and returns their responses.
//!
//! A request goes through `request_head` (headers for one hop are removed, forwarding headers are set), `upstream` (which server),
//! `forward` (over which connection, and what is sent again) and `connection`, an HTTP/1.1 connection that the `fast_path` or
//! hyper drives; or over HTTP/2. Its response goes through `response_body`. Beside them: `slots` (how many concurrent requests, and
//! whose), `pool` (idle and new connections), `health` and `checks`, `tunnel` (WebSocket), `metrics`.

mod checks;
mod connection;
mod error;
pub mod fast_path;
mod forward;
mod health;
mod hyper_connection;
mod pool;
mod request_head;
mod response_body;
mod slots;
mod stream;
mod tunnel;
mod upstream;

use std::cmp::Reverse;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::body::{BodyStage, LimitedBody};
use crate::headers::{ReservedNames, filter_response};
use connection::ReceivedBody;
use forward::Exchange;
use pool::ConnectionPool;
use request_head::PreparedHead;
use slots::SlotClaim;
use tunnel::Tunnels;
use upstream::Upstream;

pub use error::{ForwardError, ProxyError, ProxyMetrics};
pub use response_body::ProxyBody;
pub use tunnel::{Tunnel, TunnelEnd};
pub use upstream::{HealthCheck, HostHeader, Protocol, ProxySettings, UpstreamConfig};

/// The client of a request, and its path.
#[derive(Clone, Copy)]
pub struct ClientInfo<'a> {
    /// The other end of the connection.
    pub peer: IpAddr,
    /// The client's address, by which clients share the slots of a server.
    pub address: IpAddr,
    /// Whether an address is a trusted proxy: its forwarding headers are passed on, and it stands for many clients.
    pub trusts: &'a (dyn Fn(IpAddr) -> bool + Sync),
    /// The path in the normal form by which rules match it; it decides which upstream gets the request.
    pub path: &'a str,
    /// Returns the names that no trailer may have; called if the request has a body.
    pub reserved: &'a (dyn Fn() -> ReservedNames + Sync),
}

/// The result of forwarding a request.
#[derive(Debug)]
pub struct Forwarded {
    /// The response of a server, or why there is none.
    pub result: Result<Response<ProxyBody>, ForwardError>,
    /// How long it took; `None` if no upstream was found.
    pub took: Option<Duration>,
    /// The connection that a response with status 101 upgraded.
    pub tunnel: Option<Tunnel>,
}

/// Forwards requests. A clone shares everything; [`Proxy::worker`] has connections of its own.
#[derive(Clone)]
pub struct Proxy {
    shared: Arc<ProxyShared>,
    /// The longest path first.
    routes: Arc<[Arc<UpstreamRoute>]>,
}

/// What all threads share.
struct ProxyShared {
    settings: ProxySettings,
    upstreams: Vec<Arc<Upstream>>,
    tunnels: Tunnels,
}

/// An upstream, and the connections of a thread to its servers, in their order.
struct UpstreamRoute {
    shared: Arc<ProxyShared>,
    upstream: Arc<Upstream>,
    pools: Vec<Arc<ConnectionPool>>,
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
        let mut upstreams = (upstreams.iter())
            .map(|config| Upstream::new(config, metrics, settings.fast_path).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()?;
        upstreams.sort_by_key(|upstream| Reverse(upstream.config.path.len()));
        let tunnels = Tunnels::new(metrics.tunnels.clone(), metrics.idle_tunnels.clone());
        Ok(Self::with_connections(Arc::new(ProxyShared {
            settings,
            upstreams,
            tunnels,
        })))
    }

    /// The same proxy with connections of its own, for a thread with a runtime of its own.
    #[must_use]
    pub fn worker(&self) -> Self {
        Self::with_connections(Arc::clone(&self.shared))
    }

    fn with_connections(shared: Arc<ProxyShared>) -> Self {
        let route = |upstream: &Arc<Upstream>| {
            let open = &upstream.metrics.connections;
            let pool = |server| Arc::new(ConnectionPool::new(Arc::clone(server), open.clone()));
            Arc::new(UpstreamRoute {
                shared: Arc::clone(&shared),
                upstream: Arc::clone(upstream),
                pools: upstream.servers.iter().map(pool).collect(),
            })
        };
        let routes = shared.upstreams.iter().map(route).collect();
        Self { shared, routes }
    }

    /// Checks servers, where that is configured, until `stop` is cancelled.
    pub fn watch(&self, stop: &CancellationToken) {
        for upstream in &self.shared.upstreams {
            checks::start(upstream, stop);
        }
    }

    /// Waits for upgraded connections to end, and cuts them after `within`. Everything else ends with its client's connection.
    pub async fn end(&self, within: Duration) {
        self.shared.tunnels.end(within).await;
    }

    /// Forwards a request. Its head is prepared at once, and sent when the future is polled.
    pub fn forward(
        &self,
        request: Request<LimitedBody>,
        client: &ClientInfo<'_>,
    ) -> impl Future<Output = Forwarded> + Send + use<> {
        let prepared = self.prepare(request, client);
        async move {
            match prepared {
                Ok(prepared) => prepared.send().await,
                Err(error) => Forwarded {
                    result: Err(error),
                    took: None,
                    tunnel: None,
                },
            }
        }
    }

    fn prepare(
        &self,
        request: Request<LimitedBody>,
        client: &ClientInfo<'_>,
    ) -> Result<Prepared, ForwardError> {
        if *request.method() == Method::CONNECT {
            return Err(ForwardError::Connect);
        }
        let route = self.route(client.path).ok_or(ForwardError::NoUpstream)?;
        let (upstream, settings) = (&route.upstream, &route.shared.settings);
        // Boxed, because it is passed on many times.
        let mut request = Box::new(request);
        request.body_mut().reserve(client.reserved);
        let may_upgrade = upstream.config.protocol == Protocol::Http1;
        let head = request_head::prepare(&mut request, client, settings, may_upgrade);
        let is_contended = upstream.is_contended();
        let accepts_stream = || request_head::accepts_event_stream(request.headers());
        let claim = SlotClaim {
            // A proxy that names no client stands for many.
            client: (is_contended && !(client.trusts)(client.address)).then_some(client.address),
            is_long_lived: head.upgrade.is_some() || is_contended && accepts_stream(),
        };
        Ok(Prepared {
            route: Arc::clone(route),
            request,
            head,
            claim,
        })
    }

    /// The route of the longest path that this one begins with, by whole segments.
    fn route(&self, path: &str) -> Option<&Arc<UpstreamRoute>> {
        if let [only] = &*self.routes
            && only.upstream.config.path == "/"
        {
            return Some(only);
        }
        self.routes.iter().find(|route| {
            let prefix = route.upstream.config.path.trim_end_matches('/');
            let rest = path.strip_prefix(prefix);
            rest.is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with('/'))
        })
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").finish_non_exhaustive()
    }
}

struct Prepared {
    route: Arc<UpstreamRoute>,
    request: Box<Request<LimitedBody>>,
    head: PreparedHead,
    claim: SlotClaim,
}

impl Prepared {
    async fn send(self) -> Forwarded {
        let (route, PreparedHead { upgrade, has_host }) = (&*self.route, self.head);
        let began = Instant::now();
        let progress = self.request.body().progress();
        let received = forward::forward(route, self.request, has_host, self.claim, began).await;
        let now = Instant::now();
        let took = now - began;
        let is_sending = progress.is_some_and(|progress| progress.stage() != BodyStage::Ended);
        let mut tunnel = None;
        let result = received.and_then(|(response, exchange)| match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => {
                let (response, opened) = route.upgraded(response, exchange, upgrade)?;
                tunnel = Some(opened);
                Ok(response)
            }
            _ => route.answered(response, exchange, is_sending, now),
        });
        let counted = result
            .as_ref()
            .map(Response::status)
            .map_err(|error| *error);
        route.upstream.metrics.count(counted, took);
        Forwarded {
            result,
            took: Some(took),
            tunnel,
        }
    }
}

impl UpstreamRoute {
    /// The response of a server that agreed to a WebSocket, or to something that the client did not ask for.
    fn upgraded(
        &self,
        mut response: Response<ReceivedBody>,
        exchange: Exchange<'_>,
        upgrade: Option<OnUpgrade>,
    ) -> Result<(Response<ProxyBody>, Tunnel), ForwardError> {
        let (Some(client), Some(server)) = (upgrade, exchange.connection) else {
            return Err(ForwardError::Garbled);
        };
        if !filter_response(response.headers_mut()) {
            return Err(ForwardError::Garbled);
        }
        self.upstream.note_success(&exchange.pool.server);
        let timeout = self.upstream.config.tunnel_timeout;
        let tunnels = &self.shared.tunnels;
        let tunnel = tunnels.start(client, *server, exchange.slot, timeout);
        request_head::add_upgrade(response.headers_mut());
        *response.version_mut() = Version::HTTP_11;
        Ok((response.map(|_| ProxyBody::whole(Bytes::new())), tunnel))
    }

    /// The response of a server, for the client.
    fn answered(
        &self,
        mut response: Response<ReceivedBody>,
        mut exchange: Exchange<'_>,
        is_sending: bool,
        now: Instant,
    ) -> Result<Response<ProxyBody>, ForwardError> {
        let (upstream, server) = (&*self.upstream, &exchange.pool.server);
        let sent_at = exchange.sent_at;
        if !filter_response(response.headers_mut()) {
            let error = ForwardError::Garbled;
            upstream.note_failure(server, sent_at, error.label(), "lengths differ");
            return Err(error);
        }
        match response.status() {
            status if (502..=504).contains(&status.as_u16()) => {
                upstream.note_failure(server, sent_at, "status", status.as_str());
            }
            _ => upstream.note_success(server),
        }
        if request_head::is_event_stream(response.headers()) && !exchange.slot.become_long_lived() {
            return Err(ForwardError::Busy);
        }
        // If the client still sends and the server has responded already, both go on by themselves.
        if let Some(connection) = exchange.connection.take_if(|_| is_sending) {
            connection.detach();
        }
        *response.version_mut() = Version::HTTP_11;
        Ok(response.map(|received| ProxyBody::new(received, exchange, upstream, now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Large futures are allocated and moved more slowly.
    #[test]
    fn request_in_flight_is_small() {
        let metrics = ProxyMetrics::new(&mut prometheus_client::registry::Registry::default());
        let proxy = Proxy::new(&[], ProxySettings::default(), &metrics).unwrap();
        let client = ClientInfo {
            peer: [192, 0, 2, 7].into(),
            address: [192, 0, 2, 7].into(),
            trusts: &|_| false,
            path: "/",
            reserved: &|| Arc::new(|_| false),
        };
        let forwarding = proxy.forward(Request::new(LimitedBody::default()), &client);
        let size = size_of_val(&forwarding);
        assert!(size <= 1_024, "{size} bytes");
    }
}
