//! Sources in order, known clients, ids, plans, and the sources that cannot be meant.

use http::HeaderMap;
use tollgate::{Dimension, LocalLimiter, Rule};
use tollgate_tower::identity::{
    Caller, Clients, How, Identity, IdentityConfig, IdentityError, ProxyHeader, api_key_sha256,
};

use crate::support::{PROXY, behind_proxies, client, clients, config, headers, ip, open_to_all};

const SOURCES: [&str; 3] = ["header:X-API-Key", "header:X-User-Id", "ip"];

fn ask(identity: &Identity, lines: &[(&str, &str)]) -> Caller {
    identity.caller(ip("203.0.113.7"), &headers(lines), &clients())
}

fn answer(caller: &Caller) -> (Option<&str>, Option<&str>, How) {
    (caller.client(), caller.plan(), caller.how())
}

#[test]
fn the_first_source_that_yields_a_client_wins() {
    let identity = open_to_all(&SOURCES);
    let key = ("x-api-key", "the merchant's key");
    let id = ("x-user-id", "user_7");
    let merchant = (Some("merchant_123"), Some("enterprise"), How::ApiKey);
    assert_eq!(answer(&ask(&identity, &[id, key])), merchant);
    assert_eq!(answer(&ask(&identity, &[key])), merchant);
    assert_eq!(
        answer(&ask(&identity, &[id])),
        (Some("user_7"), Some("pro"), How::KnownId)
    );
    assert_eq!(
        answer(&ask(&identity, &[])),
        (Some("ip:203.0.113.7"), None, How::Address)
    );

    let other_way_round = open_to_all(&["header:X-User-Id", "header:X-API-Key", "ip"]);
    assert_eq!(
        answer(&ask(&other_way_round, &[id, key])),
        (Some("user_7"), Some("pro"), How::KnownId)
    );
}

#[test]
fn a_key_that_nobody_knows_gets_no_bucket_of_its_own() {
    let identity = open_to_all(&SOURCES);
    for key in [
        "the merchant's ke",
        "the merchant's key2",
        "THE MERCHANT'S KEY",
        "merchant_123",
        "user_7",
        "x",
    ] {
        let caller = ask(&identity, &[("x-api-key", key)]);
        assert_eq!(caller.client(), Some("ip:203.0.113.7"), "{key}");
    }
    // Nor does the hash of the key, which more people may have seen than the key.
    let hash = api_key_sha256(b"the merchant's key");
    let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        ask(&identity, &[("x-api-key", &digits)]).how(),
        How::Address
    );
    // It leaves the next source to say who it is.
    let caller = ask(
        &identity,
        &[("x-api-key", "unknown"), ("x-user-id", "user_7")],
    );
    assert_eq!(caller.client(), Some("user_7"));
}

#[test]
fn an_authorization_is_a_secret_behind_a_scheme() {
    let any = open_to_all(&["header:Authorization", "ip"]);
    let bearer = open_to_all(&["bearer", "ip"]);
    for (value, by_any, by_bearer) in [
        ("Bearer the merchant's key", true, true),
        ("bearer   the merchant's key", true, true),
        ("BEARER the merchant's key ", true, true),
        ("Token the merchant's key", true, false),
        ("Bearer", false, false),
        ("Bearer ", false, false),
        ("Bearerthe merchant's key", false, false),
        ("Bearer the merchant's", false, false),
    ] {
        let found =
            |identity| ask(identity, &[("authorization", value)]).client() == Some("merchant_123");
        assert_eq!(
            (found(&any), found(&bearer)),
            (by_any, by_bearer),
            "{value}"
        );
    }
    let one_word = Clients::new([client("a", None, Some("key-a"))]).unwrap();
    let line = headers(&[("authorization", "key-a")]);
    assert_eq!(any.caller(ip(PROXY), &line, &one_word).client(), Some("a"));
    assert_eq!(
        bearer.caller(ip(PROXY), &line, &one_word).client(),
        Some("ip:10.0.0.1")
    );
}

#[test]
fn an_unknown_id_is_a_client_named_after_its_header() {
    let identity = open_to_all(&["header:X-User-Id", "header:X-Tenant", "ip"]);
    let one = ask(&identity, &[("X-User-Id", "42")]);
    let other = ask(&identity, &[("X-Tenant", "42")]);
    assert_eq!(answer(&one), (Some("x-user-id:42"), None, How::UnknownId));
    assert_eq!(answer(&other), (Some("x-tenant:42"), None, How::UnknownId));
    let like_an_address = ask(&identity, &[("X-User-Id", "ip:203.0.113.9")]);
    assert_eq!(like_an_address.client(), Some("x-user-id:ip:203.0.113.9"));
    let like_another_header = ask(&identity, &[("X-User-Id", "x-tenant:42")]);
    assert_eq!(like_another_header.client(), Some("x-user-id:x-tenant:42"));
}

