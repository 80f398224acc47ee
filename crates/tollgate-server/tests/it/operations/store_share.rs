//! Readiness, metrics and log while Redis does not take all decisions, although it has not failed.

use serde_json::{Value, json};
use tollgate_testing::Running;
use tollgate_testing::servers::RedisServer;
use tollgate_testing::wait::until_value;

use crate::kit;

/// A breaker that never opens: each decision waits for Redis by itself.
fn service(redis: &RedisServer, store: &str) -> Running {
    kit::service(
        "",
        &format!(
            "store: {{ redis: {:?}, breaker: {{ failures: 1000 }}, {store} }}
rules: [{{ id: client, per: [client], limit: \"1/h burst 100000\" }}]",
            redis.url()
        ),
    )
}

/// What decided one request.
fn source(service: &Running) -> Value {
    service.check(&json!({ "client": "a" }))["source"].clone()
}

fn store(service: &Running) -> Value {
    let ready = service.get("admin", "/readyz", &[]);
    assert_eq!(ready.status, 200, "limits are enforced: {ready:?}");
    ready.json()["parts"]["store"].clone()
}

#[test]
fn a_low_share_of_redis_shows_in_readiness_metrics_and_log() {
    let redis = RedisServer::start();
    let service = service(&redis, "deadline: 100ms");
    let look = || source(&service);
    until_value("a decision by Redis", look, |source| source == "store");
    redis.pause();
    for _ in 0..4 {
        assert_eq!(source(&service), "local");
    }
    let store = store(&service);
    let share = store["share_last_minute"].as_f64().unwrap();
    assert!(share < 0.99, "{store}");
    assert_eq!(store["ok"], false, "{store}");
    assert_eq!(store["decided_by"], "the store", "{store}");
    service.wait_for_log("Redis missed the deadline for many requests");
    assert!(service.metric("tollgate_store_share") < 0.99);
    assert!(service.metric("tollgate_store_missed_deadlines_total") >= 4.0);
    assert_eq!(service.metric("tollgate_store_breaker_openings_total"), 0.0);
}

#[test]
fn instances_are_counted_or_assumed_while_redis_hangs() {
    let redis = RedisServer::start();
    let first = service(&redis, "deadline: 10s");
    let _second = service(&redis, "deadline: 10s");
    let look = || store(&first);
    until_value("two counted instances", look, |store| {
        store["instances"] == 2 && store["instances_assumed"] == false
    });
    redis.pause();
    let third = service(&redis, "deadline: 100ms");
    let store = store(&third);
    assert_eq!(store["instances"], 10, "{store}");
    assert_eq!(store["instances_assumed"], true, "{store}");
}
