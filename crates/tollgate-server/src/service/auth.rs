//! Forward-auth: a gateway asks about each request before it forwards it, with the request's own headers.
//!
//! The [`Gate`] decides and answers as for a request to the gateway. A request in a queue waits here, and the gateway that asked
//! waits with it, so the number of waiting requests is limited: they never occupy all connections.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use tollgate::ForwardedPath;
use tollgate_tower::answer::Dialect;
use tollgate_tower::gate::{Gate, RequestContext};
use tollgate_tower::layer::{PeerAddr, WaitLimits};

use super::check::read_uri;
use super::metrics::Endpoint;
use super::{ServiceState, State as Service};
use crate::decider::Decider;
use crate::problem::Problem;

/// The status of the response that the client is to receive. nginx understands only 2xx, 401 and 403, and turns everything else
/// into a 500.
const STATUS: HeaderName = HeaderName::from_static("x-tollgate-status");

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

pub(super) struct Auth {
    gate: Arc<Gate>,
    warned: AtomicBool,
}

impl Auth {
    pub(super) fn new(decider: &Decider, config: &tollgate_config::Service) -> Self {
        let connections = config.connections.max_connections;
        let max_waiting = config.waiting.max_waiting_with(connections);
        let wait_limits = WaitLimits::new(max_waiting, config.waiting.per_address);
        // Other gateways forward paths as they came, and preflights too.
        let layer = (decider.layer().dialect(Dialect::Http))
            .forwarded(ForwardedPath::Original)
            .charge_preflights(true);
        Self {
            gate: layer.wait_limits(wait_limits).gate(),
            warned: AtomicBool::new(false),
        }
    }
}

/// The headers by which a gateway describes the client's request.
struct DescribingHeaders {
    /// Name of the span in traces.
    span: &'static str,
    method: HeaderName,
    uri: HeaderName,
    host: HeaderName,
}

const FORWARDED: DescribingHeaders = DescribingHeaders {
    span: "forward-auth",
    method: HeaderName::from_static("x-forwarded-method"),
    uri: HeaderName::from_static("x-forwarded-uri"),
    host: HeaderName::from_static("x-forwarded-host"),
};

const ORIGINAL: DescribingHeaders = DescribingHeaders {
    span: "auth-request",
    method: HeaderName::from_static("x-original-method"),
    uri: HeaderName::from_static("x-original-uri"),
    host: HeaderName::from_static("x-original-host"),
};

/// Why a request cannot be decided on.
enum Unclear {
    /// The gateway is configured incorrectly, so the operator is answered instead of the client.
    Setup(Problem),
    /// The client's request is malformed.
    Request,
}

/// For Traefik and Caddy: 200 with headers to copy, or the response for the client.
pub(super) async fn forward_auth(State(state): Service, request: Request) -> Response<Body> {
    let names = &FORWARDED;
    (state.counted(Endpoint::ForwardAuth, answer(&state, request, names))).await
}

/// For nginx: 200, or 403 with the response for the client in headers.
pub(super) async fn auth_request(State(state): Service, request: Request) -> Response<Body> {
    let mut is_for_client = false;
    let answer = async {
        let answer = answer(&state, request, &ORIGINAL).await;
        is_for_client = answer.is_ok();
        answer
    };
    let mut response = state.counted(Endpoint::AuthRequest, answer).await;
    let status = response.status();
    if !status.is_success() && is_for_client {
        *response.status_mut() = StatusCode::FORBIDDEN;
        let status = HeaderValue::from(status.as_u16());
        response.headers_mut().insert(STATUS, status);
    }
    response
}

/// Decides about the client's request. An error is for the operator.
async fn answer(
    state: &ServiceState,
    request: Request,
    names: &DescribingHeaders,
) -> Result<Response<Body>, Problem> {
    let (mut parts, _) = request.into_parts();
    match original(&mut parts, names) {
        Ok(()) => {}
        Err(Unclear::Setup(problem)) => return Err(problem),
        Err(Unclear::Request) => {
            let detail = "the request's method, path or host cannot be read";
            return Ok(Problem::bad(detail).into_response());
        }
    }
    let peer = (parts.extensions.get::<PeerAddr>())
        .map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0.ip());
    let mut context = RequestContext::new(peer, state.decider.policy());
    let auth = &state.auth;
    auth.warn_of_untrusted_gateway(&context, &parts.headers);
    // The gateway that asks forwards them as they came.
    if let Err(refusal) = context.policy().check_header_names(&parts.headers) {
        return Ok(Problem::bad(refusal.detail()).into_response());
    }
    let span = state.span(names.span, &parts.headers);
    if span.is_some() {
        context.keep_route();
    }
    let response = match auth.gate.admit(&mut parts, &mut context).await {
        Ok(()) => {
            let mut response = Response::new(Body::empty());
            auth.gate.add_headers(&context, response.headers_mut());
            response
        }
        Err(denied) => denied.map(Body::from),
    };
    if let Some(span) = span {
        let (route, status) = (context.route(), Some(response.status()));
        span.finish(&parts.method, route, status, context.decision());
    }
    Ok(response)
}

/// Replaces the gateway's request by the client's.
fn original(parts: &mut Parts, names: &DescribingHeaders) -> Result<(), Unclear> {
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
    let mut values = headers.get_all(name).iter();
    let detail = match (values.next(), values.next()) {
        (Some(value), None) if !value.is_empty() => return Ok(value),
        (Some(_), Some(_)) => {
            format!("there are several {name} headers: the gateway must set it, not add to it")
        }
        _ => {
            format!("the header {name} is missing: the gateway must describe the client's request")
        }
    };
    Err(Unclear::Setup(Problem::bad(detail)))
}

impl Auth {
    /// Warns once that all clients of an untrusted gateway count as one.
    fn warn_of_untrusted_gateway(&self, context: &RequestContext, headers: &HeaderMap) {
        if headers.contains_key(X_FORWARDED_FOR)
            && !self.warned.load(Relaxed)
            && !context.policy().identity().trusts(context.peer())
            && !self.warned.swap(true, Relaxed)
        {
            tracing::warn!(
                peer = %context.peer(),
                "a gateway asks about its clients and is not a trusted proxy, so all its clients count as one: add it to identity.trusted_proxies"
            );
        }
    }
}
