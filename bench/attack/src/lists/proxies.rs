//! What proxies say of a request: believed from those that are trusted, in one way to read it, and from nobody else.

use super::identity::{IDENTITY, LINES, USER};
use super::{Attacks, Family, OPEN, Setup, Shape, Subject};

/// Behind proxies that are trusted, as are all sources here.
const TRUSTED: Setup = Setup {
    name: "trusted proxies",
    sections: "identity: { client: [\"header:X-User-Id\", ip], plan: [\"header:X-Plan\"], trusted_proxies: [127.0.0.0/8] }\n",
    ..IDENTITY
};

/// By address, with nobody trusted.
const ADDRESSES: Setup = Setup {
    name: "addresses",
    sections: "",
    rules: "  - { id: address, per: [ip], limit: \"3/h burst 3\" }\n",
    ..IDENTITY
};

/// Plain: `X-User-Id: {w}` from a trusted proxy, which has passed it on as its client sent it.
const TRUSTED_USERS: &[&[u8]] = &[
    b"X-User-Id: {w}\r\nX-User-Id: junk{i}",
    b"X-User-Id: junk{i}\r\nX-User-Id: {w}",
    b"X-User-Id: {w}\r\nX-User-Id:",
    b"X-User-Id: {w}\r\nX_User_Id: junk",
    b"X_User_Id: {w}\r\nX-User-Id: junk{i}",
    b"X-User-Id: {w}\r\nX-Forwarded-For: 203.0.113.{i}",
    b"X-User-Id: {w}\r\nX-User-Id: \xff",
];

/// Plain: `X-Plan: {w}` from a trusted proxy, with a rule for this plan.
const PLANS: &[&[u8]] = &[
    b"X-Plan: {w}\r\nX-Plan: junk",
    b"X-Plan: junk\r\nX-Plan: {w}",
    b"X-Plan: {w}\r\nX-Plan:",
    b"X-Plan:\r\nX-Plan: {w}",
    b"X-Plan: {w}\r\nX-Plan: {long}",
    b"X-Plan: {w}\r\nX-Plan: \xff",
    b"X-Plan: {w}\r\nX-Plan: {w}",
    b"x-plan:{w}",
    b"X-Plan: {w} ",
    b"X-Plan: {w}\xa0",
    b"X_Plan: {w}",
    b"X-Plan: junk\r\nX_Plan: {w}",
];

/// Plain: nothing. A limit by address, which no header may change.
const CLAIMS: &[&[u8]] = &[
    b"X-Forwarded-For: 203.0.113.{i}",
    b"X-Forwarded-For: 203.0.113.{i}, 203.0.113.9",
    b"X-Forwarded-For: 203.0.113.{i}\r\nX-Forwarded-For: 203.0.113.9",
    b"X-Forwarded-For: \xff",
    b"X-Forwarded-For:",
    b"X-Forwarded-For: {long}",
    b"X_Forwarded_For: 203.0.113.{i}",
    b"Forwarded: for=203.0.113.{i}",
    b"X-Real-IP: 203.0.113.{i}",
    b"X_Real_IP: 203.0.113.{i}",
    b"True-Client-IP: 203.0.113.{i}",
    b"CF-Connecting-IP: 203.0.113.{i}",
    b"X-Client-IP: 203.0.113.{i}",
    b"X-Cluster-Client-IP: 203.0.113.{i}",
    b"Connection: X-Forwarded-For\r\nX-Forwarded-For: 203.0.113.{i}",
    b"Connection: close, x-forwarded-for",
    b"X-User-Id: junk{i}",
    b"X-API-Key: junk{i}",
    b"Via: 1.1 203.0.113.{i}",
];