#[test]
fn who_has_an_api_key_cannot_be_claimed_by_id() {
    let identity = open_to_all(&SOURCES);
    let caller = ask(&identity, &[("x-user-id", "merchant_123")]);
    assert_eq!(
        answer(&caller),
        (Some("ip:203.0.113.7"), None, How::Address)
    );
    let trusted = behind_proxies(&SOURCES, ProxyHeader::XForwardedFor);
    let caller = trusted.caller(
        ip(PROXY),
        &headers(&[("x-user-id", "merchant_123")]),
        &clients(),
    );
    assert_eq!(answer(&caller), (Some("ip:10.0.0.1"), None, How::Address));
}

#[test]
fn an_id_that_does_not_mean_one_thing_is_passed_over() {
    let identity = open_to_all(&SOURCES);
    let longest = "x".repeat(256);
    let too_long = "x".repeat(257);
    let by_address: [&[(&str, &[u8])]; 8] = [
        &[("x-user-id", b"")],
        &[("x-user-id", b" \t ")],
        &[("x-user-id", b"a\xffb")],
        &[("x-user-id", b"a\tb")],
        &[("x-user-id", "a\u{202e}b".as_bytes())],
        &[("x-user-id", too_long.as_bytes())],
        &[("x-user-id", b"user_7"), ("x-user-id", b"user_8")],
        &[("x-user-id", b"user_7"), ("x-user-id", b"")],
    ];
    for lines in by_address {
        let caller = identity.caller(ip("203.0.113.7"), &headers(lines), &clients());
        assert_eq!(caller.how(), How::Address, "{lines:?}");
    }
    let twice_the_same = ask(
        &identity,
        &[("x-user-id", "user_7"), ("X-User-ID", "user_7")],
    );
    assert_eq!(twice_the_same.client(), Some("user_7"));
    assert_eq!(
        ask(&identity, &[("x-user-id", " Zoë Ü ")]).client(),
        Some("x-user-id:Zoë Ü")
    );
    assert_eq!(
        ask(&identity, &[("x-user-id", &longest)]).how(),
        How::UnknownId
    );
}

#[test]
fn a_key_that_does_not_mean_one_thing_is_passed_over() {
    let long = "k".repeat(4096);
    let too_long = "k".repeat(4097);
    let known = Clients::new([
        client("a", None, Some("key-a")),
        client("long", None, Some(&long)),
        client("too long", None, Some(&too_long)),
    ])
    .unwrap();
    let identity = open_to_all(&SOURCES);
    let found = |lines: &[(&str, &str)]| {
        identity
            .caller(ip("203.0.113.7"), &headers(lines), &known)
            .client()
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        found(&[("x-api-key", "key-a"), ("x-api-key", "key-a")]),
        "a"
    );
    assert_eq!(
        found(&[("x-api-key", "key-a"), ("x-api-key", "key-b")]),
        "ip:203.0.113.7"
    );
    assert_eq!(found(&[("x-api-key", "")]), "ip:203.0.113.7");
    assert_eq!(found(&[("x-api-key", &long)]), "long");
    assert_eq!(found(&[("x-api-key", &too_long)]), "ip:203.0.113.7");
}

#[test]
fn an_id_is_believed_from_trusted_proxies_alone_if_there_are_any() {
    let identity = behind_proxies(&SOURCES, ProxyHeader::XForwardedFor);
    let lines = headers(&[("x-user-id", "user_7")]);
    assert_eq!(
        identity.caller(ip(PROXY), &lines, &clients()).client(),
        Some("user_7")
    );
    assert_eq!(
        identity
            .caller(ip("203.0.113.7"), &lines, &clients())
            .client(),
        Some("ip:203.0.113.7")
    );
    assert_eq!(identity.unverified().count(), 0);

    let open = open_to_all(&SOURCES);
    let unverified: Vec<_> = open.unverified().map(ToString::to_string).collect();
    assert_eq!(unverified, ["header:x-user-id"]);
}

#[test]
fn without_the_address_among_the_sources_a_caller_may_have_no_name() {
    for sources in [&["header:X-API-Key", "header:X-User-Id"][..], &[]] {
        let caller = ask(&open_to_all(sources), &[("x-api-key", "unknown")]);
        assert_eq!(answer(&caller), (None, None, How::Nothing));
        assert_eq!(caller.ip(), ip("203.0.113.7"));
    }
}

#[test]
fn a_plan_is_the_known_clients_or_what_a_trusted_proxy_says() {
    let identity = behind_proxies(&SOURCES, ProxyHeader::XForwardedFor);
    let plan = |peer: &str, lines: &[(&str, &str)]| {
        identity
            .caller(ip(peer), &headers(lines), &clients())
            .plan()
            .map(str::to_owned)
    };
    let gold = ("x-plan", "gold");
    assert_eq!(plan(PROXY, &[gold]).as_deref(), Some("gold"));
    assert_eq!(
        plan(PROXY, &[gold, ("x-user-id", "42")]).as_deref(),
        Some("gold")
    );
    assert_eq!(
        plan(PROXY, &[gold, ("x-user-id", "user_7")]).as_deref(),
        Some("pro")
    );
    assert_eq!(
        plan(PROXY, &[gold, ("x-user-id", "user_8")]).as_deref(),
        Some("gold")
    );
    assert_eq!(
        plan(PROXY, &[gold, ("x-api-key", "the merchant's key")]).as_deref(),
        Some("enterprise")
    );

    assert_eq!(plan("203.0.113.7", &[gold]), None);
    assert_eq!(
        plan("203.0.113.7", &[gold, ("x-api-key", "the merchant's key")]).as_deref(),
        Some("enterprise")
    );

    let too_long = "x".repeat(65);
    for bad in ["", "a\tb", &too_long, "a\u{feff}"] {
        assert_eq!(plan(PROXY, &[("x-plan", bad)]), None, "{bad:?}");
    }
    assert_eq!(plan(PROXY, &[gold, ("x-plan", "silver")]), None);
}

