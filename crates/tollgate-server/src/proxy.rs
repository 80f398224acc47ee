//! The reverse proxy behind the limiter: a service that sends requests on to the servers of their path, and their responses back.
//!
//! A request walks through `head` (the `filter` keeps back what is for this hop alone, and `told` is what the server hears of the caller), `group` (which server), `forward` (over which connection,
//! and what may be sent again), `link` (a connection of HTTP/1.1: `plain`, or else `by_hyper`) or hyper's HTTP/2, and its response through `body`. Beside them:
//! `slots` (how many at a time, and whose), `pool` (idle connections), `connect`, `health` and `checks` (how servers do), `tunnel` (WebSocket), `metrics`.
//!
//! It knows no limits and no listener.

mod body;
mod by_hyper;
mod checks;
mod connect;
mod failure;
pub(crate) mod filter;
mod forward;
mod group;
mod head;
mod health;
mod link;
mod metrics;
mod outgoing;
mod plain;
mod pool;
mod seen;
mod server;
mod slots;
mod stream;
pub(crate) mod tls;
mod tunnel;
mod upload;

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::upgrade::OnUpgrade;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tollgate::PathRules;
use tollgate_tower::answer::Dialect;
use tollgate_tower::layer::PeerAddr;
use tower_service::Service;

use crate::config::{Protocol, Upstream};
use crate::gateway::UpstreamTime;
use body::Source;
use failure::Failure;
use forward::Answer;
use group::Group;
use head::Asker;
use outgoing::Outgoing;
use pool::Pool;
use slots::Claim;
use tunnel::Tunnels;
use upload::Upload;

pub use body::{ProxyBody, ProxyBodyError};
pub use metrics::ProxyMetrics;
pub use tls::TlsError;

/// Finds a client by the peer of its connection and the header fields of its request.
pub type ClientOf = Arc<dyn Fn(IpAddr, &HeaderMap) -> Option<IpAddr> + Send + Sync>;

/// Tells whether a header of this name means something to whoever decides about requests.
pub type ReservedNames = Arc<dyn Fn(&HeaderName) -> bool + Send + Sync>;

/// What a proxy has to know of the door it stands behind.
#[derive(Clone)]
pub struct ProxySettings {
    /// Whether callers come over TLS.
    pub is_tls: bool,
    /// Whether a peer is a proxy whose word counts: what it says of the caller's scheme and host is passed on.
    pub trusts: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
    /// Whose request it is, by the peer and the header fields, where slots at a server are shared between clients; `None` for those that
    /// are not told apart.
    pub client: ClientOf,
    /// Whether to say how long servers took, for a log: [`UpstreamTime`] among the extensions of responses.
    pub tells_time: bool,
    /// Whether servers see a `Via` header of ours.
    pub via: bool,
    /// Whether a header tells who is calling or which rules apply, so that no trailer of a request may be called so.
    pub reserved: ReservedNames,
}

impl Default for ProxySettings {
    /// Without TLS, nobody is trusted, no time is told, and no name is reserved.
    fn default() -> Self {
        Self {
            is_tls: false,
            trusts: Arc::new(|_| false),
            client: Arc::new(|peer, _| Some(peer)),
            tells_time: false,
            via: false,
            reserved: Arc::new(|_| false),
        }
    }
}

impl fmt::Debug for ProxySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxySettings")
            .field("is_tls", &self.is_tls)
            .field("tells_time", &self.tells_time)
            .field("via", &self.via)
            .finish_non_exhaustive()
    }
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
            Self::Address(address) => {
                write!(
                    f,
                    "{address:?} is not the address of a server; expected http://host:port"
                )
            }
            Self::Tls(error) => error.fmt(f),
        }
    }
}

impl Error for ProxyError {}

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
    groups: Vec<Arc<Group>>,
    tunnels: Tunnels,
}

/// A path, and the connections to its servers, in their order.
struct Route {
    group: Arc<Group>,
    pools: Vec<Arc<Pool>>,
}

