//! Every spelling of an address ends in one bucket or is refused.

use std::net::IpAddr;

use proptest::prelude::*;
use tollgate_tower::identity::{Clients, Identity, IdentityConfig, ProxyHeader, parse_address};

use crate::support::{PROXY, XFF, behind_proxies, headers, ip};

/// How an address may be written, and the client that it makes; `None` if nobody should read it.
const SPELLINGS: &[(&str, Option<&str>)] = &[
    // IPv4
    ("203.0.113.7", Some("ip:203.0.113.7")),
    ("203.0.113.7:5678", Some("ip:203.0.113.7")),
    ("203.0.113.7:0", Some("ip:203.0.113.7")),
    ("203.0.113.7:65535", Some("ip:203.0.113.7")),
    ("203.0.113.7:_abc", Some("ip:203.0.113.7")),
    (" 203.0.113.7", Some("ip:203.0.113.7")),
    ("203.0.113.7 ", Some("ip:203.0.113.7")),
    ("\t 203.0.113.7:80\t ", Some("ip:203.0.113.7")),
    ("0.0.0.0", Some("ip:0.0.0.0")),
    ("255.255.255.255", Some("ip:255.255.255.255")),
    // IPv4 written as IPv6, and behind NAT64
    ("::ffff:203.0.113.7", Some("ip:203.0.113.7")),
    ("::FFFF:203.0.113.7", Some("ip:203.0.113.7")),
    ("::ffff:cb00:7107", Some("ip:203.0.113.7")),
    ("0:0:0:0:0:ffff:203.0.113.7", Some("ip:203.0.113.7")),
    (
        "0000:0000:0000:0000:0000:ffff:cb00:7107",
        Some("ip:203.0.113.7"),
    ),
    ("[::ffff:203.0.113.7]", Some("ip:203.0.113.7")),
    ("[::ffff:203.0.113.7]:443", Some("ip:203.0.113.7")),
    ("::ffff:203.0.113.7%eth0", Some("ip:203.0.113.7")),
    ("64:ff9b::203.0.113.7", Some("ip:203.0.113.7")),
    ("64:ff9b::cb00:7107", Some("ip:203.0.113.7")),
    ("0064:FF9B::203.0.113.7", Some("ip:203.0.113.7")),
    ("[64:ff9b::203.0.113.7]:443", Some("ip:203.0.113.7")),
    // What only looks like it
    ("64:ff9b:1::203.0.113.7", Some("ip:64:ff9b:1::/64")),
    ("64:ff9b:0:0:0:1:cb00:7107", Some("ip:64:ff9b::/64")),
    ("::203.0.113.7", Some("ip:::/64")),
    ("::ffff:0:203.0.113.7", Some("ip:::/64")),
    // IPv6
    ("2001:db8::1", Some("ip:2001:db8::/64")),
    ("2001:DB8::1", Some("ip:2001:db8::/64")),
    (
        "2001:0db8:0000:0000:0000:0000:0000:0001",
        Some("ip:2001:db8::/64"),
    ),
    ("2001:db8:0:0:ffff:ffff:ffff:ffff", Some("ip:2001:db8::/64")),
    ("2001:db8:0:1::1", Some("ip:2001:db8:0:1::/64")),
    ("2001:db8::192.0.2.1", Some("ip:2001:db8::/64")),
    ("[2001:db8::1]", Some("ip:2001:db8::/64")),
    ("[2001:db8::1]:443", Some("ip:2001:db8::/64")),
    ("[2001:db8::1]:_abc", Some("ip:2001:db8::/64")),
    (" [2001:db8::1]:443 ", Some("ip:2001:db8::/64")),
    // Not bracketed, so what looks like a port is part of the address. The network is the same.
    ("2001:db8::1:443", Some("ip:2001:db8::/64")),
    ("::1", Some("ip:::/64")),
    ("[::1]", Some("ip:::/64")),
    ("::", Some("ip:::/64")),
    ("fe80::1%eth0", Some("ip:fe80::/64")),
    ("fe80::1%25eth0", Some("ip:fe80::/64")),
    ("[fe80::1%eth0.1]:80", Some("ip:fe80::/64")),
    ("[fe80::1%2]", Some("ip:fe80::/64")),
    // Leading zeros, other bases, fewer parts: libraries read them differently.
    ("010.0.0.1", None),
    ("203.0.113.07", None),
    ("203.000.113.7", None),
    ("::ffff:010.0.0.1", None),
    ("0x7f.0.0.1", None),
    ("0x7f.1", None),
    ("0xcb007107", None),
    ("1.2.3", None),
    ("127.1", None),
    ("2130706433", None),
    ("1.2.3.4.5", None),
    ("1.2.3.4.", None),
    (".1.2.3.4", None),
    ("1.2.3.256", None),
    ("1.2.3.-4", None),
    ("+1.2.3.4", None),
    ("1.2. 3.4", None),
    ("1.2.3.4 5", None),
    // Ports and brackets that are not closed, empty or too much
    ("203.0.113.7:", None),
    ("203.0.113.7:65536", None),
    ("203.0.113.7:000080", None),
    ("203.0.113.7:80a", None),
    ("203.0.113.7:+80", None),
    ("203.0.113.7:_", None),
    ("203.0.113.7:80:80", None),
    ("[203.0.113.7]", None),
    ("[203.0.113.7]:80", None),
    ("[2001:db8::1", None),
    ("2001:db8::1]", None),
    ("[2001:db8::1]443", None),
    ("[2001:db8::1]:", None),
    ("[[2001:db8::1]]", None),
    ("[]", None),
    ("[]:80", None),
    ("[ ::1 ]", None),
    // Not IPv6
    (":", None),
    (":::", None),
    ("1:2:3:4:5:6:7", None),
    ("1:2:3:4:5:6:7:8:9", None),
    ("2001:db8::1::2", None),
    ("2001:db8::12345", None),
    ("2001:db8::g", None),
    ("fe80::1%", None),
    ("fe80::1%et/h0", None),
    ("%eth0", None),
    ("203.0.113.7%eth0", None),
    // No addresses
    ("", None),
    (" ", None),
    ("unknown", None),
    ("_hidden", None),
    ("localhost", None),
    ("example.com:80", None),
    ("203.0.113.0/24", None),
    ("2001:db8::/32", None),
    ("\"203.0.113.7\"", None),
    ("for=203.0.113.7", None),
    ("http://203.0.113.7", None),
    ("203.0.113.7;203.0.113.8", None),
    ("null", None),
    ("-", None),
    ("٢٠٣.٠.١١٣.٧", None),
    ("２０３.0.113.7", None),
];

