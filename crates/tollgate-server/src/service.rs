//! The decision service: other gateways ask it whether to admit a request. One port for JSON, forward-auth and Envoy's protocol.
//!
//! Clients of `/v1/check` and Envoy's protocol name the client of the request, and clients of `/v1/explain`, `/v1/inspect` and `/v1/reset`
//! learn or change what others have used, so these need the token if there is one. Forward-auth reveals no more than a gateway would, and trusts
//! its peer as far as a gateway would.

mod answer;
mod auth;
mod check;
mod inspection;
mod metrics;
mod reading;
mod rls;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use axum::routing::{MethodFilter, any, get, on, post};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use serde::Serialize;
use tollgate_config::text::escaped;

use crate::access::Access;
use crate::decider::Decider;
use crate::problem::Problem;
use crate::traces::RequestSpan;
pub use metrics::Metrics;
use metrics::{Endpoint, Outcome};
// Envoy's messages and a client, for tests and benchmarks.
#[doc(hidden)]
pub use rls::generated as protocol;

/// The HTTP endpoints: method, path and purpose. Forward-auth accepts any standard method.
pub const ENDPOINTS: [(&str, &str, &str); 7] = [
    ("POST", "/v1/check", "whether to admit requests"),
    ("POST", "/v1/explain", "why a request is admitted or not"),
    ("POST", "/v1/inspect", "what clients have used"),
    ("POST", "/v1/reset", "to forget what clients have used"),
    ("GET", "/v1/forward-auth", "for Traefik and Caddy"),
    ("GET", "/v1/auth-request", "for nginx"),
    ("GET", "/openapi.json", "this API, as OpenAPI"),
];

/// Kept by hand; a test compares it with the responses.
const OPENAPI: &str = include_str!("service/openapi.json");

/// What all endpoints share.
struct ServiceState {
    decider: Decider,
    access: Access,
    auth: auth::Auth,
    rls: rls::Rls,
    metrics: Metrics,
}

impl ServiceState {
    /// The span of a call with these headers, if it is sampled.
    fn span(&self, name: &'static str, headers: &HeaderMap) -> Option<RequestSpan> {
        self.decider.tracer()?.sample(name, headers)
    }

    fn check_access(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let checked = self.access.check(headers);
        checked.map_err(|error| self.access.problem(error))
    }

    /// The response of an endpoint, counted by its status.
    async fn counted(
        &self,
        endpoint: Endpoint,
        response: impl Future<Output = Result<Response<Body>, Problem>>,
    ) -> Response<Body> {
        let started = Instant::now();
        let response = response.await.into_response();
        let outcome = Outcome::of_status(response.status().as_u16());
        self.metrics.count(endpoint, outcome);
        self.metrics.took(endpoint, started.elapsed());
        response
    }
}

type State = axum::extract::State<Arc<ServiceState>>;

/// The service as a router.
pub fn router(decider: Decider, config: &tollgate_config::Service, metrics: Metrics) -> Router {
    let state = Arc::new(ServiceState {
        auth: auth::Auth::new(&decider, config),
        decider,
        access: Access::new("service.token", config.token.as_ref()),
        rls: rls::Rls::new(config.rls.clone()),
        metrics,
    });
    // Most gateways use GET. The method of the client's request is in a header.
    let any_method = MethodFilter::GET
        .or(MethodFilter::PUT)
        .or(MethodFilter::POST)
        .or(MethodFilter::DELETE)
        .or(MethodFilter::OPTIONS)
        .or(MethodFilter::HEAD)
        .or(MethodFilter::PATCH)
        .or(MethodFilter::TRACE);
    Router::new()
        .route("/v1/check", post(check::check))
        .route("/v1/explain", post(inspection::explain))
        .route("/v1/inspect", post(inspection::inspect))
        .route("/v1/reset", post(inspection::reset))
        .route("/v1/forward-auth", on(any_method, auth::forward_auth))
        .route("/v1/auth-request", on(any_method, auth::auth_request))
        .route("/openapi.json", get(|| async { json_text(OPENAPI) }))
        .route(rls::PATH, post(rls::should_rate_limit))
        .route(rls::OTHER_PATHS, any(rls::unknown_method))
        .route_service(rls::HEALTH_PATH, rls::health())
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .with_state(state)
}

async fn not_found(uri: Uri) -> Problem {
    let all = ENDPOINTS.map(|(method, path, purpose)| format!("{method} {path} ({purpose})"));
    let (path, all) = (escaped(uri.path(), 100), all.join(", "));
    let detail = format!(
        "there is no {path} here; there is {all}, and gRPC: envoy.service.ratelimit.v3.RateLimitService and grpc.health.v1.Health"
    );
    Problem::new(StatusCode::NOT_FOUND, detail)
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let known = ENDPOINTS.iter().find(|(_, path, _)| *path == uri.path());
    let right = known.map_or("POST", |(method, _, _)| method);
    let (path, method) = (escaped(uri.path(), 100), escaped(method.as_str(), 20));
    let detail = format!("the method of {path} is {right}, not {method}");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

fn json_response(body: &impl Serialize) -> Response<Body> {
    json_text(serde_json::to_vec(body).unwrap_or_default())
}

fn json_text(body: impl Into<Body>) -> Response<Body> {
    let body: Body = body.into();
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}
