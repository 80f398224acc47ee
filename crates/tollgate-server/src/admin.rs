//! The admin interface: liveness, readiness, metrics and status.
//!
//! `/livez` and `/readyz` are open to those that run the program. Everything else needs the token, or is refused to web pages if there
//! is none.

mod guard;
mod status;

pub(crate) use status::{Health, MIN_STORE_SHARE, Stage};

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::IntoResponse;
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use prometheus_client::registry::Registry;
use serde_json::json;
use tollgate_config::{Config, Secret};
use tollgate_http::server::ExemptAddresses;
use tollgate_tower::layer::PeerAddr;

use crate::decider::Decider;
use crate::metrics::{self, Format};
use crate::problem::Problem;
use guard::Guard;

/// The admin interface. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    health: Arc<Health>,
    guard: Arc<Guard>,
    program: Arc<OnceLock<Program>>,
}

/// What the interface reports on, once rules are in force.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) decider: Decider,
    pub(crate) registry: Registry,
    pub(crate) config: Arc<Config>,
    pub(crate) listens: Vec<(&'static str, SocketAddr)>,
}

impl Admin {
    /// An interface with this token. Until it is [`open`](Self::open), it reports that the program is not ready.
    pub(crate) fn new(token: Option<&Secret>, health: Arc<Health>) -> Self {
        Self {
            health,
            guard: Arc::new(Guard::new(token)),
            program: Arc::default(),
        }
    }

    /// Reports on this program from now on.
    pub(crate) fn open(&self, mut program: Program) {
        self.guard.register(&mut program.registry);
        // It is only set once.
        let _ = self.program.set(program);
    }

    /// Addresses without a limit on connections: trusted proxies, once rules are in force.
    pub(crate) fn exempt_addresses(&self) -> ExemptAddresses {
        let program = Arc::clone(&self.program);
        Arc::new(move |ip| {
            let program = program.get();
            program.is_some_and(|program| program.decider.policy().identity().trusts(ip))
        })
    }

    pub(crate) fn router(&self) -> Router {
        let guarded = Router::new()
            .route("/metrics", get(get_metrics))
            .route("/v1/top", get(get_top))
            .route("/v1/status", get(get_status))
            .route_layer(from_fn_with_state(self.clone(), check_access));
        Router::new()
            .route("/livez", get(|| async { text("text/plain", "alive\n") }))
            .route("/readyz", get(get_ready))
            .merge(guarded)
            .fallback(not_found)
            .method_not_allowed_fallback(method_not_allowed)
            .layer(map_response(no_store))
            .with_state(self.clone())
    }

    fn program(&self) -> Result<&Program, Problem> {
        let not_ready =
            || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no rules are in force yet");
        self.program.get().ok_or_else(not_ready)
    }
}

async fn get_ready(State(admin): State<Admin>) -> Response<Body> {
    let (is_ready, report) = admin.health.report(admin.program.get());
    let mut response = text("application/json", format!("{report:#}\n"));
    if !is_ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

async fn get_metrics(
    State(admin): State<Admin>,
    headers: HeaderMap,
) -> Result<Response<Body>, Problem> {
    let format = Format::accepted(&headers);
    let metrics = metrics::text(&admin.program()?.registry, format);
    Ok(text(format.content_type(), metrics))
}

async fn get_top(State(admin): State<Admin>) -> Result<Response<Body>, Problem> {
    let top = json!(admin.program()?.decider.top_denied().report(usize::MAX));
    Ok(text("application/json", format!("{top:#}\n")))
}

async fn get_status(State(admin): State<Admin>) -> Result<Response<Body>, Problem> {
    let status = admin.health.status(admin.program()?);
    Ok(text("application/json", format!("{status:#}\n")))
}

async fn check_access(
    State(admin): State<Admin>,
    request: Request<Body>,
    next: Next,
) -> Response<Body> {
    let peer = request.extensions().get::<PeerAddr>();
    let peer = peer.map(|peer| peer.0.ip());
    match admin.guard.refusal(peer, request.headers()) {
        None => next.run(request).await,
        Some(response) => response,
    }
}

async fn not_found() -> Problem {
    let paths = "there are /livez, /readyz, /metrics, /v1/top and /v1/status";
    Problem::new(StatusCode::NOT_FOUND, paths)
}

async fn method_not_allowed() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "the only method is GET")
}

/// The responses change from moment to moment.
async fn no_store(mut response: Response<Body>) -> Response<Body> {
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, no_store);
    response
}

fn text(content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    ([(CONTENT_TYPE, content_type)], body.into()).into_response()
}
