//! Sources in order, known clients, ids, plans, and the sources that cannot be meant.

use http::HeaderMap;
use tollgate::{Dimension, LocalLimiter, Rule};
use tollgate_tower::identity::{
    Caller, Clients, IdentifiedBy, Identity, IdentityConfig, IdentityError, Outcome, ProxyHeader,
    api_key_sha256,
};

use crate::support::{PROXY, behind_proxies, client, clients, config, headers, ip, open_to_all};

const SOURCES: [&str; 3] = ["header:X-API-Key", "header:X-User-Id", "ip"];

fn ask(identity: &Identity, lines: &[(&str, &str)]) -> Caller {
    identity
        .caller(ip("203.0.113.7"), &headers(lines), &clients())
        .unwrap()
}

type Lines<'a> = &'a [(&'a str, &'a [u8])];

/// What is wrong with these headers.
fn refusal<V: AsRef<[u8]>>(identity: &Identity, lines: &[(&str, V)]) -> Outcome {
    let found = identity.caller(ip("203.0.113.7"), &headers(lines), &clients());
    found.unwrap_err().outcome()
}

fn answer(caller: &Caller) -> (Option<&str>, Option<&str>, IdentifiedBy) {
    (caller.client(), caller.plan(), caller.identified_by())
}

#[test]
fn the_first_source_that_yields_a_client_wins() {
    let identity = open_to_all(&SOURCES);
    let key = ("x-api-key", "the merchant's key");
    let id = ("x-user-id", "user_7");
    let merchant = (
        Some("merchant_123"),
        Some("enterprise"),
        IdentifiedBy::ApiKey,
    );
    assert_eq!(answer(&ask(&identity, &[id, key])), merchant);
    assert_eq!(answer(&ask(&identity, &[key])), merchant);
    assert_eq!(
        answer(&ask(&identity, &[id])),
        (Some("user_7"), Some("pro"), IdentifiedBy::KnownId)
    );
    assert_eq!(
        answer(&ask(&identity, &[])),
        (Some("ip:203.0.113.7"), None, IdentifiedBy::Address)
    );

    let other_way_round = open_to_all(&["header:X-User-Id", "header:X-API-Key", "ip"]);
    assert_eq!(
        answer(&ask(&other_way_round, &[id, key])),
        (Some("user_7"), Some("pro"), IdentifiedBy::KnownId)
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
        ask(&identity, &[("x-api-key", &digits)]).identified_by(),
        IdentifiedBy::Address
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
    assert_eq!(
        any.caller(ip(PROXY), &line, &one_word).unwrap().client(),
        Some("a")
    );
    let refused = bearer.caller(ip(PROXY), &line, &one_word).unwrap_err();
    assert_eq!(refused.outcome(), Outcome::KeyInOtherForm);
}

#[test]
fn an_unknown_id_is_a_client_named_after_its_header() {
    let identity = open_to_all(&["header:X-User-Id", "header:X-Tenant", "ip"]);
    let one = ask(&identity, &[("X-User-Id", "42")]);
    let other = ask(&identity, &[("X-Tenant", "42")]);
    assert_eq!(
        answer(&one),
        (Some("x-user-id:42"), None, IdentifiedBy::UnknownId)
    );
    assert_eq!(
        answer(&other),
        (Some("x-tenant:42"), None, IdentifiedBy::UnknownId)
    );
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
        (Some("ip:203.0.113.7"), None, IdentifiedBy::Address)
    );
    let trusted = behind_proxies(&SOURCES, ProxyHeader::XForwardedFor);
    let caller = trusted
        .caller(
            ip(PROXY),
            &headers(&[("x-user-id", "merchant_123")]),
            &clients(),
        )
        .unwrap();
    assert_eq!(
        answer(&caller),
        (Some("ip:10.0.0.1"), None, IdentifiedBy::Address)
    );
}

