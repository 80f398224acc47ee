//! Other ways to name a method, so that a rule for it is not met while the upstream still does what it stands for.

use super::identity::{IDENTITY, LINES};
use super::{Attacks, Family, Front, OPEN, Place, Setup, Shape, Subject};

const METHODS: Setup = Setup {
    name: "methods",
    sections: "",
    rules: "",
    ..IDENTITY
};

/// nginx asks about preflights as about everything else.
const NGINX: Setup = Setup {
    name: "methods behind nginx",
    sections: "identity: { trusted_proxies: [127.0.0.1] }\n",
    front: Front::Nginx,
    ..METHODS
};

/// For upstreams that let a header override the method or the path.
const OVERRIDES: Setup = Setup {
    name: "override headers dropped",
    gateway: "  override_headers: drop\n",
    ..METHODS
};

/// Plain: `POST`.
const POSTS: &[&[u8]] = &[
    b"post",
    b"Post",
    b"pOST",
    b"PosT",
    b"POST\t",
    b"POST ",
    b" POST",
    b"\tPOST",
    b"\r\nPOST",
    b"\r\n\r\nPOST",
    b"\nPOST",
    b"POST\x00",
    b"POST\x0b",
    b"POST/",
    b"POST:",
    b"POST,GET",
    b"\"POST\"",
    b"POST\xff",
    b"P\xc3\x96ST",
    b"POST /{w}/charges HTTP/1.1\r\nX-A: b\r\n\r\nGET",
];

/// Plain: `GET`, whose rules are met by HEAD as well.
const GETS: &[&[u8]] = &[
    b"HEAD", b"get", b"Get", b"gET", b"head", b"Head", b"GET ", b" GET", b"GET\t", b"GET\x00",
];

/// Plain: `PURGE`, a method that only some servers know.
const PURGES: &[&[u8]] = &[b"purge", b"Purge", b"PURGe", b" PURGE", b"PURGE\t"];

/// Methods that must not arrive at all.
const REFUSED: &[&[u8]] = &[
    b"TRACE",
    b"trace",
    b"Trace",
    b"tRACE",
    b"TRACE\t",
    b" TRACE",
    b"CONNECT",
    b"connect",
    b"Connect",
    b"cONNECT",
    b"CONNECT\t",
    b" CONNECT",
];

/// Whole requests with a method that must not arrive.
const TUNNELS: &[&[u8]] = &[
    b"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n",
    b"connect {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n",
    b"CONNECT /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"CONNECT {host}:443 HTTP/1.0\r\n\r\n",
    b"TRACE http://a/{w} HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n",
    b"trace http://a/{w} HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
];

/// CONNECT in HTTP/2, also the extended one.
#[rustfmt::skip]
const TUNNELS_IN_HTTP2: &[super::Head] = &[
    &[("!:path", ""), ("!:scheme", ""), (":method", "CONNECT"), (":authority", "{host}:443")],
    &[(":method", "CONNECT"), (":path", "/{w}")],
    &[(":method", "CONNECT"), (":protocol", "websocket"), (":path", "/{w}")],
    &[(":method", "connect"), (":path", "/{w}")],
    &[(":method", "GET"), (":method", "TRACE"), (":path", "/{w}")],
    &[(":method", "TRACE"), (":path", "/{w}")],
];

/// Plain: `GET /{w}/charges`. Here CORS preflights, which need no credentials.
const PREFLIGHTS: &[&[u8]] = &[
    b"Origin: https://elsewhere.test\r\nAccess-Control-Request-Method: GET",
    b"Origin: null\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-api-key",
    b"Origin:\r\nAccess-Control-Request-Method:",
    b"Origin: https://elsewhere.test\r\nAccess-Control-Request-Method: GET\r\nX-API-Key: junk{i}",
];

/// Plain: `POST /{w}/charges`. Here a GET that asks to be taken for it.
const METHOD_OVERRIDES: &[&[u8]] = &[
    b"X-HTTP-Method-Override: POST",
    b"x-http-method-override:POST",
    b"X-HTTP-Method-Override: post",
    b"X-HTTP-Method-Override: POST\r\nX-HTTP-Method-Override: GET",
    b"X-HTTP-Method-Override: GET\r\nX-HTTP-Method-Override: POST",
    b"X-HTTP-Method: POST",
    b"X-Method-Override: POST",
    b"X_HTTP_Method_Override: POST",
    b"X-HTTP_Method-Override: POST",
    b"X_HTTP_Method: POST",
    b"X_Method_Override: POST",
    b"Connection: X-HTTP-Method-Override\r\nX-HTTP-Method-Override: POST",
    b"X-HTTP-Method-Override : POST",
];

