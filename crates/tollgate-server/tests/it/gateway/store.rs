//! The gateway while its Redis is unreachable.

use serde_json::json;
use tollgate_testing::servers::RedisServer;
use tollgate_testing::wait::until;

use crate::kit;

#[test]
fn a_closed_rule_denies_while_redis_is_unreachable() {
    const REQUESTS: usize = 20;
    let mut redis = RedisServer::start();
    let rest = format!(
        "
store: {{ redis: {:?}, deadline: 5s, breaker: {{ open_for: 1s }} }}
rules:
  - {{ id: everyone, per: [], limit: \"1/h burst 1000\" }}
  - {{ id: pay, match: {{ path: /pay }}, per: [], on_store_failure: closed, limit: \"1/h burst 1000\" }}
",
        redis.url()
    );
    let gateway = kit::gateway("", &rest);
    let get = |path: &str| gateway.running.get("gateway", path, &[]);
    assert_eq!((get("/pay").status, gateway.upstream.hits()), (200, 1));

    redis.kill();
    for _ in 0..REQUESTS {
        let denied = get("/pay");
        assert_eq!(denied.status, 503, "{denied:?}");
        assert_eq!(
            (denied.header("content-type"), denied.header("retry-after")),
            (Some("application/problem+json"), Some("1"))
        );
        assert!(denied.header("x-request-id").is_some(), "{denied:?}");
        let problem = denied.json();
        let kind = problem["type"].as_str().unwrap();
        assert!(kind.ends_with("#temporary-reduced-capacity"), "{problem}");
        assert_eq!(problem["violated-policies"], json!(["pay"]));
    }
    assert_eq!(gateway.upstream.hits(), 1, "none reached the upstream");
    // Requests that the closed rule does not match are served.
    assert_eq!(get("/").status, 200);
    assert_eq!(gateway.upstream.hits(), 2);

    redis.restart();
    until("redis to be used again", || get("/pay").status == 200);
    assert_eq!(gateway.upstream.hits(), 3);
}
