//! How an operator learns that Redis does not take all decisions, although it has not failed.

use serde_json::Value;
use tollgate_testing::servers::RedisServer;

use crate::served;
use crate::serving::{Serving, until};

/// A breaker that never opens: each decision waits for Redis by itself.
fn serving(redis: &RedisServer, settings: &str) -> Serving {
    Serving::by(&format!(
        "
admin: {{ listen: 127.0.0.1:0 }}
service: {{ listen: 127.0.0.1:0 }}
store: {{ redis: {:?}, breaker: {{ failures: 1000 }}, {settings} }}
log: {{ format: json }}
rules: [{{ id: client, per: [client], limit: \"1/h burst 100000\" }}]
",
        redis.url()
    ))
}

fn source(serving: &Serving) -> String {
    let service = serving.address("service");
    let reply = served::ask(service, "POST", "/v1/check", "", "{\"client\":\"a\"}");
    reply.json()["source"].as_str().unwrap().to_owned()
}

fn store(serving: &Serving) -> Value {
    let ready = serving.get("admin", "/readyz", &[]);
    assert_eq!(ready.status, 200, "limits are enforced: {ready:?}");
    ready.json()["parts"]["store"].clone()
}

#[test]
fn a_low_share_of_redis_shows_in_readiness_metrics_and_log() {
    let redis = RedisServer::start();
    let serving = serving(&redis, "deadline: 100ms");
    until(
        "redis to decide",
        || source(&serving),
        |source| source == "store",
    );
    redis.pause();
    for _ in 0..4 {
        assert_eq!(source(&serving), "local");
    }
    let store = store(&serving);
    let share = store["share_last_minute"].as_f64().unwrap();
    assert!(share < 0.99, "{store}");
    assert_eq!(
        (&store["ok"], &store["decided_by"]),
        (&false.into(), &"the store".into())
    );
    serving.wait_for("Redis missed the deadline for many requests");
    assert!(serving.metric("tollgate_store_share") < 0.99);
    assert!(serving.metric("tollgate_store_missed_deadlines_total") >= 4.0);
    assert_eq!(serving.metric("tollgate_store_breaker_openings_total"), 0.0);
}

#[test]
fn instances_are_counted_or_assumed_while_redis_hangs() {
    let redis = RedisServer::start();
    let first = serving(&redis, "deadline: 10s");
    let _second = serving(&redis, "deadline: 10s");
    until(
        "both to be counted",
        || store(&first),
        |store| store["instances"] == 2 && store["instances_assumed"] == false,
    );
    redis.pause();
    let third = serving(&redis, "deadline: 100ms");
    let store = store(&third);
    assert_eq!(
        (&store["instances"], &store["instances_assumed"]),
        (&10.into(), &true.into())
    );
}
