//! Forward-auth: a gateway asks about each request before it forwards it, with the request's own headers.
//!
//! Answers are the layer's, with nobody behind it: so who is calling, what a denial says and how a queue is waited in are those
//! of the gateway. A request in a queue waits here, and the gateway with it: so few may at a time that they never occupy
//! all connections.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use bytes::Bytes;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body_util::Empty;
use tollgate::ForwardedPath;
use tollgate_tower::answer::Dialect;
use tollgate_tower::layer::{Decided, KeepDecision, PeerAddr, TollgateService, WaitLimits};
use tollgate_tower::policy::Head;
use tower::{Layer as _, ServiceExt as _};

use super::check::read_uri;
use super::metrics::{Endpoint, Outcome};
use super::problem::Problem;
use super::{Service, Shared};
use crate::decider::Decider;
use crate::traces::Parent;

/// What was to be answered if nginx could say it: it knows 2xx, 401 and 403, and makes 500 of all else.
const STATUS: HeaderName = HeaderName::from_static("x-tollgate-status");

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The layer, and nobody behind it.
pub(super) struct Auth {
    layered: TollgateService<Yes>,
    warned: AtomicBool,
}

impl Auth {
    pub(super) fn new(door: &Decider, config: &tollgate_config::Service) -> Self {
        let max_waiting = config
            .waiting
            .max_waiting_with(config.connections.max_connections);
        let wait_limits = WaitLimits::new(max_waiting, config.waiting.per_address);
        // The gateways that ask forward paths as they came, and preflights too.
        let layer = (door.layer().dialect(Dialect::Http))
            .forwarded(ForwardedPath::Original)
            .charge_preflights(true);
        Self {
            layered: layer.wait_limits(wait_limits).layer(Yes),
            warned: AtomicBool::new(false),
        }
    }
}

/// The headers in which a gateway says what was asked of it.
struct Names {
    /// What asking about a request is called in traces.
    span: &'static str,
    method: HeaderName,
    uri: HeaderName,
    host: HeaderName,
}

const FORWARDED: Names = Names {
    span: "forward-auth",
    method: HeaderName::from_static("x-forwarded-method"),
    uri: HeaderName::from_static("x-forwarded-uri"),
    host: HeaderName::from_static("x-forwarded-host"),
};

const ORIGINAL: Names = Names {
    span: "auth-request",
    method: HeaderName::from_static("x-original-method"),
    uri: HeaderName::from_static("x-original-uri"),
    host: HeaderName::from_static("x-original-host"),
};

/// What cannot be asked about.
enum Unclear {
    /// The gateway is not set up as it should be.
    Setup(String),
    /// The caller's own request is odd.
    Request,
}

/// For Traefik and Caddy: 200 and headers to copy, or the answer to give.
pub(super) async fn forward_auth(State(shared): Service, request: Request) -> Response<Body> {
    let started = Instant::now();
    let response = answer(&shared, request, &FORWARDED).await;
    shared.note(Endpoint::ForwardAuth, response.status(), started);
    response
}

/// For nginx: 200, or 403 with the answer to give in headers.
pub(super) async fn auth_request(State(shared): Service, request: Request) -> Response<Body> {
    let started = Instant::now();
    let mut response = answer(&shared, request, &ORIGINAL).await;
    let status = response.status();
    shared.note(Endpoint::AuthRequest, status, started);
    let is_about_setup = response.extensions().get::<AboutSetup>().is_some();
    if !status.is_success() && !is_about_setup {
        *response.status_mut() = StatusCode::FORBIDDEN;
        let status = HeaderValue::from(status.as_u16());
        response.headers_mut().insert(STATUS, status);
    }
    response
}

/// Marks an answer that is for the operator and not for the caller.
#[derive(Clone, Copy)]
struct AboutSetup;

async fn answer(shared: &Shared, request: Request, names: &Names) -> Response<Body> {
    let (mut parts, _) = request.into_parts();
    match original(&mut parts, names) {
        Ok(()) => {}
        Err(Unclear::Setup(detail)) => {
            let mut response = Problem::bad(detail).response();
            response.extensions_mut().insert(AboutSetup);
            return response;
        }
        Err(Unclear::Request) => {
            return Problem::bad("the request's method, path or host cannot be read").response();
        }
    }
    shared.warn_of_strangers(&parts);
    let mut span = shared.span(names.span, Parent::of(&parts.headers));
    if let Some(span) = &mut span {
        let peer = parts.extensions.get::<PeerAddr>();
        let peer = peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0.ip());
        let head = Head {
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
        };
        span.asked(&parts.method, shared.door.route_of(&head, peer).as_deref());
        parts.extensions.insert(KeepDecision);
    }
    let request = http::Request::from_parts(parts, ());
    let response = match shared.auth.layered.clone().oneshot(request).await {
        Ok(response) => response.map(Body::new),
        Err(never) => match never {},
    };
    if let Some(mut span) = span {
        span.answered(response.status());
        if let Some(decided) = response.extensions().get::<Decided>() {
            span.decided(decided);
        }
    }
    response
}

/// Puts the request that is asked about in the place of the question.
fn original(parts: &mut Parts, names: &Names) -> Result<(), Unclear> {
    let method = single(&parts.headers, &names.method)?;
    let uri = single(&parts.headers, &names.uri)?;
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| Unclear::Request)?;
    let uri = read_uri(uri.as_bytes()).ok_or(Unclear::Request)?;
    if parts.headers.contains_key(&names.host) {
        let host = single(&parts.headers, &names.host)?.clone();
        parts.headers.insert(HOST, host);
    }
    (parts.method, parts.uri) = (method, uri);
    Ok(())
}

fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<&'h HeaderValue, Unclear> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) if !line.is_empty() => Ok(line),
        (Some(_), Some(_)) => Err(Unclear::Setup(format!(
            "the header {name} is there more than once: the gateway has to set it, not to add it"
        ))),
        _ => Err(Unclear::Setup(format!(
            "the header {name} is missing: the gateway has to say what was asked of it"
        ))),
    }
}

impl Shared {
    fn note(&self, endpoint: Endpoint, status: StatusCode, started: Instant) {
        let outcome = Outcome::of_status(status.as_u16());
        self.metrics.count(endpoint, outcome);
        self.metrics.took(endpoint, started.elapsed());
    }

    /// Once: a gateway whose word is not taken has all its callers counted as one.
    fn warn_of_strangers(&self, parts: &Parts) {
        let Some(PeerAddr(peer)) = parts.extensions.get::<PeerAddr>() else {
            return;
        };
        let warned = &self.auth.warned;
        if !parts.headers.contains_key(X_FORWARDED_FOR) || warned.load(Ordering::Relaxed) {
            return;
        }
        if !self.door.policy().identity().trusts(peer.ip()) && !warned.swap(true, Ordering::Relaxed)
        {
            warn(peer);
        }
    }
}

fn warn(peer: &SocketAddr) {
    tracing::warn!(
        peer = %peer.ip(),
        "a gateway that is no trusted proxy asks about requests of others: all its callers count as one, until it is among identity.trusted_proxies"
    );
}

/// Lets everything pass.
#[derive(Clone, Copy)]
struct Yes;

impl tower::Service<http::Request<()>> for Yes {
    type Response = Response<Empty<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<()>) -> Self::Future {
        ready(Ok(Response::new(Empty::new())))
    }
}
