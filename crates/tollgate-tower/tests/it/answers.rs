//! From a decision to fields, bodies and statuses; and what becomes of fields that are there already.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use serde_json::{Value, json};
use tollgate::store::{MemoryConfig, MemoryStore};
use tollgate::{Clock, Decision, LocalLimiter, ManualClock, Mode, Request, Rule};
use tollgate_tower::answer::{Answers, Denial, Dialect, HeaderFamilies, Reason, add_shadows};
use tollgate_tower::policy::Refusal;

use crate::served::{NOW, fields, hand, rule};
use crate::support::headers;

fn local(hand: &ManualClock, rules: impl IntoIterator<Item = Rule>) -> LocalLimiter {
    let config = MemoryConfig::default().clock(Clock::from(hand));
    LocalLimiter::with_store(MemoryStore::with_config(config))
        .with_rules(rules)
        .unwrap()
}

/// What the last of `times` requests of this cost hears.
fn decided(rules: impl IntoIterator<Item = Rule>, cost: u64, times: u32) -> Decision {
    let limiter = local(&hand(), rules);
    let request = Request::new().cost(cost);
    for _ in 1..times {
        let _ = limiter.decide(&request);
    }
    limiter.decide(&request)
}

fn added(decision: &Decision, lines: &[(&str, &str)]) -> HeaderMap {
    let mut map = headers(lines);
    HeaderFamilies::default().add(decision, &mut map);
    map
}

fn body(response: &Response<Bytes>) -> Value {
    serde_json::from_slice(response.body()).unwrap()
}

#[test]
fn an_allowed_request_hears_its_limits_in_both_families() {
    let rules = [
        rule("client", "10/s burst 50"),
        rule("minute", "600 per 1m fixed_window"),
    ];
    let map = added(&decided(rules, 3, 1), &[]);
    assert_eq!(fields(&map, "x-ratelimit-limit"), ["50"]);
    assert_eq!(fields(&map, "x-ratelimit-remaining"), ["47"]);
    // Three tokens take 0.3 seconds; the second is rounded up.
    assert_eq!(fields(&map, "x-ratelimit-reset"), [(NOW + 1).to_string()]);
    assert_eq!(
        fields(&map, "ratelimit-policy"),
        [r#""client";q=50;w=5, "minute";q=600;w=60"#]
    );
    // The minute began 20 seconds ago.
    assert_eq!(
        fields(&map, "ratelimit"),
        [r#""client";r=47;t=1, "minute";r=597;t=40"#]
    );
    assert_eq!(map.len(), 5, "{map:?}");
}

#[test]
fn the_source_is_sent_where_it_is_chosen() {
    let decision = decided([rule("client", "1/m burst 1")], 1, 2);
    let families = HeaderFamilies {
        source: true,
        ..HeaderFamilies::NONE
    };
    let mut map = HeaderMap::new();
    map.insert("x-ratelimit-source", "forged".parse().unwrap());
    families.add(&decision, &mut map);
    assert_eq!(fields(&map, "x-ratelimit-source"), ["store"]);
    assert_eq!(map.len(), 2, "and Retry-After: {map:?}");
    assert!(!HeaderFamilies::default().source);
}

#[test]
fn families_are_sent_as_chosen() {
    let decision = decided([rule("client", "1/m burst 1")], 1, 2);
    let sent = |legacy, standard, retry_after| {
        let families = HeaderFamilies {
            legacy,
            standard,
            retry_after,
            source: false,
        };
        let mut map = HeaderMap::new();
        families.add(&decision, &mut map);
        let denial = Denial::of(&decision).unwrap();
        let response = Answers::new(families).denied(&denial, Dialect::Http);
        for name in map.keys() {
            assert!(response.headers().contains_key(name), "{name}");
        }
        assert_eq!(response.headers().len(), map.len() + 1, "and Content-Type");
        let mut names: Vec<String> = map.keys().map(ToString::to_string).collect();
        names.sort();
        names.join(" ")
    };
    let legacy = "x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset";
    assert_eq!(sent(true, false, true), format!("retry-after {legacy}"));
    assert_eq!(sent(true, false, false), legacy);
    assert_eq!(
        sent(false, true, true),
        "ratelimit ratelimit-policy retry-after"
    );
    assert_eq!(sent(false, false, true), "retry-after");
    assert_eq!(sent(false, false, false), "");
}

#[test]
fn no_rule_says_nothing() {
    assert!(added(&decided([], 1, 1), &[]).is_empty());
}

#[test]
fn retry_after_is_rounded_up_and_never_zero() {
    // A token comes back after 1 ms, 1 s, 1.5 s.
    for (limit, seconds, ms) in [
        ("1000/s burst 1", "1", 1),
        ("1/s burst 1", "1", 1_000),
        ("40/m burst 1", "2", 1_500),
    ] {
        let decision = decided([rule("client", limit)], 1, 2);
        let map = added(&decision, &[]);
        assert_eq!(fields(&map, "retry-after"), [seconds], "{limit}");
        let denial = Denial::of(&decision).unwrap();
        assert_eq!(denial.retry_after_ms(), Some(ms), "{limit}");
    }
}

#[test]
fn a_denial_names_the_rules_that_denied_and_no_others() {
    let rules = [
        rule("roomy", "100/s"),
        rule("first", "1/s burst 1"),
        rule("watched", "1/s burst 1").mode(Mode::Shadow),
        rule("second", "1/m burst 1"),
    ];
    let decision = decided(rules, 1, 2);
    let denial = Denial::of(&decision).unwrap();
    assert_eq!(denial.reason(), Reason::QuotaExceeded);
    assert_eq!(denial.violated().collect::<Vec<_>>(), ["first", "second"]);
    let response = Answers::default().denied(&denial, Dialect::Http);
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    assert_eq!(response.headers()["retry-after"], "60");
    assert_eq!(
        body(&response),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Too many requests",
            "status": 429,
            "detail": "A limit has no room for this request. Try again in 60 seconds.",
            "violated-policies": ["first", "second"],
            "retry_after": 60,
            "retry_after_ms": 60_000,
        })
    );
}

