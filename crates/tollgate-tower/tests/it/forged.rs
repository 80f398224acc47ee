//! Whatever a caller writes into headers, it stays who it is.

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_tower::identity::{
    Clients, Identity, ProxyHeader, WalkEnd, forwarded_elements, forwarded_for,
};

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
        let expected = trusting.caller(ip("203.0.113.7"), &HeaderMap::new(), &clients());
        assert_eq!(expected.client(), Some("ip:203.0.113.7"));
        for_each_attack(|mut attack, shown| {
            assert_eq!(
                trusting.caller(ip("203.0.113.7"), &attack, &clients()),
                expected,
                "{shown}"
            );
            // Nor do headers that are believed from others.
            attack.append("x-user-id", "user_7".parse().unwrap());
            attack.append("x-plan", "enterprise".parse().unwrap());
            assert_eq!(
                trusting.caller(ip("203.0.113.7"), &attack, &clients()),
                expected,
                "{shown}"
            );
        });
    }
}

#[test]
fn where_nobody_is_trusted_no_header_changes_the_address() {
    let identity = open_to_all(&SOURCES);
    let expected = identity.caller(ip(PROXY), &HeaderMap::new(), &clients());
    for_each_attack(|attack, shown| {
        assert_eq!(
            identity.caller(ip(PROXY), &attack, &clients()),
            expected,
            "{shown}"
        );
    });
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
        let name = proxy_header.name();
        for in_own_line in [false, true] {
            for_each_attack(|mut attack, shown| {
                add_as_proxy(&mut attack, &name, element, in_own_line);
                let caller = identity.caller(ip(PROXY), &attack, &clients());
                assert_eq!(
                    caller.client(),
                    Some("ip:203.0.113.7"),
                    "{proxy_header}: {shown}"
                );
                assert_eq!((caller.ip(), caller.plan()), (ip("203.0.113.7"), None));
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
    let caller = identity.caller(
        ip(PROXY),
        &headers(&[("X_Forwarded_For", "198.51.100.9")]),
        &Clients::default(),
    );
    assert_eq!(caller.client(), Some("ip:10.0.0.1"));
    let caller = identity.caller(
        ip(PROXY),
        &headers(&[("x-FORWARDED-for", "198.51.100.9")]),
        &Clients::default(),
    );
    assert_eq!(caller.client(), Some("ip:198.51.100.9"));
}

/// The walk over what trusted proxies wrote: lines, then where it ends and why.
fn walk(identity: &Identity, name: &str, lines: &[&str]) -> (String, usize, WalkEnd) {
    let lines: Vec<_> = lines.iter().map(|line| (name, *line)).collect();
    let walk = identity
        .explain(ip(PROXY), &headers(&lines), &Clients::default())
        .address;
    (walk.address.to_string(), walk.hops, walk.end)
}

#[test]
fn the_walk_goes_over_trusted_addresses_from_the_right_and_ends_at_the_first_other() {
    let identity = behind_proxies(&["ip"], ProxyHeader::XForwardedFor);
    for (lines, address, hops, end) in [
        (&[][..], PROXY, 0, WalkEnd::NothingSaid),
        (&["203.0.113.7"], "203.0.113.7", 1, WalkEnd::Caller),
        (
            &["198.51.100.9, 203.0.113.7"],
            "203.0.113.7",
            1,
            WalkEnd::Caller,
        ),
        (
            &["198.51.100.9, 203.0.113.7, 192.168.7.1, fd00::2"],
            "203.0.113.7",
            3,
            WalkEnd::Caller,
        ),
        (
            &["198.51.100.9", "203.0.113.7", "192.168.7.1,fd00::2"],
            "203.0.113.7",
            3,
            WalkEnd::Caller,
        ),
        (
            &["203.0.113.7, [fd00::2]:443, 192.168.7.1:80"],
            "203.0.113.7",
            3,
            WalkEnd::Caller,
        ),
        (
            &["203.0.113.7, ::ffff:10.0.0.2"],
            "203.0.113.7",
            2,
            WalkEnd::Caller,
        ),
        // Near a trusted network is not inside it.
        (
            &["198.51.100.9, 192.168.8.1"],
            "192.168.8.1",
            1,
            WalkEnd::Caller,
        ),
        (
            &["198.51.100.9, 64:ff9b::10.0.0.2"],
            "64:ff9b::a00:2",
            1,
            WalkEnd::Caller,
        ),
        // All are trusted: one of ours calls.
        (&["10.0.0.3, 10.0.0.2"], "10.0.0.3", 2, WalkEnd::AllTrusted),
        // What cannot be read ends it.
        (&[""], PROXY, 0, WalkEnd::Unreadable),
        (&["203.0.113.7, unknown"], PROXY, 0, WalkEnd::Unreadable),
        (
            &["203.0.113.7, unknown, 10.0.0.2"],
            "10.0.0.2",
            1,
            WalkEnd::Unreadable,
        ),
        (
            &["203.0.113.7,, 10.0.0.2"],
            "10.0.0.2",
            1,
            WalkEnd::Unreadable,
        ),
        (
            &["203.0.113.7", "", "10.0.0.2"],
            "10.0.0.2",
            1,
            WalkEnd::Unreadable,
        ),
        (&["203.0.113.7, 10.0.0.2,"], PROXY, 0, WalkEnd::Unreadable),
    ] {
        assert_eq!(
            walk(&identity, XFF, lines),
            (address.to_owned(), hops, end),
            "{lines:?}"
        );
    }
}

#[test]
fn the_walk_over_forwarded_is_the_same() {
    let identity = behind_proxies(&["ip"], ProxyHeader::Forwarded);
    for (lines, address, hops, end) in [
        (&[][..], PROXY, 0, WalkEnd::NothingSaid),
        (&["for=203.0.113.7"], "203.0.113.7", 1, WalkEnd::Caller),
        (
            &["for=198.51.100.9, FOR=203.0.113.7;by=10.0.0.2, by=x;for=\"[fd00::2]:4711\""],
            "203.0.113.7",
            2,
            WalkEnd::Caller,
        ),
        (
            &["for=198.51.100.9", "for=203.0.113.7", "for=10.0.0.2"],
            "203.0.113.7",
            2,
            WalkEnd::Caller,
        ),
        (
            &["for=10.0.0.3,for=10.0.0.2"],
            "10.0.0.3",
            2,
            WalkEnd::AllTrusted,
        ),
        (
            &["for=203.0.113.7, for=unknown, for=10.0.0.2"],
            "10.0.0.2",
            1,
            WalkEnd::Unreadable,
        ),
        (
            &["for=203.0.113.7, for=_hidden"],
            PROXY,
            0,
            WalkEnd::Unreadable,
        ),
        (
            &["for=203.0.113.7, proto=http"],
            PROXY,
            0,
            WalkEnd::Unreadable,
        ),
        (
            &["for=203.0.113.7, for=10.0.0.2;for=10.0.0.3"],
            PROXY,
            0,
            WalkEnd::Unreadable,
        ),
        (
            &["for=203.0.113.7, for=[fd00::2]"],
            PROXY,
            0,
            WalkEnd::Unreadable,
        ),
        (&["203.0.113.7"], PROXY, 0, WalkEnd::Unreadable),
    ] {
        assert_eq!(
            walk(&identity, "forwarded", lines),
            (address.to_owned(), hops, end),
            "{lines:?}"
        );
    }
}

#[test]
fn a_walk_has_an_end_however_long_the_header() {
    let chain = |trusted: usize| format!("203.0.113.7{}", ", 10.0.0.2".repeat(trusted));
    let identity = behind_proxies(&["ip"], ProxyHeader::XForwardedFor);
    assert_eq!(
        walk(&identity, XFF, &[&chain(63)]),
        ("203.0.113.7".into(), 64, WalkEnd::Caller)
    );
    assert_eq!(
        walk(&identity, XFF, &[&chain(64)]),
        ("10.0.0.2".into(), 64, WalkEnd::TooLong)
    );
    assert_eq!(
        walk(&identity, XFF, &[&chain(10_000)]),
        ("10.0.0.2".into(), 64, WalkEnd::TooLong)
    );
    let many_lines = vec!["10.0.0.2"; 1_000];
    assert_eq!(
        walk(&identity, XFF, &many_lines),
        ("10.0.0.2".into(), 64, WalkEnd::TooLong)
    );
    let exactly = vec!["10.0.0.2"; 64];
    assert_eq!(
        walk(&identity, XFF, &exactly),
        ("10.0.0.2".into(), 64, WalkEnd::AllTrusted)
    );
}

/// Anything that a header's value may be, mostly made of what matters to readers of addresses.
fn value() -> impl Strategy<Value = Vec<u8>> {
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
        prop_assert_eq!(explained.address.end, WalkEnd::Caller);
    }

    #[test]
    fn a_peer_that_is_not_trusted_is_the_caller_whatever_it_sends(lines in vec((0..4_usize, value()), 0..8)) {
        let names = [XFF, "forwarded", "x-user-id", "x-plan"];
        let mut map = HeaderMap::new();
        for (name, value) in &lines {
            map.append(HeaderName::from_static(names[*name]), HeaderValue::from_bytes(value).unwrap());
        }
        for header in [ProxyHeader::XForwardedFor, ProxyHeader::Forwarded] {
            let caller = behind_proxies(&SOURCES, header).caller(ip("203.0.113.7"), &map, &clients());
            prop_assert_eq!((caller.client(), caller.plan()), (Some("ip:203.0.113.7"), None));
        }
    }

    #[test]
    fn elements_that_are_well_formed_are_found_again(texts in vec("[ -~]{0,12}", 1..6)) {
        let quoted = |text: &String| format!("for=\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let line = texts.iter().map(quoted).collect::<Vec<_>>().join(", ");
        let mut found: Vec<String> = forwarded_elements(line.as_bytes())
            .map(|element| forwarded_for(std::str::from_utf8(element).unwrap()).unwrap().into_owned())
            .collect();
        found.reverse();
        prop_assert_eq!(found, texts);
    }

    #[test]
    fn no_line_of_forwarded_is_lost_or_looked_at_twice(line in value()) {
        let mut elements: Vec<&[u8]> = forwarded_elements(&line).collect();
        elements.reverse();
        prop_assert_eq!(elements.join(&b','), line.clone());
        for element in elements {
            let text = String::from_utf8_lossy(element);
            let _ = forwarded_for(&text);
        }
    }
}