/// Headers that only a trusted proxy may set, from somebody else: none may arrive with this address.
const POSED: &[&[u8]] = &[
    b"X-Real-IP: {address}",
    b"x-real-ip:{address}",
    b"X-Real-IP: 203.0.113.9\r\nX-Real-IP: {address}",
    b"X_Real_IP: {address}",
    b"X-Real_IP: {address}",
    b"Forwarded: for={address}",
    b"Forwarded: for={address};host=a;proto=https",
    b"Forwarded: for=\"{address}:80\"",
    b"X-Forwarded-For: 203.0.113.9\r\nForwarded: for={address}",
    b"Connection: X-Real-IP\r\nX-Real-IP: {address}",
    b"X-Real-IP : {address}",
    b" X-Real-IP: {address}",
];

/// Plain: `X-Forwarded-For: {address}` from a trusted proxy.
const CHAINS: &[&[u8]] = &[
    b"X-Forwarded-For: 203.0.113.{i}, {address}",
    b"X-Forwarded-For: junk, {address}",
    b"X-Forwarded-For: , {address}",
    b"X-Forwarded-For: {address},",
    b"X-Forwarded-For: {address}, ",
    b"X-Forwarded-For: {address},,",
    b"X-Forwarded-For: {address}, 127.0.0.1",
    b"X-Forwarded-For: {address},127.0.0.1,127.0.0.2",
    b"X-Forwarded-For: {address}\r\nX-Forwarded-For: 127.0.0.1",
    b"X-Forwarded-For: 203.0.113.{i}\r\nX-Forwarded-For: {address}",
    b"X-Forwarded-For: {address}\r\nX-Forwarded-For:",
    b"X-Forwarded-For:\r\nX-Forwarded-For: {address}",
    b"X-Forwarded-For: {address}:1{i}",
    b"X-Forwarded-For: \"{address}\"",
    b"X-Forwarded-For: ::ffff:{address}",
    b"X-Forwarded-For: [::ffff:{address}]:8{i}",
    b"X-Forwarded-For:\t{address}\t",
    b"x-forwarded-for:{address}",
    b"X_Forwarded_For: 203.0.113.{i}\r\nX-Forwarded-For: {address}",
    b"X-Forwarded-For: {address}\r\nForwarded: for=203.0.113.{i}",
    b"X-Forwarded-For: {address}\r\nX-Real-IP: 203.0.113.{i}",
    b"X-Forwarded-For: {address}\xa0",
    b"X-Forwarded-For: 203.0.113.{i} {address}",
    b"X-Forwarded-For: 203.0.113.{i}\t,\t{address}",
];

pub(crate) fn families() -> Vec<Family> {
    vec![
        Family {
            name: "user id from a trusted proxy",
            setup: &TRUSTED,
            attacks: Attacks::Texts(TRUSTED_USERS),
            ..USER
        },
        Family {
            name: "plan from a trusted proxy",
            setup: &TRUSTED,
            shape: Shape {
                lines: "X-User-Id: user-{w}-{i}\r\n",
                ..OPEN
            },
            plain: Some(b"X-Plan: {w}"),
            attacks: Attacks::Texts(PLANS),
            subject: Subject::Plan,
            rule: "{ id: \"{w}\", match: { plan: \"{w}\" }, per: [], limit: \"3/h burst 3\" }",
            client: "",
            ..LINES
        },
        Family {
            name: "address of the connection",
            setup: &ADDRESSES,
            plain: Some(b"Accept: a"),
            attacks: Attacks::Texts(CLAIMS),
            subject: Subject::Source,
            client: "",
            one_source: true,
            ..LINES
        },
        Family {
            name: "address of somebody else",
            setup: &ADDRESSES,
            plain: None,
            attacks: Attacks::Texts(POSED),
            subject: Subject::ClaimedAddress,
            limit: 0,
            client: "",
            ..LINES
        },
        Family {
            name: "address from a trusted proxy",
            setup: &TRUSTED,
            plain: Some(b"X-Forwarded-For: {address}"),
            attacks: Attacks::Texts(CHAINS),
            subject: Subject::Address,
            client: "",
            ..LINES
        },
    ]
}