#[test]
fn what_never_fits_is_not_told_to_come_back() {
    let decision = decided([rule("client", "1/s burst 5")], 6, 1);
    let denial = Denial::of(&decision).unwrap();
    assert_eq!(denial.reason(), Reason::NeverFits);
    let response = Answers::default().denied(&denial, Dialect::Http);
    assert_eq!(response.status(), 429);
    assert!(!response.headers().contains_key("retry-after"));
    let body = body(&response);
    assert_eq!(body["violated-policies"], json!(["client"]));
    assert!(body.get("retry_after").is_none() && body.get("retry_after_ms").is_none());
    let grpc = Answers::default().denied(&denial, Dialect::Grpc("application/grpc"));
    assert_eq!(grpc.headers()["grpc-retry-pushback-ms"], "-1");
}

#[test]
fn who_cannot_wait_hears_when_the_queue_will_be_short_enough() {
    let limiter = local(&hand(), [rule("queue", "1/s queue 10")]);
    for _ in 0..4 {
        let _ = limiter.decide(&Request::new());
    }
    // Four before it: it would go in four seconds.
    let decision = limiter.decide(&Request::new());
    assert!(decision.allowed());
    let wait = Duration::from_secs;
    assert!(Denial::of(&decision).is_none());
    assert!(Denial::of_delay(&decision, wait(4)).is_none());
    let denial = Denial::of_delay(&decision, Duration::from_millis(2_500)).unwrap();
    assert_eq!(denial.reason(), Reason::QueueTooLong);
    assert_eq!(denial.retry_after_ms(), Some(1_500));
    let response = Answers::default().denied(&denial, Dialect::Http);
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "2");
    assert_eq!(body(&response)["violated-policies"], json!(["queue"]));
}