#[test]
fn every_spelling_ends_in_its_bucket_or_is_refused() {
    assert!(SPELLINGS.len() >= 60);
    let forwarded_for = behind_proxies(&["ip"], ProxyHeader::XForwardedFor);
    let forwarded = behind_proxies(&["ip"], ProxyHeader::Forwarded);
    for (spelling, expected) in SPELLINGS {
        assert_eq!(
            parse_address(spelling).is_ok(),
            expected.is_some(),
            "{spelling:?}"
        );

        // What is refused leaves the caller with the bucket of the proxy that passed it on.
        let expected = Some(expected.unwrap_or("ip:10.0.0.1"));
        let line = headers(&[(XFF, spelling)]);
        let caller = forwarded_for
            .caller(ip(PROXY), &line, &Clients::default())
            .unwrap();
        assert_eq!(caller.client(), expected, "X-Forwarded-For: {spelling}");

        let escaped = spelling.replace('\\', "\\\\").replace('"', "\\\"");
        let line = headers(&[("forwarded", format!("proto=http;for=\"{escaped}\""))]);
        let caller = forwarded
            .caller(ip(PROXY), &line, &Clients::default())
            .unwrap();
        assert_eq!(caller.client(), expected, "Forwarded: for=\"{escaped}\"");
    }
}

#[test]
fn control_characters_and_line_breaks_are_no_part_of_an_address() {
    for text in [
        "203.0.113.7\n",
        "\r203.0.113.7",
        "203.0.113.7\0",
        "\u{b}203.0.113.7",
        "\u{a0}203.0.113.7",
        "203.0.113.7:8\n0",
    ] {
        assert!(parse_address(text).is_err(), "{text:?}");
    }
}