impl Proxy {
    /// A proxy for these upstreams. It connects to nothing yet.
    ///
    /// # Errors
    /// When the address of a server is none, or certificates cannot be read.
    pub fn new(
        upstreams: &[Upstream],
        settings: ProxySettings,
        metrics: &ProxyMetrics,
    ) -> Result<Self, ProxyError> {
        let mut groups = Vec::new();
        for upstream in upstreams {
            groups.push(Arc::new(Group::new(upstream, metrics)?));
        }
        groups.sort_by_key(|group| std::cmp::Reverse(group.upstream.path.len()));
        let tunnels = Tunnels::new(metrics.tunnels(), metrics.tunnels_idle());
        Ok(Self::of(Arc::new(Shared {
            settings,
            groups,
            tunnels,
        })))
    }

    /// The same proxy with connections of its own, for a thread that serves with a runtime of its own.
    #[must_use]
    pub fn worker(&self) -> Self {
        Self::of(Arc::clone(&self.worker.shared))
    }

    fn of(shared: Arc<Shared>) -> Self {
        let route = |group: &Arc<Group>| {
            let open = &group.metrics.connections;
            let pool = |server| Arc::new(Pool::new(Arc::clone(server), open.clone()));
            Route {
                group: Arc::clone(group),
                pools: group.servers.iter().map(pool).collect(),
            }
        };
        let routes = shared.groups.iter().map(route).collect();
        Self {
            worker: Arc::new(Worker { shared, routes }),
        }
    }

    /// Asks servers how they are, where that is configured, until `stop` is cancelled.
    pub fn watch(&self, stop: &CancellationToken) {
        for group in &self.worker.shared.groups {
            checks::start(group, stop);
        }
    }

    /// Gives upgraded connections so long to end, and then cuts them. All else ends with whoever serves it.
    pub async fn end(&self, within: Duration) {
        self.worker.shared.tunnels.end(within).await;
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes = self.worker.routes.iter();
        f.debug_list()
            .entries(routes.map(|route| &*route.group.upstream.path))
            .finish()
    }
}

/// The response of a [`Proxy`].
pub type ProxyFuture =
    Pin<Box<dyn Future<Output = Result<Response<ProxyBody>, Infallible>> + Send>>;

impl<B> Service<Request<B>> for Proxy
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    type Response = Response<ProxyBody>;
    type Error = Infallible;
    type Future = ProxyFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ProxyFuture {
        let worker = Arc::clone(&self.worker);
        // On its way it is handed on many times, and is the same for all.
        let reserved = &worker.shared.settings.reserved;
        let request = request.map(|body| Upload::of(body, reserved));
        let request = Box::new(Outgoing::new(request));
        Box::pin(worker.serve(request))
    }
}

