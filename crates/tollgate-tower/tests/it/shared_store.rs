//! The layer over a store that is shared: one that is not there, and one that is.

use std::net::TcpListener;
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use serde_json::{Value, json};
use tollgate::store::{RedisConfig, RedisStore};
use tollgate::{Limiter, OnFailure, SharedConfig};

use crate::served::{fields, layer, rule, serve};

/// Over a store where nobody listens.
fn without_store(on_failure: OnFailure) -> Limiter {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", port.local_addr().unwrap());
    drop(port);
    let config = RedisConfig {
        deadline: Duration::from_millis(50),
        ..RedisConfig::default()
    };
    let store = RedisStore::open(&url, config).unwrap();
    let rules = [rule("vault", "1/m burst 10").on_failure(on_failure)];
    let limiter = Limiter::over(store, SharedConfig::default());
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
