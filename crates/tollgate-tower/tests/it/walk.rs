//! From the peer back to the caller, over what trusted proxies wrote, in either header.

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_tower::identity::{
    ChainEnd, Clients, Identity, ProxyHeader, forwarded_elements, forwarded_for,
};

use crate::forged::value;
use crate::support::{PROXY, XFF, behind_proxies, headers, ip};

/// The walk over what trusted proxies wrote: lines, then where it ends and why.
fn walk(identity: &Identity, name: &str, lines: &[&str]) -> (String, usize, ChainEnd) {
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
        (&[][..], PROXY, 0, ChainEnd::NothingSaid),
        (&["203.0.113.7"], "203.0.113.7", 1, ChainEnd::Caller),
        (
            &["198.51.100.9, 203.0.113.7"],
            "203.0.113.7",
            1,
            ChainEnd::Caller,
        ),
        (
            &["198.51.100.9, 203.0.113.7, 192.168.7.1, fd00::2"],
            "203.0.113.7",
            3,
            ChainEnd::Caller,
        ),
        (
            &["198.51.100.9", "203.0.113.7", "192.168.7.1,fd00::2"],
            "203.0.113.7",
            3,
            ChainEnd::Caller,
        ),
        (
            &["203.0.113.7, [fd00::2]:443, 192.168.7.1:80"],
            "203.0.113.7",
            3,
            ChainEnd::Caller,
        ),
        (
            &["203.0.113.7, ::ffff:10.0.0.2"],
            "203.0.113.7",
            2,
            ChainEnd::Caller,
        ),
        // Near a trusted network is not inside it.
        (
            &["198.51.100.9, 192.168.8.1"],
            "192.168.8.1",
            1,
            ChainEnd::Caller,
        ),
        (
            &["198.51.100.9, 64:ff9b::10.0.0.2"],
            "64:ff9b::a00:2",
            1,
            ChainEnd::Caller,
        ),
        // All are trusted: one of ours calls.
        (&["10.0.0.3, 10.0.0.2"], "10.0.0.3", 2, ChainEnd::AllTrusted),
        // What cannot be read ends it.
        (&[""], PROXY, 0, ChainEnd::Unreadable),
        (&["203.0.113.7, unknown"], PROXY, 0, ChainEnd::Unreadable),
        (
            &["203.0.113.7, unknown, 10.0.0.2"],
            "10.0.0.2",
            1,
            ChainEnd::Unreadable,
        ),
        (
            &["203.0.113.7,, 10.0.0.2"],
            "10.0.0.2",
            1,
            ChainEnd::Unreadable,
        ),
        (
            &["203.0.113.7", "", "10.0.0.2"],
            "10.0.0.2",
            1,
            ChainEnd::Unreadable,
        ),
        (&["203.0.113.7, 10.0.0.2,"], PROXY, 0, ChainEnd::Unreadable),
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
        (&[][..], PROXY, 0, ChainEnd::NothingSaid),
        (&["for=203.0.113.7"], "203.0.113.7", 1, ChainEnd::Caller),
        (
            &["for=198.51.100.9, FOR=203.0.113.7;by=10.0.0.2, by=x;for=\"[fd00::2]:4711\""],
            "203.0.113.7",
            2,
            ChainEnd::Caller,
        ),
        (
            &["for=198.51.100.9", "for=203.0.113.7", "for=10.0.0.2"],
            "203.0.113.7",
            2,
            ChainEnd::Caller,
        ),
        (
            &["for=10.0.0.3,for=10.0.0.2"],
            "10.0.0.3",
            2,
            ChainEnd::AllTrusted,
        ),
        (
            &["for=203.0.113.7, for=unknown, for=10.0.0.2"],
            "10.0.0.2",
            1,
            ChainEnd::Unreadable,
        ),
        (
            &["for=203.0.113.7, for=_hidden"],
            PROXY,
            0,
            ChainEnd::Unreadable,
        ),
        (
            &["for=203.0.113.7, proto=http"],
            PROXY,
            0,
            ChainEnd::Unreadable,
        ),
        (
            &["for=203.0.113.7, for=10.0.0.2;for=10.0.0.3"],
            PROXY,
            0,
            ChainEnd::Unreadable,
        ),
        (
            &["for=203.0.113.7, for=[fd00::2]"],
            PROXY,
            0,
            ChainEnd::Unreadable,
        ),
        (&["203.0.113.7"], PROXY, 0, ChainEnd::Unreadable),
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
        ("203.0.113.7".into(), 64, ChainEnd::Caller)
    );
    assert_eq!(
        walk(&identity, XFF, &[&chain(64)]),
        ("10.0.0.2".into(), 64, ChainEnd::TooLong)
    );
    assert_eq!(
        walk(&identity, XFF, &[&chain(10_000)]),
        ("10.0.0.2".into(), 64, ChainEnd::TooLong)
    );
    let many_lines = vec!["10.0.0.2"; 1_000];
    assert_eq!(
        walk(&identity, XFF, &many_lines),
        ("10.0.0.2".into(), 64, ChainEnd::TooLong)
    );
    let exactly = vec!["10.0.0.2"; 64];
    assert_eq!(
        walk(&identity, XFF, &exactly),
        ("10.0.0.2".into(), 64, ChainEnd::AllTrusted)
    );
}

proptest! {
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
