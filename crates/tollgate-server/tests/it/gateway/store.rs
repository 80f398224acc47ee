//! The gateway over a real Redis that goes away: what callers hear, and what the servers behind do not.

use tollgate_testing::servers::RedisServer;

use crate::served::Upstream;
use crate::serving::{Serving, until};

#[test]
fn a_closed_rule_lets_nothing_through_to_the_server_while_redis_is_away() {
    const ASKED: usize = 20;
    let mut redis = RedisServer::start();
    let upstream = Upstream::start();
    let serving = Serving::by(&format!(
        "
gateway: {{ listen: 127.0.0.1:0, upstreams: [{{ to: \"http://{}\" }}] }}
store: {{ redis: {:?}, deadline: 5s, breaker: {{ open_for: 1s }} }}
log: {{ format: json }}
rules:
  - {{ id: everyone, per: [], limit: \"1/h burst 1000\" }}
  - {{ id: pay, match: {{ path: /pay }}, per: [], on_store_failure: closed, limit: \"1/h burst 1000\" }}
",
        upstream.address,
        redis.url()
    ));
    let pay = || serving.get("gateway", "/pay", &[]);
    assert_eq!((pay().status, upstream.hits()), (200, 1));

    redis.stop();
    for _ in 0..ASKED {
        let closed = pay();
        assert_eq!(closed.status, 503, "{closed:?}");
        for field in [
            "content-type: application/problem+json",
            "retry-after: 1",
            "x-request-id: ",
        ] {
            assert!(closed.head.contains(field), "{field}: {closed:?}");
        }
        let problem = closed.json();
        let kind = problem["type"].as_str().unwrap();
        assert!(kind.ends_with("#temporary-reduced-capacity"), "{problem}");
        assert_eq!(problem["violated-policies"], serde_json::json!(["pay"]));
    }
    assert_eq!(upstream.hits(), 1, "it heard of none");
    // What the closed rule does not apply to goes on.
    assert_eq!(serving.get("gateway", "/", &[]).status, 200);
    assert_eq!(upstream.hits(), 2);

    redis.start_again();
    until("redis to be asked again", pay, |paid| paid.status == 200);
    assert_eq!(upstream.hits(), 3);
}
