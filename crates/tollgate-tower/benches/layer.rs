//! `make bench-layer`: what our layer adds to a request, beside tower_governor, in one run.
//!
//! An axum handler is called as a tower service in this process, without a network. Every figure is the processor time of this thread per
//! request. The services are called in turns, so that a noisy machine slows all of them.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_precision_loss,
    reason = "a program that measures and prints"
)]

use std::convert::Infallible;
use std::hint::black_box;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get;
use axum::{Router, response::Response};
use http::Request;
use rustix::time::{ClockId, clock_gettime};
use tollgate::{Dimension, Limiter, Rule};
use tollgate_tower::TollgateLayer;
use tower::{Service, util::BoxCloneSyncService};
use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};

const REQUESTS: usize = 20_000;
const AT_ONCE: usize = 16;
const ROUNDS: usize = 25;
/// Clients, each with an address of its own.
const CLIENTS: usize = 10_000;

type Handler = BoxCloneSyncService<Request<Body>, Response, Infallible>;

fn main() {
    let mut services = [
        ("no layer", ready(router())),
        ("tower_governor", governor()),
        ("one rule", ours([rule("address").per([Dimension::Ip])])),
        (
            "three rules",
            ours([
                rule("address").per([Dimension::Ip]),
                rule("route").per([Dimension::Ip, Dimension::Route]),
                rule("everyone"),
            ]),
        ),
    ];
    // For a profiler: `only=one rule`.
    let only = std::env::args().find_map(|arg| arg.strip_prefix("only=").map(str::to_owned));
    if let Some(only) = only {
        let mut services = services.iter_mut();
        let (_, service) = services.find(|(name, _)| *name == only).expect("a service");
        (0..5 * REQUESTS).for_each(|nth| drop(call(service, request(nth * 7_919))));
        return;
    }
    for (_, service) in &mut services {
        let response = call(service, request(0));
        assert!(response.status().is_success());
        time(service);
    }
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        for ((_, service), times) in services.iter_mut().zip(&mut times) {
            times.push(time(service));
        }
    }
    let [bare, governor, one, three] = times.map(median);
    println!(
        "{REQUESTS} requests a round, median of {ROUNDS} rounds in turns, microseconds of processor time a request\n"
    );
    for ((name, _), us) in services.iter().zip([bare, governor, one, three]) {
        println!("{name:16} {us:8.3}  {:+8.3}", us - bare);
    }
    let (ours, theirs) = (one - bare, governor - bare);
    println!(
        "\nlayer: added_us={ours:.2} governor_added_us={theirs:.2} ratio={:.2}",
        theirs / ours
    );
}

fn rule(id: &str) -> Rule {
    Rule::new(id, "1/s burst 1000000".parse().unwrap()).unwrap()
}

fn router() -> Router {
    Router::new().route("/v1/charges/{id}", get(async || "hello"))
}

/// As a server makes it of a router: with all layers applied once, not for each request.
fn ready(router: Router) -> Handler {
    BoxCloneSyncService::new(router.with_state::<()>(()))
}

/// With headers, as ours are.
fn governor() -> Handler {
    let config = GovernorConfigBuilder::default()
        .per_second(1)
        .burst_size(1_000_000)
        .use_headers()
        .finish()
        .unwrap();
    ready(router().layer(GovernorLayer::new(Arc::new(config))))
}

fn ours<const N: usize>(rules: [Rule; N]) -> Handler {
    let limiter = Limiter::in_memory().with_rules(rules).unwrap();
    let layer = TollgateLayer::new(limiter)
        .peer_from(|extensions| Some(extensions.get::<ConnectInfo<SocketAddr>>()?.0));
    ready(router().layer(layer))
}

/// As a browser sends it, from this client.
fn request(client: usize) -> Request<Body> {
    let [.., a, b] = (client % CLIENTS).to_be_bytes();
    let mut request = Request::get("/v1/charges/ch_12345?expand=all")
        .header("host", "api.example.com")
        .header(
            "user-agent",
            "Mozilla/5.0 (X11; Linux x86_64) Firefox/145.0",
        )
        .header("accept", "application/json")
        .header("accept-encoding", "gzip, br")
        .body(Body::empty())
        .unwrap();
    let peer = SocketAddr::from(([203, 0, a, b], 50_000));
    request.extensions_mut().insert(ConnectInfo(peer));
    request
}

/// A handler that waits for nothing is done at the first poll.
#[inline(never)]
fn call(service: &mut Handler, request: Request<Body>) -> Response {
    let mut context = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut context).is_ready());
    match pin!(service.call(request)).poll(&mut context) {
        Poll::Ready(response) => response.unwrap(),
        Poll::Pending => unreachable!("nothing waits"),
    }
}

/// Microseconds of processor time per request. Requests are made a few at a time, so that they are in the processor's cache when they are
/// handled, like those that a server has just read; to make them and to drop the responses is not counted.
fn time(service: &mut Handler) -> f64 {
    let mut spent = 0.0;
    for first in (0..REQUESTS).step_by(AT_ONCE) {
        let requests: [Request<Body>; AT_ONCE] =
            std::array::from_fn(|nth| request((first + nth) * 7_919));
        let start = processor_time();
        let responses = requests.map(|request| call(service, request));
        spent += processor_time() - start;
        black_box(responses);
    }
    spent * 1e6 / REQUESTS as f64
}

fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
