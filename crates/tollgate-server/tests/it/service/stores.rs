//! The service over its stores: memory, Redis, and a Redis that is killed.

use serde_json::{Value, json};

use super::{RULES, traefik};
use crate::kit;
use tollgate_testing::servers::RedisServer;

#[test]
fn a_check_that_one_tier_denies_charges_no_other() {
    let redis = RedisServer::start();
    let over_redis = format!("store: {{ redis: {:?}, deadline: 20s }}\n", redis.url());
    for store in ["", &over_redis] {
        let service = kit::service("", &format!("{store}{RULES}"));
        let charge = |cost: u32| {
            service.check(&json!({
                "client": "merchant_123", "method": "POST", "path": "/v1/charges",
                "attributes": { "region": "eu" }, "cost": cost,
            }))
        };
        let left = |check: &Value| -> Vec<(String, u64)> {
            let tiers = check["tiers"].as_array().unwrap().iter();
            tiers
                .map(|tier| {
                    let rule = tier["rule"].as_str().unwrap().to_owned();
                    (rule, tier["remaining"].as_u64().unwrap())
                })
                .collect()
        };
        let first = charge(1);
        assert_eq!(first["allowed"], true, "{first}");
        for _ in 0..3 {
            let denied = charge(1);
            assert_eq!(
                (&denied["allowed"], &denied["rule"]),
                (&json!(false), &json!("charges")),
                "{denied}"
            );
        }
        let look = charge(0);
        assert_eq!(look["source"], "store", "{look}");
        assert_eq!(left(&look), left(&first), "{look}");
        let expected = [
            ("client", 29),
            ("region", 1),
            ("watched", 0),
            ("charges", 0),
        ];
        assert_eq!(
            left(&look),
            expected.map(|(rule, left)| (rule.to_owned(), left))
        );
    }
}

#[test]
fn the_configuration_chooses_whose_clock_counts_in_redis() {
    let redis = RedisServer::start();
    let _ = redis.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    // The tolerance, in microseconds, follows the caller's time.
    for (settings, tolerance) in [
        ("", None),
        (", clock: store", None),
        (", clock: caller", Some("100000")),
        (", clock: caller, clock_tolerance: 250ms", Some("250000")),
    ] {
        let _ = redis.command(&["SLOWLOG", "RESET"]);
        let store = format!(
            "store: {{ redis: {:?}, deadline: 20s{settings} }}",
            redis.url()
        );
        let rules = "rules: [{ id: client, per: [client], limit: \"1/h burst 10\" }]";
        let service = kit::service("", &format!("{store}\n{rules}"));
        let check = service.check(&json!({ "client": "a" }));
        assert_eq!(check["source"], "store", "{check}");
        let calls = redis.command(&["SLOWLOG", "GET", "-1"]);
        assert!(calls.contains("EVAL"), "{calls}");
        for known in ["100000", "250000"] {
            let is_sent = calls.lines().any(|line| line.trim() == known);
            assert_eq!(is_sent, tolerance == Some(known), "{settings:?}: {calls}");
        }
    }
}

#[test]
fn without_redis_decisions_go_on_and_closed_rules_return_503() {
    let redis = RedisServer::start();
    let config = format!(
        "store: {{ redis: \"{}\", deadline: 5s, instances: 1, remembered_denials: 0 }}
rules:
  - {{ id: client, per: [client], limit: \"1/h burst 10\" }}
  - {{ id: pay, match: {{ path: /pay }}, per: [], on_store_failure: closed, limit: \"1/h burst 10\" }}
",
        redis.url()
    );
    let service = kit::service("", &config);
    let first = service.check(&json!({ "client": "a", "path": "/pay" }));
    assert_eq!(
        (&first["allowed"], &first["source"]),
        (&json!(true), &json!("store"))
    );
    drop(redis);
    let allowed = (0..12).filter(|_| {
        let check = service.check(&json!({ "client": "a" }));
        assert_eq!(check["source"], "local", "{check}");
        check["allowed"] == true
    });
    assert_eq!(allowed.count(), 8, "a careful share");
    let closed = service.check(&json!({ "client": "b", "path": "/pay" }));
    assert_eq!(
        (&closed["status"], &closed["reason"]),
        (&json!(503), &json!("closed"))
    );
    let response = traefik(&service, "203.0.113.7", "GET", "/pay", &[]);
    assert_eq!(response.status, 503);
}