#[test]
fn shadows_are_left_out_unless_they_are_asked_for() {
    let rules = || {
        [
            rule("client", "10/s burst 50"),
            rule("strict", "1/s burst 1").mode(Mode::Shadow),
            rule("loose", "1/s burst 9").mode(Mode::Shadow),
        ]
    };
    let decision = decided(rules(), 1, 2);
    let mut map = added(&decision, &[]);
    assert_eq!(fields(&map, "ratelimit"), [r#""client";r=48;t=1"#]);
    assert_eq!(fields(&map, "ratelimit-policy"), [r#""client";q=50;w=5"#]);
    assert!(!map.contains_key("x-ratelimit-shadow"));
    add_shadows(&decision, &mut map);
    assert_eq!(
        fields(&map, "x-ratelimit-shadow"),
        [r#""strict";r=0;t=1;deny, "loose";r=7;t=2"#]
    );
}

/// Our own: 47 of 50 left.
fn ours() -> Decision {
    decided([rule("client", "10/s burst 50")], 3, 1)
}

#[test]
fn of_two_legacy_families_the_stricter_wins_as_a_whole() {
    let theirs = |remaining| {
        [
            ("x-ratelimit-limit", "1000"),
            ("x-ratelimit-remaining", remaining),
            ("x-ratelimit-reset", "17"),
        ]
    };
    let won = |lines: &[(&str, &str)]| {
        let map = added(&ours(), lines);
        ["limit", "remaining", "reset"]
            .map(|field| fields(&map, &format!("x-ratelimit-{field}")).join("|"))
            .join(" ")
    };
    let we_win = format!("50 47 {}", NOW + 1);
    assert_eq!(won(&theirs("46")), "1000 46 17");
    assert_eq!(won(&theirs("47")), "1000 47 17");
    assert_eq!(won(&theirs("48")), we_win);
    // What cannot be read is not replaced by something that may be weaker.
    assert_eq!(won(&theirs("few")), "1000 few 17");
    assert_eq!(won(&[("x-ratelimit-reset", "17")]), "  17");
    let twice = [
        ("x-ratelimit-remaining", "90"),
        ("x-ratelimit-remaining", "3"),
    ];
    assert_eq!(won(&twice), " 90|3 ");
}

#[test]
fn lists_are_added_to_and_an_older_draft_stays_alone() {
    let map = added(
        &ours(),
        &[
            ("ratelimit-policy", r#""daily";q=9;w=86400"#),
            ("ratelimit", r#""daily";r=2;t=7"#),
        ],
    );
    assert_eq!(
        fields(&map, "ratelimit-policy"),
        [r#""daily";q=9;w=86400"#, r#""client";q=50;w=5"#]
    );
    assert_eq!(
        fields(&map, "ratelimit"),
        [r#""daily";r=2;t=7"#, r#""client";r=47;t=1"#]
    );
    let old = "limit=100, remaining=50, reset=5";
    let map = added(
        &ours(),
        &[("ratelimit", old), ("ratelimit-policy", "100;w=60")],
    );
    assert_eq!(fields(&map, "ratelimit"), [old]);
    assert_eq!(fields(&map, "ratelimit-policy"), ["100;w=60"]);
}

#[test]
fn of_two_waits_the_longer_stays_be_it_seconds_or_a_date() {
    // Ours is 60 seconds from 22:13:20.
    let decision = decided([rule("client", "1/m burst 1")], 1, 2);
    for (theirs, stays) in [
        ("5", "60"),
        ("60", "60"),
        ("61", "61"),
        ("Tue, 14 Nov 2023 22:14:19 GMT", "60"),
        (
            "Tue, 14 Nov 2023 22:14:21 GMT",
            "Tue, 14 Nov 2023 22:14:21 GMT",
        ),
        ("in a while", "in a while"),
    ] {
        let map = added(&decision, &[("retry-after", theirs)]);
        assert_eq!(fields(&map, "retry-after"), [stays], "{theirs}");
    }
    // Who was let in has no wait to add.
    let map = added(&ours(), &[("retry-after", "5")]);
    assert_eq!(fields(&map, "retry-after"), ["5"]);
}

#[test]
fn grpc_is_told_from_what_only_looks_like_it() {
    let dialect = |kind: &str| Dialect::of(&Method::POST, &headers(&[("content-type", kind)]));
    for kind in [
        "application/grpc",
        "application/grpc+proto",
        "Application/gRPC;x=y",
    ] {
        assert_eq!(dialect(kind), Dialect::Grpc("application/grpc"), "{kind}");
    }
    assert_eq!(
        dialect("application/grpc-web+proto"),
        Dialect::Grpc("application/grpc-web")
    );
    assert_eq!(
        dialect("application/grpc-web-text"),
        Dialect::Grpc("application/grpc-web-text")
    );
    for kind in [
        "application/grpcx",
        "application/grp",
        "application/json",
        "",
    ] {
        assert_eq!(dialect(kind), Dialect::Http, "{kind}");
    }
}

#[test]
fn a_path_that_is_refused_is_explained_to_callers_not_to_operators() {
    let error = tollgate::PathRules::default()
        .normalise("/a%2fb")
        .unwrap_err();
    let detail = Refusal::from(error).detail();
    let response = Answers::default().refused(&detail, Dialect::Http);
    assert_eq!(response.status(), 400);
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    assert_eq!(
        body(&response),
        json!({
            "type": "about:blank",
            "title": "Bad Request",
            "status": 400,
            "detail": "the path has an encoded slash (%2F) at byte 2",
        })
    );
    let grpc = Answers::default().refused(&detail, Dialect::Grpc("application/grpc"));
    assert_eq!((grpc.status(), grpc.body().len()), (StatusCode::OK, 0));
    assert_eq!(grpc.headers()["grpc-status"], "3");
    assert_eq!(
        grpc.headers()["grpc-message"],
        "the path has an encoded slash (%252F) at byte 2"
    );
}

/// Clients compare it with their own clocks.
#[test]
fn the_reset_follows_the_wall_clock_when_it_is_set() {
    let hand = hand();
    let limiter = local(&hand, [rule("client", "10/s burst 50")]);
    for step_s in [0, 3_600, -3_600] {
        hand.step_wall_clock(step_s);
        let decision = limiter.decide(&Request::new().client("a"));
        let map = added(&decision, &[]);
        let expected = NOW.checked_add_signed(step_s.into()).unwrap() + 1;
        assert_eq!(
            fields(&map, "x-ratelimit-reset"),
            [expected.to_string()],
            "{step_s}"
        );
    }
}