#[test]
fn an_id_that_can_be_read_in_two_ways_is_refused() {
    let identity = open_to_all(&SOURCES);
    let longest = "x".repeat(256);
    let too_long = "x".repeat(257);
    let refused: [(Lines<'_>, Outcome); 6] = [
        (&[("x-user-id", b"a\xffb")], Outcome::Unreadable),
        (&[("x-user-id", b"a\tb")], Outcome::Unreadable),
        (
            &[("x-user-id", "a\u{202e}b".as_bytes())],
            Outcome::Unreadable,
        ),
        (&[("x-user-id", too_long.as_bytes())], Outcome::TooLong),
        (
            &[("x-user-id", b"user_7"), ("x-user-id", b"user_8")],
            Outcome::Ambiguous,
        ),
        (
            &[("x-user-id", b"user_7"), ("x-user-id", b"")],
            Outcome::Ambiguous,
        ),
    ];
    for (lines, outcome) in refused {
        assert_eq!(refusal(&identity, lines), outcome, "{lines:?}");
    }
    for empty in ["", " \t "] {
        let caller = ask(&identity, &[("x-user-id", empty)]);
        assert_eq!(caller.identified_by(), IdentifiedBy::Address, "{empty:?}");
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
        ask(&identity, &[("x-user-id", &longest)]).identified_by(),
        IdentifiedBy::UnknownId
    );
}

#[test]
fn a_key_that_can_be_read_in_two_ways_is_refused() {
    let long = "k".repeat(8192);
    let too_long = "k".repeat(8193);
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
            .unwrap()
            .client()
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        found(&[("x-api-key", "key-a"), ("x-api-key", "key-a")]),
        "a"
    );
    assert_eq!(found(&[("x-api-key", "")]), "ip:203.0.113.7");
    assert_eq!(found(&[("x-api-key", &long)]), "long");
    for lines in [
        [("x-api-key", "key-a"), ("x-api-key", "key-b")],
        [("x-api-key", "key-b"), ("x-api-key", "key-a")],
        [("x-api-key", "key-a"), ("x-api-key", "")],
        [("x-api-key", ""), ("x-api-key", "key-a")],
    ] {
        assert_eq!(refusal(&identity, &lines), Outcome::Ambiguous, "{lines:?}");
    }
    let too_long = [("x-api-key", too_long.as_str())];
    assert_eq!(refusal(&identity, &too_long), Outcome::TooLong);
}

/// Servers cut off so many bytes, or split at any blank, at commas or at `=`, and take the first or the last part.
#[test]
fn a_key_in_another_form_than_the_configured_one_is_refused() {
    let known = Clients::new([client("a", None, Some("key-a"))]).unwrap();
    let bearer = open_to_all(&["bearer", "ip"]);
    let plain = open_to_all(&["api_key:X-API-Key", "ip"]);
    let any = open_to_all(&["api_key:Authorization", "ip"]);
    let outcome = |identity: &Identity, name: &str, value: &[u8]| {
        let found = identity.caller(ip("203.0.113.7"), &headers(&[(name, value)]), &known);
        found
            .map(|caller| caller.identified_by())
            .map_err(|e| e.outcome())
    };
    for separator in [
        &b"\t"[..],
        b"\xa0",
        b"=",
        b":",
        b",",
        b"-",
        b"x",
        b"\t ",
        b"\xc2\xa0",
    ] {
        let value = [b"Bearer", separator, b"key-a"].concat();
        let shown = String::from_utf8_lossy(&value);
        assert_eq!(
            outcome(&bearer, "authorization", &value),
            Err(Outcome::Malformed),
            "{shown}"
        );
    }
    for value in [
        &b"key-a"[..],
        b"Token key-a",
        b"Bearer key-a junk",
        b"Bearer junk key-a",
        b"Bearer key-a,junk",
        b"Bearer junk, Bearer key-a",
        b"Bearer junk, Bearer junk, Bearer junk, Bearer key-a",
        b"Bearer token=key-a",
        b"Bearer \"key-a\"",
        b"Bearer token=\"key-a\", nonce=\"x\"",
        b"Bearer junk\xa0key-a",
    ] {
        let shown = String::from_utf8_lossy(value);
        let refused = Err(Outcome::KeyInOtherForm);
        assert_eq!(outcome(&bearer, "authorization", value), refused, "{shown}");
        if !matches!(value, b"key-a" | b"Token key-a") {
            assert_eq!(outcome(&any, "authorization", value), refused, "{shown}");
        }
        if value != b"key-a" {
            assert_eq!(outcome(&plain, "x-api-key", value), refused, "{shown}");
        }
    }
    // What holds no client's key is somebody who is not known.
    for value in [
        "Basic dXNlcjpwYXNz",
        "Bearer a.b.c",
        "Bearer a b",
        "Digest username=\"key\", a=b",
    ] {
        let by_address = Ok(IdentifiedBy::Address);
        assert_eq!(
            outcome(&bearer, "authorization", value.as_bytes()),
            by_address,
            "{value}"
        );
        assert_eq!(
            outcome(&any, "authorization", value.as_bytes()),
            by_address,
            "{value}"
        );
    }
    let negotiate = format!("Negotiate {}", "x".repeat(20_000));
    let by_bearer = outcome(&bearer, "authorization", negotiate.as_bytes());
    assert_eq!(
        by_bearer,
        Ok(IdentifiedBy::Address),
        "another scheme, however long"
    );
}