#[test]
fn a_peer_counts_like_an_address_in_a_header() {
    let identity = behind_proxies(&["ip"], ProxyHeader::XForwardedFor);
    for (peer, expected) in [
        ("203.0.113.7", "ip:203.0.113.7"),
        ("::ffff:203.0.113.7", "ip:203.0.113.7"),
        ("64:ff9b::203.0.113.7", "ip:203.0.113.7"),
        ("2001:db8::1", "ip:2001:db8::/64"),
    ] {
        let caller = identity
            .caller(ip(peer), &headers::<&str>(&[]), &Clients::default())
            .unwrap();
        assert_eq!(caller.client(), Some(expected));
    }
}

#[test]
fn a_trusted_proxy_is_trusted_in_either_form_but_not_inside_a_nat64_address() {
    let identity = behind_proxies(&["ip"], ProxyHeader::XForwardedFor);
    let line = headers(&[(XFF, "203.0.113.7")]);
    let client = |peer: &str| {
        identity
            .caller(ip(peer), &line, &Clients::default())
            .unwrap()
            .client()
            .unwrap()
            .to_owned()
    };
    assert_eq!(client("10.0.0.1"), "ip:203.0.113.7");
    assert_eq!(client("::ffff:10.0.0.1"), "ip:203.0.113.7");
    assert_eq!(client("fd00::1"), "ip:203.0.113.7");
    // Who can send from the outer address would choose the inner one.
    assert_eq!(client("64:ff9b::10.0.0.1"), "ip:10.0.0.1");
}

#[test]
fn an_ipv6_address_counts_by_as_many_bits_as_configured() {
    let client = |ipv6_prefix: u8, peer: &str| {
        let config = IdentityConfig {
            ipv6_prefix,
            ..IdentityConfig::default()
        };
        let caller = Identity::new(config)
            .unwrap()
            .caller(ip(peer), &headers::<&str>(&[]), &Clients::default())
            .unwrap();
        (caller.client().unwrap().to_owned(), caller.ip())
    };
    let peer = "2001:db8:1234:5678:9abc:def0:1234:5678";
    assert_eq!(client(128, peer), (format!("ip:{peer}"), ip(peer)));
    assert_eq!(
        client(64, peer),
        (
            "ip:2001:db8:1234:5678::/64".into(),
            ip("2001:db8:1234:5678::")
        )
    );
    assert_eq!(
        client(56, peer),
        (
            "ip:2001:db8:1234:5600::/56".into(),
            ip("2001:db8:1234:5600::")
        )
    );
    assert_eq!(
        client(48, peer),
        ("ip:2001:db8:1234::/48".into(), ip("2001:db8:1234::"))
    );
    assert_eq!(client(1, "ffff::1"), ("ip:8000::/1".into(), ip("8000::")));
    assert_eq!(
        client(1, "203.0.113.7"),
        ("ip:203.0.113.7".into(), ip("203.0.113.7"))
    );
    for outside in [0, 129, 255] {
        let config = IdentityConfig {
            ipv6_prefix: outside,
            ..IdentityConfig::default()
        };
        let error = Identity::new(config).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("an IPv6 prefix of {outside} bits cannot be; use 1 to 128, mostly 64")
        );
    }
}

proptest! {
    #[test]
    fn every_address_is_read_as_itself_however_it_is_dressed(address: IpAddr, port: u16, spaces in "[ \t]{0,3}") {
        let forms = match address {
            IpAddr::V4(v4) => vec![
                format!("{v4}"), format!("{v4}:{port}"), format!("[{}]:{port}", v4.to_ipv6_mapped()), format!("{}", v4.to_ipv6_mapped()),
            ],
            IpAddr::V6(v6) => vec![format!("{v6}"), format!("[{v6}]"), format!("[{v6}]:{port}"), format!("{v6}%eth0"), format!("[{v6}%1]:{port}")],
        };
        for form in forms {
            prop_assert_eq!(parse_address(&format!("{spaces}{form}{spaces}")), Ok(address.to_canonical()));
        }
    }

    #[test]
    fn whatever_is_written_is_an_address_or_an_error(text in "[0-9a-fx.:%\\[\\] _,-]{0,40}|\\PC{0,40}") {
        if let Ok(address) = parse_address(&text) {
            prop_assert_eq!(parse_address(&address.to_string()), Ok(address));
        }
    }
}
