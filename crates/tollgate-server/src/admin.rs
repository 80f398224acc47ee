//! The operators' door: whether the program lives and is ready, its metrics, and what goes on in it.
//!
//! `/livez` and `/readyz` are open, as whoever runs the program asks them. Everything else may reveal something, and needs the token if there is
//! one; if not, whatever a page in a browser may have sent is refused.

mod health;
mod status;
mod token;

pub(crate) use health::LEAST_SHARE;
pub use health::{Health, Stage};

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tollgate_config::{Config, Secret};
use tollgate_http::server::ExemptAddresses;
use tollgate_tower::answer::PROBLEM_JSON;
use tollgate_tower::layer::PeerAddr;

use crate::bearer::SENT_BY_A_PAGE;
use crate::decider::Decider;
use crate::metrics;
use crate::metrics::Format;
use status::status;
use token::{Guard, Refusal};

/// What the operators' door shows. A clone shows the same.
#[derive(Clone, Debug)]
pub struct Admin {
    health: Arc<Health>,
    guard: Arc<Guard>,
    inside: Arc<OnceLock<Inside>>,
}

/// What there is to show once rules are in force.
#[derive(Debug)]
pub struct Inside {
    /// Where decisions are taken.
    pub decider: Decider,
    /// What is counted.
    pub registry: Registry,
    /// What the program was started with.
    pub config: Arc<Config>,
    /// The names of all that listens, and where.
    pub listens: Vec<(&'static str, SocketAddr)>,
}

impl Admin {
    /// A door for who has this token, or for everybody who can connect. It says that nothing is ready until it is told what to show.
    #[must_use]
    pub fn new(token: Option<&Secret>, health: Arc<Health>) -> Self {
        Self {
            health,
            guard: Arc::new(Guard::new(token)),
            inside: Arc::default(),
        }
    }

    /// Rules are in force: this is to be shown.
    pub fn show(&self, mut inside: Inside) {
        self.guard.count_in(&mut inside.registry);
        // Only the first counts, and there is no other.
        let _ = self.inside.set(inside);
    }

    /// Addresses of which any number of connections is accepted: trusted proxies, once rules are in force.
    pub(crate) fn exempt_addresses(&self) -> ExemptAddresses {
        let inside = Arc::clone(&self.inside);
        Arc::new(move |ip| {
            let inside = inside.get();
            inside.is_some_and(|inside| inside.decider.policy().identity().trusts(ip))
        })
    }

    /// The door as a service.
    pub fn router(&self) -> Router {
        let guarded = Router::new()
            .route("/metrics", get(metrics))
            .route("/v1/top", get(top))
            .route("/v1/status", get(say_status))
            .route_layer(from_fn_with_state(self.clone(), guard));
        Router::new()
            .route("/livez", get(live))
            .route("/readyz", get(ready))
            .merge(guarded)
            .fallback(nothing)
            .method_not_allowed_fallback(only_get)
            .with_state(self.clone())
    }
}

async fn live() -> Response<Body> {
    answer(StatusCode::OK, "text/plain", "alive\n")
}

async fn ready(State(admin): State<Admin>) -> Response<Body> {
    let (is_ready, report) = admin.health.report(admin.inside.get());
    let status = match is_ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    as_json(status, &report)
}

async fn metrics(State(admin): State<Admin>, headers: HeaderMap) -> Response<Body> {
    let format = Format::accepted(&headers);
    match admin.inside.get() {
        Some(inside) => answer(
            StatusCode::OK,
            format.content_type(),
            metrics::text(&inside.registry, format),
        ),
        None => not_yet(),
    }
}

async fn top(State(admin): State<Admin>) -> Response<Body> {
    match admin.inside.get() {
        Some(inside) => as_json(
            StatusCode::OK,
            &json!(inside.decider.top().most(usize::MAX)),
        ),
        None => not_yet(),
    }
}

async fn say_status(State(admin): State<Admin>) -> Response<Body> {
    match admin.inside.get() {
        Some(inside) => as_json(StatusCode::OK, &status(&admin.health, inside)),
        None => not_yet(),
    }
}

/// Lets in who has the token.
async fn guard(State(admin): State<Admin>, request: Request<Body>, next: Next) -> Response<Body> {
    let peer = request
        .extensions()
        .get::<PeerAddr>()
        .map(|peer| peer.0.ip());
    match admin.guard.admit(peer, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(Refusal::Token) => {
            let mut refusal = problem(
                StatusCode::UNAUTHORIZED,
                "send the token of the configuration as Authorization: Bearer TOKEN",
            );
            let realm = HeaderValue::from_static("Bearer realm=\"tollgate\"");
            refusal.headers_mut().insert(WWW_AUTHENTICATE, realm);
            refusal
        }
        Err(Refusal::SentByAPage) => problem(
            StatusCode::FORBIDDEN,
            &format!("admin.token {SENT_BY_A_PAGE}"),
        ),
        Err(Refusal::TooMany { seconds }) => {
            let mut refusal = problem(
                StatusCode::TOO_MANY_REQUESTS,
                "too many wrong tokens from this address",
            );
            refusal.headers_mut().insert(RETRY_AFTER, seconds.into());
            refusal
        }
    }
}

async fn nothing() -> Response<Body> {
    problem(
        StatusCode::NOT_FOUND,
        "there are /livez, /readyz, /metrics, /v1/top and /v1/status",
    )
}

async fn only_get() -> Response<Body> {
    problem(
        StatusCode::METHOD_NOT_ALLOWED,
        "here everything is read with GET",
    )
}

fn not_yet() -> Response<Body> {
    problem(StatusCode::SERVICE_UNAVAILABLE, "no rules are in force yet")
}

fn problem(status: StatusCode, detail: &str) -> Response<Body> {
    let title = status.canonical_reason().unwrap_or_default();
    let body = json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail });
    answer(status, PROBLEM_JSON, body.to_string())
}

fn as_json(status: StatusCode, body: &Value) -> Response<Body> {
    answer(status, "application/json", format!("{body:#}\n"))
}

fn answer(status: StatusCode, form: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(form));
    // What is true now may not be so in a moment.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
