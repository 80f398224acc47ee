//! The layer over a store that is shared: one that is not there, and one that is.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::any;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tollgate::store::{RedisConfig, RedisStore};
use tollgate::{Instances, Limiter, OnFailure, Request, SharedConfig, Source};
use tollgate_tower::TollgateLayer;

use crate::served::{fields, layer, rule, serve};
use tollgate_testing::servers::{RedisServer, RedisWire};

/// Over a store where nobody listens.
fn without_store(on_failure: OnFailure) -> Limiter {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", port.local_addr().unwrap());
    drop(port);
    let config = RedisConfig::default().deadline(Duration::from_millis(50));
    let store = RedisStore::open(&url, config).unwrap();
    let rules = [rule("vault", "1/m burst 10").on_failure(on_failure)];
    let config = SharedConfig::default().instances(Instances::Fixed(1));
    let limiter = Limiter::builder(store).shared(config).build();
    limiter.with_rules(rules).unwrap()
}

#[tokio::test]
async fn a_rule_that_closes_without_its_store_answers_503_and_when_to_come_back() {
    let app = Router::new().route("/", any(|| async { "hello" }));
    let server = serve(app.layer(layer(without_store(OnFailure::Closed)))).await;
    let closed = server.get("/").await;
    assert_eq!(closed.status(), 503);
    assert_eq!(fields(closed.headers(), "retry-after"), ["1"]);
    let problem: Value = serde_json::from_slice(closed.body()).unwrap();
    assert_eq!(
        problem,
        json!({
            "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            "title": "Service temporarily unavailable",
            "status": 503,
            "detail": "The service cannot check its limits at the moment. Try again in 1 second.",
            "violated-policies": ["vault"],
            "retry_after": 1,
            "retry_after_ms": 1000,
        })
    );
    let grpc = [("content-type", "application/grpc")];
    let closed = server.send("POST", "/", &grpc).await;
    assert_eq!(closed.status(), 200);
    assert_eq!(fields(closed.headers(), "grpc-status"), ["14"]);
    assert_eq!(fields(closed.headers(), "grpc-retry-pushback-ms"), ["1000"]);
}

#[tokio::test]
async fn other_rules_go_on_without_their_store() {
    let app = Router::new().route("/", any(|| async { "hello" }));
    let server = serve(app.layer(layer(without_store(OnFailure::Local)))).await;
    let mut passed = 0;
    for _ in 0..12 {
        passed += u32::from(server.get("/").await.status() == 200);
    }
    // Eight tenths of ten.
    assert_eq!(passed, 8);
}

/// Waits until so many places are left, and fails if that takes very long.
async fn until_left(limiter: &Limiter, places: u64) {
    let patience = Instant::now() + Duration::from_secs(30);
    loop {
        let decision = limiter.request(&Request::new()).peek().await;
        assert_eq!(decision.source(), Source::Store);
        if decision.remaining() == Some(places) {
            return;
        }
        assert!(
            Instant::now() < patience,
            "{:?} left, not {places}",
            decision.remaining()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Nobody's turn but the first comes while a test runs.
fn queue_over(redis: &RedisServer, limit: &str) -> Arc<Limiter> {
    // On a busy machine a first answer can take its time.
    let config = RedisConfig::default().deadline(Duration::from_secs(10));
    let store = RedisStore::open(&redis.url(), config).unwrap();
    let limiter = Limiter::new(store);
    Arc::new(limiter.with_rules([rule("queue", limit)]).unwrap())
}

#[tokio::test]
async fn callers_who_hang_up_while_they_wait_leave_their_places_in_the_shared_queue() {
    let redis = RedisServer::start();
    let limiter = queue_over(&redis, "6/h queue 5");
    let handled = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&handled);
    let handler = any(move || {
        count.fetch_add(1, Ordering::SeqCst);
        async { "hello" }
    });
    let layer = TollgateLayer::new(Arc::clone(&limiter)).max_delay(Duration::from_secs(86_400));
    let server = serve(Router::new().route("/", handler).layer(layer)).await;
    assert_eq!(server.get("/").await.status(), 200);
    let mut waiting = Vec::new();
    for places in (0..4).rev() {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let asked = stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
        asked.await.unwrap();
        waiting.push(stream);
        until_left(&limiter, places).await;
    }
    assert_eq!(server.get("/").await.status(), 429);
    // Two of the four hang up, and then all.
    waiting.truncate(2);
    until_left(&limiter, 2).await;
    waiting.clear();
    until_left(&limiter, 4).await;
    assert_eq!(handled.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_denied_request_reports_the_figures_after_its_refund() {
    let redis = RedisServer::start();
    let limiter = queue_over(&redis, "1/min queue 5");
    let layer = TollgateLayer::new(Arc::clone(&limiter)).max_delay(Duration::ZERO);
    let handler = any(|| async { "hello" });
    let server = serve(Router::new().route("/", handler).layer(layer)).await;
    assert_eq!(server.get("/").await.status(), 200);
    for _ in 0..10 {
        let denied = server.get("/").await;
        assert_eq!(denied.status(), 429);
        assert_eq!(denied.headers()["x-ratelimit-remaining"], "4");
    }
    until_left(&limiter, 4).await;
}

/// Over a wire that carries the charge and holds the refund, with a deadline of the store that no client waits for.
#[tokio::test]
async fn a_stuck_refund_delays_no_denial() {
    const STORE_DEADLINE: Duration = Duration::from_secs(60);
    let redis = RedisServer::start();
    let wire = RedisWire::to(&redis);
    let config = RedisConfig::default().deadline(STORE_DEADLINE);
    let store = RedisStore::open(&wire.url(), config).unwrap();
    let shared = SharedConfig::default().instances(Instances::Fixed(1));
    let limiter = Limiter::builder(store).shared(shared).build();
    let rules = || ["one", "two", "three"].map(|id| rule(id, "1/h queue 5"));
    let layer = TollgateLayer::new(limiter.with_rules(rules()).unwrap());
    let app = Router::new().route("/", any(|| async { "hello" }));
    let server = serve(app.layer(layer)).await;
    assert_eq!(server.get("/").await.status(), 200);
    wire.stop_after(1);
    let began = Instant::now();
    assert_eq!(server.get("/").await.status(), 429);
    let took = began.elapsed();
    assert!(took < STORE_DEADLINE / 3, "{took:?}");
    wire.go_on();
    let other = queue_over(&redis, "1/h queue 5");
    other.set_rules(tollgate::RuleSet::new(rules()).unwrap());
    until_left(&other, 4).await;
}