impl Worker {
    async fn serve(
        self: Arc<Self>,
        mut request: Box<Outgoing>,
    ) -> Result<Response<ProxyBody>, Infallible> {
        let now = Instant::now();
        let asked = request.request();
        let is_connect = *asked.method() == Method::CONNECT;
        let route = self.route(asked.uri().path());
        let Some(route) = route.filter(|_| !is_connect) else {
            let failure = match is_connect {
                true => Failure::Connect,
                false => Failure::NoUpstream,
            };
            let dialect = Dialect::of(asked.method(), asked.headers());
            return Ok(failure.answer(dialect).map(ProxyBody::whole));
        };
        let extensions = request.extensions_mut();
        let peer = extensions.get().map(|PeerAddr(peer)| peer.ip());
        // Only then is it worth finding out.
        let is_contended = route.group.is_contended();
        let mut claim = Claim {
            client: peer
                .filter(|_| is_contended)
                .and_then(|peer| (self.shared.settings.client)(peer, request.request().headers())),
            is_long_lived: is_contended && head::accepts_event_stream(request.request().headers()),
        };
        let (dialect, is_websocket) = request.forward(&self.asker(peer, &route.group));
        let front = match is_websocket {
            true => request.extensions_mut().remove::<OnUpgrade>(),
            false => None,
        };
        claim.is_long_lived |= is_websocket;
        request.extensions_mut().clear();
        let progress = request.request().body().progress();
        let answer = forward::forward(route, request, claim, now).await;
        let at = Instant::now();
        let took = at - now;
        let is_sending = progress.is_some_and(|progress| !progress.has_ended());
        let answered = match answer {
            Ok(answer) if answer.response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                self.upgraded(answer, front, &route.group)
            }
            Ok(answer) => route.answered(answer, is_sending, at),
            Err(failure) => Err(failure),
        };
        let metrics = &route.group.metrics;
        let mut response = match answered {
            Ok(response) => {
                metrics.answered(response.status(), took);
                response
            }
            Err(failure) => {
                metrics.failed(failure);
                failure.answer(dialect).map(ProxyBody::whole)
            }
        };
        if self.shared.settings.tells_time {
            response.extensions_mut().insert(UpstreamTime(took));
        }
        Ok(response)
    }

    /// The route of the longest path that this one begins with, segment by segment, in its normal form.
    fn route(&self, path: &str) -> Option<&Route> {
        if let [only] = &*self.routes
            && only.group.upstream.path == "/"
        {
            return Some(only);
        }
        let rules = PathRules::permissive();
        let normal = rules.normalise(path);
        let path = normal.as_ref().map_or(path, |normal| normal.as_str());
        self.routes.iter().find(|route| {
            let beginning = route.group.upstream.path.trim_end_matches('/');
            let rest = path.strip_prefix(beginning);
            rest.is_some_and(|rest| {
                beginning.is_empty() || rest.is_empty() || rest.starts_with('/')
            })
        })
    }

    fn asker(&self, peer: Option<IpAddr>, group: &Group) -> Asker<'_> {
        let settings = &self.shared.settings;
        Asker {
            peer,
            trusts: &*settings.trusts,
            is_tls: settings.is_tls,
            may_upgrade: group.upstream.protocol == Protocol::Http1,
            says_via: settings.via,
        }
    }

    /// A server that agreed to a WebSocket, or to something that nobody asked for.
    fn upgraded(
        &self,
        answer: Answer<'_>,
        front: Option<OnUpgrade>,
        group: &Group,
    ) -> Result<Response<ProxyBody>, Failure> {
        let mut response = answer.response;
        let (Some(front), Some(link)) = (front, answer.link) else {
            return Err(Failure::Garbled);
        };
        group.succeeded(&answer.pool.server);
        let patience = group.upstream.tunnel_timeout;
        let tunnel = (self.shared.tunnels).start(front, *link, answer.slot, patience);
        response.extensions_mut().insert(tunnel);
        if !filter::remove_hop_by_hop(response.headers_mut()) {
            return Err(Failure::Garbled);
        }
        head::add_upgrade(response.headers_mut());
        *response.version_mut() = Version::HTTP_11;
        Ok(response.map(|_| ProxyBody::whole(Bytes::new())))
    }
}

impl Route {
    /// What a server answered just now, for the caller.
    fn answered(
        &self,
        mut answer: Answer<'_>,
        is_sending: bool,
        now: Instant,
    ) -> Result<Response<ProxyBody>, Failure> {
        let group = &self.group;
        if !filter::remove_hop_by_hop(answer.response.headers_mut()) {
            let failure = Failure::Garbled;
            group.failed(&answer.pool.server, &failure.to_string(), "lengths differ");
            return Err(failure);
        }
        let status = answer.response.status();
        match status.as_u16() {
            502..=504 => group.failed(&answer.pool.server, "status", status.as_str()),
            _ => group.succeeded(&answer.pool.server),
        }
        if head::is_event_stream(answer.response.headers()) && !answer.slot.become_long_lived() {
            return Err(Failure::Busy);
        }
        let link = match (answer.link, is_sending) {
            // The caller still sends, and the server answers already: both go on, whether or not the other side waits.
            (Some(link), true) => {
                link.detach();
                None
            }
            (link, _) => link,
        };
        let source = Source {
            link,
            pool: answer.pool,
            slot: answer.slot,
            idle_timeout: group.upstream.idle_timeout,
            cut: &group.metrics.cut,
        };
        let (mut parts, received) = answer.response.into_parts();
        parts.version = Version::HTTP_11;
        let body = ProxyBody::of(received, source, now);
        Ok(Response::from_parts(parts, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is made for each request. What is larger takes a slow way through the allocator, and longer to be put there.
    #[test]
    fn a_request_under_way_is_small() {
        let metrics = ProxyMetrics::new(&mut prometheus_client::registry::Registry::default());
        let proxy = Proxy::new(&[], ProxySettings::default(), &metrics).unwrap();
        let request = Box::new(Outgoing::new(Request::new(Upload::Nothing)));
        let under_way = size_of_val(&proxy.worker.serve(request));
        assert!(under_way <= 600, "{under_way} bytes");
    }
}