/// HTTP/2 sends each cookie in a line of its own.
#[test]
fn cookies_in_several_lines_are_one_value() {
    let known = Clients::new([client("a", None, Some("session=7; theme=dark"))]).unwrap();
    let identity = open_to_all(&["api_key:Cookie", "ip"]);
    let found = |lines: &[(&str, &str)]| {
        let caller = identity.caller(ip("203.0.113.7"), &headers(lines), &known);
        caller.unwrap().identified_by()
    };
    assert_eq!(
        found(&[("cookie", "session=7"), ("cookie", "theme=dark")]),
        IdentifiedBy::ApiKey
    );
    assert_eq!(
        found(&[("cookie", "session=7; theme=dark")]),
        IdentifiedBy::ApiKey
    );
    assert_eq!(
        found(&[("cookie", "session=7"), ("cookie", "theme=light")]),
        IdentifiedBy::Address
    );
}

#[test]
fn whether_a_request_is_refused_does_not_depend_on_the_order_of_the_sources() {
    let lines = [
        ("x-api-key", "the merchant's key"),
        ("x-user-id", "7"),
        ("x-user-id", "8"),
    ];
    for sources in [
        ["header:X-API-Key", "header:X-User-Id", "ip"],
        ["header:X-User-Id", "header:X-API-Key", "ip"],
    ] {
        let outcome = refusal(&open_to_all(&sources), &lines);
        assert_eq!(outcome, Outcome::Ambiguous, "{sources:?}");
    }
}

/// They are known by their addresses, whatever they write there.
#[test]
fn a_header_that_the_peer_may_not_send_is_not_judged() {
    let identity = behind_proxies(&SOURCES, ProxyHeader::XForwardedFor);
    let lines = headers(&[
        ("x-user-id", "7"),
        ("x-user-id", "8"),
        ("x-plan", "a"),
        ("x-plan", "b"),
    ]);
    let stranger = identity.caller(ip("203.0.113.7"), &lines, &clients());
    assert_eq!(stranger.unwrap().client(), Some("ip:203.0.113.7"));
    let proxy = identity.caller(ip(PROXY), &lines, &clients());
    assert_eq!(proxy.unwrap_err().header(), "x-user-id");
}

#[test]
fn an_id_is_believed_from_trusted_proxies_alone_if_there_are_any() {
    let identity = behind_proxies(&SOURCES, ProxyHeader::XForwardedFor);
    let lines = headers(&[("x-user-id", "user_7")]);
    assert_eq!(
        identity
            .caller(ip(PROXY), &lines, &clients())
            .unwrap()
            .client(),
        Some("user_7")
    );
    assert_eq!(
        identity
            .caller(ip("203.0.113.7"), &lines, &clients())
            .unwrap()
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
        assert_eq!(answer(&caller), (None, None, IdentifiedBy::Nothing));
        assert_eq!(caller.ip(), ip("203.0.113.7"));
    }
}

