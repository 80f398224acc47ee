//! Other ways to send a header that rules look at: as a condition, or as what a limit counts by.

use super::identity::{IDENTITY, LINES};
use super::{Attacks, Family, Setup, Subject};

const CONDITION: Setup = Setup {
    name: "headers as conditions",
    sections: "",
    rules: "",
    ..IDENTITY
};

const PER_HEADER: Setup = Setup {
    name: "limits per header",
    rules: "  - { id: tenant, per: [\"header:X-Tenant\"], limit: \"3/h burst 3\" }\n",
    ..CONDITION
};

const PASS_UNDERSCORES: Setup = Setup {
    name: "underscores refused",
    gateway: "  underscores: reject\n",
    ..CONDITION
};

/// Plain: `X-Tenant: {w}`.
const TENANTS: &[&[u8]] = &[
    b"X-Tenant: {w}\r\nX-Tenant: junk{i}",
    b"X-Tenant: junk{i}\r\nX-Tenant: {w}",
    b"X-Tenant: {w}\r\nX-Tenant: {w}",
    b"X-Tenant: {w}\r\nX-Tenant:",
    b"X-Tenant:\r\nX-Tenant: {w}",
    b"X-Tenant: {w}\r\nX-Tenant: \t",
    b"X-Tenant: {w}\r\nX-Tenant: \xff",
    b"X-Tenant: \xff\r\nX-Tenant: {w}",
    b"X-Tenant: {w}\r\nX-Tenant: {long}",
    b"X-Tenant: {long}\r\nX-Tenant: {w}",
    b"X-Tenant: a{i}\r\nX-Tenant: b\r\nX-Tenant: {w}",
    b"X-Tenant: {w}\r\nX-Tenant: b\r\nX-Tenant: c{i}",
    b"X-Tenant: {w}\r\nAccept: a\r\nX-Tenant: junk{i}",
    b"x-tenant: {w}\r\nX-TENANT: junk{i}",
    b"x-tenant:{w}",
    b"X-TENANT:  {w}",
    b"X-Tenant:\t{w}\t",
    b"X-Tenant: {w}   ",
    b"X-Tenant : {w}",
    b" X-Tenant: {w}",
    b"X-Tenant:\r\n {w}",
    b"X-Tenant: {w}\r\n junk{i}",
    b"Accept: a\nX-Tenant: {w}",
    b"Accept: a\rX-Tenant: {w}",
    b"X_Tenant: {w}",
    b"x_tenant: {w}",
    b"X_Tenant: {w}\r\nX-Tenant: junk{i}",
    b"X-Tenant: junk{i}\r\nX_Tenant: {w}",
    b"X.Tenant: {w}",
    b"X!Tenant: {w}\r\nX-Tenant: junk{i}",
    b"X-Tenant: {w}\x00",
    b"X-Tenant: {w}\x0b",
    b"X-Tenant: {w}\x1f",
    b"X-Tenant: {w}\x7f",
    b"X-Tenant: {w}\x85",
    b"X-Tenant: {w}\xa0",
    b"X-Tenant: \xa0{w}",
    b"X-Tenant: {w}\xc2\xa0",
    b"X-Tenant: \xef\xbb\xbf{w}",
    b"X-Tenant: {w}\xff",
    b"X-Tenant: {w}, junk{i}",
    b"X-Tenant: junk{i}, {w}",
    b"X-Tenant: {w},junk{i}",
    b"X-Tenant: junk{i},{w}",
    b"X-Tenant: {w},",
    b"X-Tenant: ,{w}",
    b"X-Tenant: {w}, {w}",
    b"X-Tenant: \"{w}\"",
    b"X-Tenant: {W}",
    b"X-Tenant: {w};a=b",
    b"X-Tenant: {w}\r\nConnection: X-Tenant",
    b"Connection: close, x-tenant\r\nX-Tenant: {w}",
    b"{many}X-Tenant: {w}",
    b"{flood}X-Tenant: {w}",
    b"X-Tenant: {w}\r\nCookie: a=b\r\nCookie: c=d",
    b"X-Tenant: {w}\r\nExpect: 100-continue",
];

/// Plain: `X-Feature-{w}: 1`, with a rule for requests that have the header.
const PRESENT: &[&[u8]] = &[
    b"X-Feature-{w}:",
    b"X-Feature-{w}: ",
    b"X-Feature-{w}:\t",
    b"X-Feature-{w}: \xff",
    b"X-Feature-{w}: {long}",
    b"X-Feature-{w}:\r\nX-Feature-{w}:",
    b"x-feature-{w}: 1",
    b"X-FEATURE-{W}: 1",
    b"X-Feature-{w} : 1",
    b" X-Feature-{w}: 1",
    b"X-Feature-{w}:\r\n 1",
    b"X-Feature-{w}: 1\r\nConnection: X-Feature-{w}",
    b"X-Feature-{w}: 1\r\nX-Feature-{w}: 2",
    b"{many}X-Feature-{w}: 1",
];

const TENANT: Family = Family {
    name: "header of a condition",
    setup: &CONDITION,
    plain: Some(b"X-Tenant: {w}"),
    attacks: Attacks::Texts(TENANTS),
    subject: Subject::Tenant,
    rule: "{ id: \"{w}\", match: { headers: { X-Tenant: \"{w}\" } }, per: [], limit: \"3/h burst 3\" }",
    client: "",
    ..LINES
};

pub(crate) fn families() -> Vec<Family> {
    vec![
        TENANT,
        Family {
            name: "header that a limit counts by",
            setup: &PER_HEADER,
            rule: "",
            ..TENANT
        },
        Family {
            name: "header that is there",
            plain: Some(b"X-Feature-{w}: 1"),
            attacks: Attacks::Texts(PRESENT),
            subject: Subject::HeaderNamed("x-feature-{w}"),
            rule: "{ id: \"{w}\", match: { headers: { X-Feature-{w}: \"*\" } }, per: [], limit: \"3/h burst 3\" }",
            ..TENANT
        },
        Family {
            name: "header with underscores refused",
            setup: &PASS_UNDERSCORES,
            attacks: Attacks::Texts(UNDERSCORES),
            ..TENANT
        },
    ]
}

/// Plain: `X-Tenant: {w}`.
const UNDERSCORES: &[&[u8]] = &[
    b"X_Tenant: {w}",
    b"x_tenant: {w}",
    b"X_Tenant: {w}\r\nX-Tenant: junk{i}",
    b"X-Tenant: junk{i}\r\nX_Tenant: {w}",
    b"X.Tenant: {w}",
    b"X~Tenant: {w}\r\nX-Tenant: junk{i}",
];
