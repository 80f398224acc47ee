//! Whatever a caller writes into headers, it stays who it is.

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_tower::identity::{Caller, ChainEnd, Clients, Identity, Outcome, ProxyHeader};

use crate::support::{PROXY, XFF, behind_proxies, clients, headers, ip, open_to_all};

const SOURCES: [&str; 3] = ["api_key:X-API-Key", "header:X-User-Id", "ip"];

/// What somebody may write to be taken for somebody else. Each is sent alone, and with each other.
fn forgeries() -> Vec<Vec<(&'static str, String)>> {
    let one = |name: &'static str, value: &str| vec![(name, value.to_owned())];
    let ten_thousand = vec!["198.51.100.9"; 10_000].join(", ");
    let ten_thousand_trusted = vec!["10.0.0.9"; 10_000].join(",");
    let mut all = vec![
        one(XFF, "198.51.100.9"),
        one(XFF, "198.51.100.9, 10.0.0.2, 10.0.0.3"),
        one(XFF, "10.0.0.2"),
        one(XFF, "  198.51.100.9  ,\t10.0.0.2 "),
        one(XFF, "198.51.100.9:1234, [2001:db8::9]:80, 2001:db8::9"),
        one(XFF, ""),
        one(XFF, ","),
        one(XFF, ",,,, ,"),
        one(XFF, "198.51.100.9,"),
        one(
            XFF,
            "unknown, _hidden, garbage, 0x7f.1, \"198.51.100.9\", 😀",
        ),
        one(XFF, "for=198.51.100.9"),
        one(XFF, "203.0.113.7"),
        one(XFF, "::1, 127.0.0.1, ::ffff:10.0.0.1, 64:ff9b::10.0.0.1"),
        one(XFF, &ten_thousand),
        one(XFF, &ten_thousand_trusted),
        vec![
            (XFF, "198.51.100.9".into()),
            (XFF, "10.0.0.2".into()),
            (XFF, "10.0.0.3".into()),
        ],
        vec![
            (XFF, "garbage".into()),
            (XFF, String::new()),
            (XFF, "198.51.100.9".into()),
        ],
        one("forwarded", "for=198.51.100.9"),
        one("forwarded", "for=198.51.100.9, for=10.0.0.2"),
        one("forwarded", "for=\"198.51.100.9"),
        one("forwarded", "for=198.51.100.9;x=\""),
        one(
            "forwarded",
            "for=\"[2001:db8::9]:80\";by=10.0.0.1;host=a;proto=https",
        ),
        one("forwarded", "\\\",\\"),
        one("forwarded", &vec!["for=10.0.0.9"; 10_000].join(",")),
        one("x_forwarded_for", "198.51.100.9"),
        one("x-forwarded-for-", "198.51.100.9"),
        one("x-forwarded", "for=198.51.100.9"),
        one("x-original-forwarded-for", "198.51.100.9"),
        one("via", "1.1 198.51.100.9"),
        one("connection", "X-Forwarded-For"),
        one(
            "connection",
            "close, X-Forwarded-For, Forwarded, X-User-Id, X-API-Key",
        ),
        one("host", "198.51.100.9"),
        one("cookie", "X-User-Id=user_7"),
        one("x_user_id", "user_7"),
        one("x-api-key", "not a key"),
        one("x-api-key", "merchant_123"),
        one("authorization", "Bearer the merchant's key"),
    ];
    for name in [
        "x-real-ip",
        "true-client-ip",
        "cf-connecting-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "fastly-client-ip",
        "x-envoy-external-address",
        "client-ip",
        "ip",
        "remote-addr",
    ] {
        all.push(one(name, "198.51.100.9"));
    }
    all
}