#[test]
fn a_plan_is_the_known_clients_or_what_a_trusted_proxy_says() {
    let identity = behind_proxies(&SOURCES, ProxyHeader::XForwardedFor);
    let plan = |peer: &str, lines: &[(&str, &str)]| {
        identity
            .caller(ip(peer), &headers(lines), &clients())
            .unwrap()
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

    assert_eq!(plan(PROXY, &[("x-plan", "")]), None);
    let too_long = "x".repeat(65);
    let key = ("x-api-key", "the merchant's key");
    for (lines, outcome) in [
        (&[("x-plan", "a\tb")][..], Outcome::Unreadable),
        (&[("x-plan", "a\u{feff}")], Outcome::Unreadable),
        (&[("x-plan", &too_long)], Outcome::TooLong),
        (&[gold, ("x-plan", "silver")], Outcome::Ambiguous),
        // Also where nobody asks for it.
        (&[key, gold, ("x-plan", "silver")], Outcome::Ambiguous),
    ] {
        let refused = identity.caller(ip(PROXY), &headers(lines), &clients());
        assert_eq!(refused.unwrap_err().outcome(), outcome, "{lines:?}");
    }
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
    let caller = identity
        .caller(ip("203.0.113.7"), &headers(&[("x-user-id", "42")]), &known)
        .unwrap();
    assert_eq!(
        answer(&caller),
        (Some("ip:203.0.113.7"), None, IdentifiedBy::Address)
    );
    // Nobody else is in the way.
    let caller = identity
        .caller(ip("203.0.113.7"), &headers(&[("x-user-id", "43")]), &known)
        .unwrap();
    assert_eq!(caller.client(), Some("x-user-id:43"));
    let caller = identity
        .caller(
            ip("203.0.113.7"),
            &headers(&[("x-user-id", "org:7")]),
            &known,
        )
        .unwrap();
    assert_eq!(
        (caller.client(), caller.identified_by()),
        (Some("org:7"), IdentifiedBy::KnownId)
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
    let from =
        |peer: &str, lines: &HeaderMap| identity.caller(ip(peer), lines, &clients()).unwrap();
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

/// Whoever is believed may call a client by its id alone, and means the bucket in which the gateway counts it.
#[test]
fn a_bare_id_is_the_client_that_the_gateway_would_find() {
    let known = Clients::new([
        client("merchant_123", None, None),
        client("org:7", None, None),
    ])
    .unwrap();
    let by_headers = open_to_all(&["bearer", "header:X-User-Id", "header:X-Tenant", "ip"]);
    for (text, name) in [
        ("merchant_123", "merchant_123"),
        ("org:7", "org:7"),
        ("42", "x-user-id:42"),
        ("org:8", "x-user-id:org:8"),
        ("x-user-id:42", "x-user-id:42"),
        ("x-tenant:42", "x-tenant:42"),
        ("x-user-idx:42", "x-user-id:x-user-idx:42"),
        ("ip:203.0.113.7", "ip:203.0.113.7"),
        ("ip:2001:db8::1", "ip:2001:db8::/64"),
        ("ip:2001:db8::/64", "ip:2001:db8::/64"),
        ("ip:2001:db8::/48", "ip:2001:db8::/48"),
        ("ip:garbage", "ip:garbage"),
    ] {
        assert_eq!(by_headers.client_name(text, &known), name);
    }
    for (header, id) in [
        ("x-user-id", "42"),
        ("x-user-id", "merchant_123"),
        ("x-tenant", "42"),
    ] {
        let found = by_headers.caller(ip("203.0.113.7"), &headers(&[(header, id)]), &known);
        let name = found.unwrap().client().unwrap().to_owned();
        assert_eq!(
            by_headers.client_name(&name, &known),
            name,
            "a name stays what it is"
        );
    }
    let by_key = open_to_all(&["bearer", "ip"]);
    assert_eq!(by_key.client_name("42", &known), "42");
}
