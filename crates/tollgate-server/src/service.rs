//! The decision service: other gateways ask here whether a request may go. One port for JSON, forward-auth and Envoy's protocol.
//!
//! It knows HTTP and gRPC, and nothing of listeners. Whoever may ask is believed: a caller of `/v1/check` or of Envoy's protocol says who
//! is calling *it*, so both need the token where there is one, as does whoever asks about callers. Forward-auth is told no more than a gateway would see, and believes
//! its peer as far as a gateway would.

mod answer;
mod auth;
mod check;
mod explain;
mod metrics;
mod openapi;
mod problem;
mod reading;
mod rls;
mod strict_json;
mod usage;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::routing::{MethodFilter, any, get, on, post};
use http::{HeaderMap, Response};

use crate::bearer::{Bearer, may_be_sent_by_a_page};
use crate::decider::Decider;
use crate::traces::RequestSpan;
pub use metrics::Metrics;
use metrics::{Endpoint, Outcome};
use problem::Problem;
// Envoy's messages and a client, for our own tests and benchmarks.
#[doc(hidden)]
pub use rls::generated as protocol;

/// What can be asked for over HTTP: the method, the path, and what it is for. Forward-auth takes any standard method.
pub const ENDPOINTS: [(&str, &str, &str); 7] = [
    ("POST", "/v1/check", "whether requests may go"),
    ("POST", "/v1/explain", "why a request may go or not"),
    ("POST", "/v1/inspect", "what callers used"),
    ("POST", "/v1/reset", "to forget what callers used"),
    ("GET", "/v1/forward-auth", "for Traefik and Caddy"),
    ("GET", "/v1/auth-request", "for nginx"),
    ("GET", "/openapi.json", "what can be asked, as OpenAPI"),
];

/// What every endpoint has at hand.
struct Shared {
    decider: Decider,
    /// Who asks must say it, if there is one.
    token: Option<Bearer>,
    auth: auth::Auth,
    rls: rls::Rls,
    metrics: Metrics,
}

impl Shared {
    /// The span of a call with these headers, if it is sampled.
    fn span(&self, name: &'static str, headers: &HeaderMap) -> Option<RequestSpan> {
        self.decider.tracer()?.sample(name, headers)
    }

    /// The answer, or what is wrong, counted as what became of this endpoint.
    async fn answered(
        &self,
        endpoint: Endpoint,
        answer: impl Future<Output = Result<Response<Body>, Problem>>,
    ) -> Response<Body> {
        let started = Instant::now();
        let response = answer.await.unwrap_or_else(|problem| problem.response());
        let outcome = Outcome::of_status(response.status().as_u16());
        self.metrics.count(endpoint, outcome);
        self.metrics.took(endpoint, started.elapsed());
        response
    }

    /// Whether one who says this may ask.
    fn admit(&self, headers: &HeaderMap) -> Result<(), Problem> {
        match &self.token {
            Some(token) if token.opens(headers) => Ok(()),
            Some(_) => Err(Problem::unauthorised()),
            None if may_be_sent_by_a_page(headers) => Err(Problem::sent_by_a_page()),
            None => Ok(()),
        }
    }
}

type Service = axum::extract::State<Arc<Shared>>;

/// Everything this service answers.
pub fn router(decider: Decider, config: &tollgate_config::Service, metrics: Metrics) -> Router {
    let shared = Arc::new(Shared {
        auth: auth::Auth::new(&decider, config),
        decider,
        token: config.token.as_ref().map(Bearer::of),
        rls: rls::Rls::new(config.rls.clone()),
        metrics,
    });
    Router::new()
        .route("/v1/check", post(check::check))
        .route("/v1/explain", post(explain::explain))
        .route("/v1/inspect", post(usage::inspect))
        .route("/v1/reset", post(usage::reset))
        .route(
            "/v1/forward-auth",
            on(standard_methods(), auth::forward_auth),
        )
        .route(
            "/v1/auth-request",
            on(standard_methods(), auth::auth_request),
        )
        .route("/openapi.json", get(openapi::document))
        .route(rls::PATH, post(rls::should_rate_limit))
        .route(rls::OTHER_PATHS, any(rls::unknown_method))
        .route_service(rls::HEALTH_PATH, rls::health())
        .method_not_allowed_fallback(problem::method_not_allowed)
        .fallback(problem::not_found)
        .with_state(shared)
}

/// The methods that gateways may ask with, which are those that OpenAPI can name. Most ask with GET; the method of the client's request is in a
/// header.
fn standard_methods() -> MethodFilter {
    MethodFilter::GET
        .or(MethodFilter::PUT)
        .or(MethodFilter::POST)
        .or(MethodFilter::DELETE)
        .or(MethodFilter::OPTIONS)
        .or(MethodFilter::HEAD)
        .or(MethodFilter::PATCH)
        .or(MethodFilter::TRACE)
}