fn append(map: &mut HeaderMap, lines: &[(&'static str, String)]) {
    for (name, value) in lines {
        map.append(
            HeaderName::from_static(name),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
}

/// Every forgery alone and every pair of them.
fn for_each_attack(mut check: impl FnMut(HeaderMap, &str)) {
    let all = forgeries();
    for (i, one) in all.iter().enumerate() {
        for other in all.iter().skip(i) {
            let mut map = HeaderMap::new();
            append(&mut map, one);
            if !std::ptr::eq(one, other) {
                append(&mut map, other);
            }
            let shown: String = format!("{one:?} {other:?}").chars().take(300).collect();
            check(map, &shown);
        }
    }
}

/// Whoever sends this is the one it is, or is refused where it contradicts itself.
fn assert_stays(
    identity: &Identity,
    peer: &str,
    attack: &HeaderMap,
    expected: &Caller,
    shown: &str,
) {
    match identity.caller(ip(peer), attack, &clients()) {
        Ok(caller) => assert_eq!(caller, *expected, "{shown}"),
        Err(error) => {
            assert_eq!(error.outcome(), Outcome::Ambiguous, "{shown}");
            assert!(attack.get_all("x-api-key").iter().count() > 1, "{shown}");
        }
    }
}

/// How a proxy says who called it: in the last line of the header, or in a line of its own.
fn add_as_proxy(map: &mut HeaderMap, name: &HeaderName, element: &str, in_own_line: bool) {
    let mut lines: Vec<HeaderValue> = map.get_all(name).iter().cloned().collect();
    match lines.last_mut().filter(|_| !in_own_line) {
        Some(last) => {
            let joined = [last.as_bytes(), b", ", element.as_bytes()].concat();
            *last = HeaderValue::from_bytes(&joined).unwrap();
        }
        None => lines.push(element.parse().unwrap()),
    }
    map.remove(name);
    for line in lines {
        map.append(name.clone(), line);
    }
}

#[test]
fn from_a_peer_that_is_not_trusted_no_header_changes_who_calls() {
    for proxy_header in [ProxyHeader::XForwardedFor, ProxyHeader::Forwarded] {
        let trusting = behind_proxies(&SOURCES, proxy_header);
        let expected = trusting.caller_by_address(ip("203.0.113.7"), &HeaderMap::new());
        assert_eq!(expected.client(), Some("ip:203.0.113.7"));
        for_each_attack(|mut attack, shown| {
            assert_stays(&trusting, "203.0.113.7", &attack, &expected, shown);
            // Nor do headers that are believed from others.
            attack.append("x-user-id", "user_7".parse().unwrap());
            attack.append("x-plan", "enterprise".parse().unwrap());
            assert_stays(&trusting, "203.0.113.7", &attack, &expected, shown);
        });
    }
}

#[test]
fn where_nobody_is_trusted_no_header_changes_the_address() {
    let identity = open_to_all(&SOURCES);
    let expected = identity.caller_by_address(ip(PROXY), &HeaderMap::new());
    for_each_attack(|attack, shown| assert_stays(&identity, PROXY, &attack, &expected, shown));
}

#[test]
fn through_a_trusted_proxy_that_appends_no_header_changes_who_calls() {
    for (proxy_header, element) in [
        (ProxyHeader::XForwardedFor, "203.0.113.7"),
        (ProxyHeader::XForwardedFor, "203.0.113.7:4711"),
        (ProxyHeader::Forwarded, "for=203.0.113.7"),
        (
            ProxyHeader::Forwarded,
            "For=\"203.0.113.7:4711\";host=\"a,\\\"b\";proto=http",
        ),
    ] {
        let identity = behind_proxies(&SOURCES, proxy_header);
        let expected = identity.caller_by_address(ip("203.0.113.7"), &HeaderMap::new());
        let name = proxy_header.name();
        for in_own_line in [false, true] {
            for_each_attack(|mut attack, shown| {
                add_as_proxy(&mut attack, &name, element, in_own_line);
                let shown = format!("{proxy_header}: {shown}");
                assert_stays(&identity, PROXY, &attack, &expected, &shown);
            });
        }
    }
}

#[test]
fn a_name_that_only_looks_like_the_header_is_no_header_or_another() {
    for name in [
        "X-Forwarded-For ",
        " X-Forwarded-For",
        "X-Forwarded-For:",
        "X-Forwarded\t-For",
        "X-Forwarded-For\0",
        "X‐Forwarded‐For",
    ] {
        assert!(HeaderName::from_bytes(name.as_bytes()).is_err(), "{name:?}");
    }
    let identity = behind_proxies(&["ip"], ProxyHeader::XForwardedFor);
    let caller =
        identity.caller_by_address(ip(PROXY), &headers(&[("X_Forwarded_For", "198.51.100.9")]));
    assert_eq!(caller.client(), Some("ip:10.0.0.1"));
    let caller =
        identity.caller_by_address(ip(PROXY), &headers(&[("x-FORWARDED-for", "198.51.100.9")]));
    assert_eq!(caller.client(), Some("ip:198.51.100.9"));
}

/// Anything that a header's value may be, mostly made of what matters to readers of addresses.
pub(crate) fn value() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just("203.0.113.99".to_owned()),
        Just("10.0.0.2".to_owned()),
        Just("[2001:db8::9]:80".to_owned()),
        Just("for=10.0.0.2".to_owned()),
        Just("for=\"[fd00::2]\"".to_owned()),
        "[\",;=\\\\ \t]{0,6}",
        "[ -~]{0,20}",
    ];
    prop_oneof![
        vec(part, 0..8).prop_map(|parts| parts.join(",").into_bytes()),
        vec(prop_oneof![Just(b'\t'), 32..=126_u8, 128..=255_u8], 0..60),
    ]
}

/// What a proxy adds for a caller: as it stands in either header.
fn added(address: &str, in_forwarded: bool, dressed: bool) -> String {
    let colon = address.contains(':');
    match (in_forwarded, dressed, colon) {
        (false, false, _) => address.to_owned(),
        (false, true, true) => format!("[{address}]:4711"),
        (false, true, false) => format!("{address}:4711"),
        (true, false, false) => format!("for={address}"),
        (true, false, true) => format!("for=\"[{address}]\""),
        (true, true, false) => {
            format!("by=_x;host=\"a\\\\\\\",b\";For=\"{address}:4711\";proto=https")
        }
        (true, true, true) => {
            format!("proto=http ; FOR=\"[{address}]:4711\" ; host=\"\\\",for=1.1.1.1\"")
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn whatever_stands_left_of_what_trusted_proxies_added_the_caller_is_the_same(
        attack in vec(value(), 0..4),
        caller in prop_oneof![Just("203.0.113.7"), Just("2001:db8::7")],
        hops in vec(prop_oneof![Just("10.0.0.2"), Just("192.168.7.3"), Just("fd00::4")], 0..4),
        ways in vec((any::<bool>(), any::<bool>()), 4),
        in_forwarded: bool,
    ) {
        let header = if in_forwarded { ProxyHeader::Forwarded } else { ProxyHeader::XForwardedFor };
        let name = header.name();
        let mut map = HeaderMap::new();
        for line in &attack {
            map.append(name.clone(), HeaderValue::from_bytes(line).unwrap());
        }
        for (address, (dressed, in_own_line)) in std::iter::once(&caller).chain(&hops).zip(&ways) {
            let element = added(address, in_forwarded, *dressed);
            // An empty header is no line to add to with a comma; proxies differ, so both are tried.
            add_as_proxy(&mut map, &name, &element, *in_own_line);
        }
        let explained = behind_proxies(&["ip"], header).explain(ip(PROXY), &map, &Clients::default());
        prop_assert_eq!(explained.address.address, ip(caller));
        prop_assert_eq!(explained.address.hops, hops.len() + 1);
        prop_assert_eq!(explained.address.end, ChainEnd::Caller);
    }

    #[test]
    fn a_peer_that_is_not_trusted_is_the_caller_whatever_it_sends(lines in vec((0..4_usize, value()), 0..8)) {
        let names = [XFF, "forwarded", "x-user-id", "x-plan"];
        let mut map = HeaderMap::new();
        for (name, value) in &lines {
            map.append(HeaderName::from_static(names[*name]), HeaderValue::from_bytes(value).unwrap());
        }
        for header in [ProxyHeader::XForwardedFor, ProxyHeader::Forwarded] {
            let caller = behind_proxies(&SOURCES, header).caller(ip("203.0.113.7"), &map, &clients()).unwrap();
            prop_assert_eq!((caller.client(), caller.plan()), (Some("ip:203.0.113.7"), None));
        }
    }
}