#[test]
fn where_nobody_is_trusted_no_header_makes_a_plan() {
    let identity = Identity::new(IdentityConfig {
        plan: vec!["header:X-Plan".parse().unwrap()],
        ..config(&SOURCES)
    })
    .unwrap();
    assert_eq!(ask(&identity, &[("x-plan", "gold")]).plan(), None);
    assert_eq!(
        ask(&identity, &[("x-plan", "gold"), ("x-user-id", "user_7")]).plan(),
        Some("pro")
    );
}

#[test]
fn nobody_becomes_a_known_client_by_the_name_that_a_header_makes() {
    let identity = open_to_all(&SOURCES);
    let known = Clients::new([
        client("x-user-id:42", Some("gold"), None),
        client("org:7", None, None),
        client("x-user-id", None, None),
    ])
    .unwrap();
    let caller = identity.caller(ip("203.0.113.7"), &headers(&[("x-user-id", "42")]), &known);
    assert_eq!(
        answer(&caller),
        (Some("ip:203.0.113.7"), None, How::Address)
    );
    // Nobody else is in the way.
    let caller = identity.caller(ip("203.0.113.7"), &headers(&[("x-user-id", "43")]), &known);
    assert_eq!(caller.client(), Some("x-user-id:43"));
    let caller = identity.caller(
        ip("203.0.113.7"),
        &headers(&[("x-user-id", "org:7")]),
        &known,
    );
    assert_eq!(
        (caller.client(), caller.how()),
        (Some("org:7"), How::KnownId)
    );

    let error = identity.check(&known).unwrap_err().to_string();
    assert_eq!(
        error,
        "the client id \"x-user-id:42\" is reserved, as names found by header:x-user-id begin like it; use another id"
    );
    assert_eq!(identity.check(&clients()), Ok(()));
    assert_eq!(
        open_to_all(&["header:X-Tenant", "ip"]).check(&known),
        Ok(())
    );
}

#[test]
fn sources_that_cannot_be_meant_are_refused() {
    let error = |sources: &[&str]| Identity::new(config(sources)).unwrap_err();
    assert!(matches!(
        error(&["ip", "header:X-User-Id"]),
        IdentityError::BehindIp(_)
    ));
    assert!(matches!(
        error(&["ip", "ip"]),
        IdentityError::ClientSourceTwice(_)
    ));
    assert!(matches!(
        error(&["header:X-API-Key", "api_key:x-api-key"]),
        IdentityError::ClientSourceTwice(_)
    ));
    let plan: Vec<_> = ["header:X-Plan", "header:x-plan"]
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
    let twice = Identity::new(IdentityConfig {
        plan,
        ..IdentityConfig::default()
    })
    .unwrap_err();
    assert!(matches!(twice, IdentityError::PlanSourceTwice(_)));
}

#[test]
fn a_caller_is_counted_by_the_engine_as_client_address_and_plan() {
    let bind = |dimension| {
        let rule = Rule::new("one", "1/h".parse().unwrap())
            .unwrap()
            .per([dimension]);
        LocalLimiter::new().with_rules([rule]).unwrap()
    };
    let identity = open_to_all(&SOURCES);
    let merchant = headers(&[("x-api-key", "the merchant's key")]);
    let from = |peer: &str, lines: &HeaderMap| identity.caller(ip(peer), lines, &clients());
    let allowed =
        |limiter: &LocalLimiter, caller: &Caller| limiter.decide(&caller.request()).allowed();

    let by_client = bind(Dimension::Client);
    assert!(allowed(&by_client, &from("203.0.113.7", &merchant)));
    assert!(
        !allowed(&by_client, &from("198.51.100.1", &merchant)),
        "the same client from elsewhere"
    );
    assert!(
        allowed(&by_client, &from("203.0.113.7", &HeaderMap::new())),
        "another client from the same address"
    );

    let by_ip = bind(Dimension::Ip);
    assert!(allowed(&by_ip, &from("2001:db8::1", &merchant)));
    assert!(
        !allowed(&by_ip, &from("2001:db8::2", &HeaderMap::new())),
        "another client from the same network"
    );
    assert!(allowed(&by_ip, &from("2001:db8:0:1::1", &HeaderMap::new())));

    let by_plan = bind(Dimension::Plan);
    assert!(allowed(&by_plan, &from("203.0.113.7", &merchant)));
    assert!(!allowed(&by_plan, &from("198.51.100.1", &merchant)));
    assert!(
        allowed(&by_plan, &from("203.0.113.7", &HeaderMap::new())),
        "no plan is another plan"
    );
}
