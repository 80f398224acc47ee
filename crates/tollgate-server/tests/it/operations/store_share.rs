//! Readiness, metrics and log while Redis does not take all decisions, although it has not failed.

use serde_json::{Value, json};
use tollgate_testing::servers::RedisServer;
use tollgate_testing::wait::until_value;
use tollgate_testing::{Running, Upstream};

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

/// At the gateway, and for a proxy that asks by forward-auth.
#[test]
fn a_response_shows_where_its_decision_came_from() {
    let (redis, upstream) = (RedisServer::start(), Upstream::start());
    let running = kit::serve(&format!(
        "
gateway: {{ listen: 127.0.0.1:0, upstreams: [{{ path: /, to: [{:?}] }}] }}
service: {{ listen: 127.0.0.1:0 }}
admin: {{ listen: 127.0.0.1:0 }}
answers: {{ headers: [source] }}
store: {{ redis: {:?}, deadline: 100ms }}
log: {{ format: json }}
rules: [{{ id: everyone, per: [], limit: \"1/h burst 100000\" }}]
",
        upstream.url(),
        redis.url()
    ));
    let sources = || {
        let forwarded = [
            "x-forwarded-method: GET",
            "x-forwarded-uri: /",
            "x-forwarded-host: a",
        ];
        [
            running.get("gateway", "/", &[]),
            running.get("service", "/v1/forward-auth", &forwarded),
        ]
        .map(|response| response.header("x-ratelimit-source").map(str::to_owned))
    };
    let each = |word: &str| [Some(word.to_owned()), Some(word.to_owned())];
    until_value("decisions by Redis", sources, |found| {
        *found == each("store")
    });
    redis.pause();
    assert_eq!(sources(), each("local"));
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