/// Plain: `GET /{w}/charges`. Here another path that asks to be taken for it.
const PATH_OVERRIDES: &[&[u8]] = &[
    b"X-Original-URL: /{w}/charges",
    b"x-original-url:/{w}/charges",
    b"X-Rewrite-URL: /{w}/charges",
    b"X-Original-URL: /open\r\nX-Original-URL: /{w}/charges",
    b"X_Original_URL: /{w}/charges",
    b"X_Rewrite_URL: /{w}/charges",
    b"X-Original_URL: /{w}/charges",
    b"X-Rewrite-URL : /{w}/charges",
];

const ENDPOINT: Shape = Shape {
    target: "/{w}/charges",
    ..OPEN
};

const POST: Family = Family {
    name: "POST in other letters",
    setup: &METHODS,
    shape: ENDPOINT,
    place: Place::Method,
    plain: Some(b"POST"),
    attacks: Attacks::Texts(POSTS),
    subject: Subject::Method("POST", "/{w}/charges"),
    rule: "{ id: \"{w}\", match: { methods: [POST], path: \"/{w}/charges\" }, per: [], limit: \"3/h burst 3\" }",
    client: "",
    ..LINES
};

pub(crate) fn families() -> Vec<Family> {
    let any_arrival = Family {
        plain: None,
        subject: Subject::Arrived,
        limit: 0,
        rule: "",
        ..POST
    };
    let preflight = Family {
        name: "preflights",
        shape: Shape {
            method: "OPTIONS",
            ..ENDPOINT
        },
        place: Place::Lines,
        plain: None,
        attacks: Attacks::Texts(PREFLIGHTS),
        subject: Subject::Endpoint("/{w}/charges"),
        rule: "{ id: \"{w}\", match: { path: \"/{w}/charges\" }, per: [], limit: \"3/h burst 3\" }",
        ..POST
    };
    vec![
        POST,
        Family {
            name: "GET in other letters",
            plain: Some(b"GET"),
            attacks: Attacks::Texts(GETS),
            subject: Subject::Endpoint("/{w}/charges"),
            rule: "{ id: \"{w}\", match: { methods: [GET], path: \"/{w}/charges\" }, per: [], limit: \"3/h burst 3\" }",
            ..POST
        },
        Family {
            name: "a method that few know",
            plain: Some(b"PURGE"),
            attacks: Attacks::Texts(PURGES),
            subject: Subject::Method("PURGE", "/{w}/charges"),
            rule: "{ id: \"{w}\", match: { methods: [PURGE], path: \"/{w}/charges\" }, per: [], limit: \"3/h burst 3\" }",
            ..POST
        },
        Family {
            name: "TRACE and CONNECT",
            attacks: Attacks::Texts(REFUSED),
            ..any_arrival
        },
        Family {
            name: "tunnels",
            place: Place::Whole,
            attacks: Attacks::Texts(TUNNELS),
            ..any_arrival
        },
        Family {
            name: "tunnels in HTTP/2",
            attacks: Attacks::Heads(TUNNELS_IN_HTTP2),
            ..any_arrival
        },
        preflight,
        Family {
            name: "preflights behind nginx",
            setup: &NGINX,
            ..preflight
        },
        Family {
            name: "method overrides",
            setup: &OVERRIDES,
            place: Place::Lines,
            plain: None,
            attacks: Attacks::Texts(METHOD_OVERRIDES),
            ..POST
        },
        Family {
            name: "path overrides",
            setup: &OVERRIDES,
            shape: OPEN,
            place: Place::Lines,
            plain: None,
            attacks: Attacks::Texts(PATH_OVERRIDES),
            subject: Subject::Endpoint("/{w}/charges"),
            rule: "{ id: \"{w}\", match: { path: \"/{w}/charges\" }, per: [], limit: \"3/h burst 3\" }",
            ..POST
        },
    ]
}
