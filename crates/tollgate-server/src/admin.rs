//! The admin interface: liveness, readiness, metrics and status.
//!
//! `/livez` and `/readyz` are open to those that run the program. Everything else needs the token, or is refused to web pages if there
//! is none. Wrong tokens are limited.

mod status;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::IntoResponse as _;
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde_json::json;
use tollgate::{Limit, LocalLimiter};
use tollgate_config::{Config, Secret};
use tollgate_http::server::ExemptAddresses;
use tollgate_tower::layer::PeerAddr;

use crate::access::{Access, AccessError};
use crate::decider::Decider;
use crate::metrics::{self, Format};
use crate::problem::Problem;

pub(crate) use status::{Health, MIN_STORE_SHARE, Stage};

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

/// How many wrong tokens an address may send.
const WRONG_TOKENS: &str = "1/s burst 20";
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Admits requests with access.
///
/// The right token always passes, so operators cannot be locked out. Wrong ones are limited by address, which keeps the log
/// short and slows a misconfigured scraper down; guessing is futile because of the token's length. Requests without a token do not count.
#[derive(Debug)]
struct Guard {
    access: Access,
    wrong: LocalLimiter,
    limit: Option<Limit>,
    refused: Counter,
    logged: Mutex<Option<Instant>>,
}

impl Guard {
    fn new(token: Option<&Secret>) -> Self {
        Self {
            access: Access::new("admin.token", token),
            wrong: LocalLimiter::new(),
            limit: WRONG_TOKENS.parse().ok(),
            refused: Counter::default(),
            logged: Mutex::new(None),
        }
    }

    fn register(&self, registry: &mut Registry) {
        let help = "Requests to the admin interface without the right token";
        registry.register("tollgate_admin_refused", help, self.refused.clone());
    }

    /// The response to a request without access.
    fn refusal(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<Response<Body>> {
        let error = self.access.check(headers).err()?;
        if error != AccessError::WebPage {
            self.refused.inc();
        }
        if error == AccessError::WrongToken
            && let Some(seconds) = self.charge(&peer.map_or_else(String::new, network))
        {
            let problem = Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too many wrong tokens from this address",
            );
            return Some(([(RETRY_AFTER, seconds.to_string())], problem).into_response());
        }
        Some(self.access.problem(error).into_response())
    }

    /// Logs and charges a wrong token. Returns when to retry if there were too many.
    fn charge(&self, address: &str) -> Option<u64> {
        let mut logged = self.logged.lock();
        if logged.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            *logged = Some(Instant::now());
            let refused = self.refused.get();
            tracing::warn!(address, refused, "wrong token for the admin interface");
        }
        drop(logged);
        let decision = self.wrong.check(address, self.limit.as_ref()?, 1);
        let wait = decision.retry_after().unwrap_or(Duration::from_secs(1));
        (!decision.allowed()).then(|| wait.as_secs().max(1))
    }
}

/// The network of an address: a client has all addresses of an IPv6 /64.
fn network(ip: IpAddr) -> String {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use http::header::AUTHORIZATION;

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    fn guard() -> Guard {
        Guard::new(Some(&Secret::new("correct-horse-battery")))
    }

    /// The status of the response to a request without access.
    fn status(guard: &Guard, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<u16> {
        let refused = guard.refusal(peer, headers);
        refused.map(|response| response.status().as_u16())
    }

    #[test]
    fn wrong_tokens_are_limited_by_address_and_the_right_one_passes() {
        let (guard, peer) = (guard(), Some("2001:db8::1".parse().unwrap()));
        let wrong = headers("Bearer wrong-horse-battery");
        let within_limit = (0..50)
            .filter(|_| status(&guard, peer, &wrong) == Some(401))
            .count();
        // Some more if this test takes seconds.
        assert!((20..30).contains(&within_limit), "{within_limit}");
        let neighbour = Some("2001:db8::ffff:1".parse().unwrap());
        assert_eq!(status(&guard, neighbour, &wrong), Some(429));
        let elsewhere = Some([203, 0, 113, 7].into());
        assert_eq!(status(&guard, elsewhere, &wrong), Some(401));
        let right = headers("Bearer correct-horse-battery");
        for address in [peer, neighbour, elsewhere] {
            assert_eq!(status(&guard, address, &right), None);
        }
    }

    #[test]
    fn requests_without_a_token_do_not_count() {
        let (guard, peer) = (guard(), Some([192, 0, 2, 1].into()));
        for none in [HeaderMap::new(), headers("Basic b3BzOm9wcw==")] {
            for _ in 0..100 {
                assert_eq!(status(&guard, peer, &none), Some(401));
            }
        }
        let wrong = headers("Bearer wrong-horse-battery");
        assert_eq!(status(&guard, peer, &wrong), Some(401));
    }

    #[test]
    fn without_a_token_local_requests_have_access() {
        assert_eq!(status(&Guard::new(None), None, &HeaderMap::new()), None);
    }
}
