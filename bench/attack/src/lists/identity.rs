//! Other ways to say who calls, so that the limiter finds nobody or somebody else while the upstream still finds the client.

use super::{Attacks, Family, Front, OPEN, Place, Setup, Subject, THREE};

const PER_CLIENT: &str = "  - { id: client, per: [client], limit: \"3/h burst 3\" }
  - { id: client, plan: roomy, per: [client], limit: \"1000000/h burst 1000000\" }
";

/// Clients by API key, by bearer token, or by a header that everybody may set.
pub(crate) const IDENTITY: Setup = Setup {
    name: "identity",
    gateway: "",
    sections: "identity: { client: [\"api_key:X-API-Key\", bearer, \"header:X-User-Id\", ip] }\n",
    rules: PER_CLIENT,
    front: Front::Gateway,
};

/// Any scheme of `Authorization`.
const AUTHORIZATION: Setup = Setup {
    name: "authorization",
    sections: "identity: { client: [\"api_key:Authorization\", ip] }\n",
    ..IDENTITY
};

/// nginx asks the service about each request, with the request's own headers.
const FORWARD_AUTH: Setup = Setup {
    name: "nginx with auth_request",
    sections: "identity: { client: [\"api_key:X-API-Key\", bearer, \"header:X-User-Id\", ip], trusted_proxies: [127.0.0.1] }\n",
    front: Front::Nginx,
    ..IDENTITY
};

/// The client that has the case's key.
const CLIENT: &str = "{ id: \"{w}\", api_key_sha256: \"{key_sha256}\" }";

/// Plain: `X-API-Key: {key}`.
const API_KEYS: &[&[u8]] = &[
    // Two lines, of which some upstreams take the first and some the last.
    b"X-API-Key: {key}\r\nX-API-Key: junk",
    b"X-API-Key: junk\r\nX-API-Key: {key}",
    b"X-API-Key: {key}\r\nX-API-Key: junk{i}",
    b"X-API-Key: junk{i}\r\nX-API-Key: {key}",
    b"X-API-Key: {key}\r\nX-API-Key: {other}",
    b"X-API-Key: {other}\r\nX-API-Key: {key}",
    b"X-API-Key: {key}\r\nX-API-Key: {key}",
    b"X-API-Key: {key}\r\nX-API-Key:",
    b"X-API-Key:\r\nX-API-Key: {key}",
    b"X-API-Key: {key}\r\nX-API-Key: \t",
    b"X-API-Key: {key}\r\nX-API-Key: {key} ",
    b"X-API-Key: {key}\r\nX-API-Key: \xff",
    b"X-API-Key: \xff\r\nX-API-Key: {key}",
    b"X-API-Key: {key}\r\nX-API-Key: {long}",
    b"X-API-Key: {long}\r\nX-API-Key: {key}",
    b"X-API-Key: {key}\r\nAccept: a\r\nX-API-Key: junk",
    b"X-API-Key: junk\r\nX-API-Key: {key}\r\nX-API-Key: junk",
    b"X-API-Key: {key}\r\nX-API-Key: junk\r\nX-API-Key: {key}",
    b"X-API-Key: {key}\r\nx-api-key: junk",
    b"x-api-key: junk\r\nX-API-KEY: {key}",
    // Other letters and spaces.
    b"x-api-key: {key}",
    b"X-API-KEY: {key}",
    b"x-Api-kEY: {key}",
    b"X-API-Key:{key}",
    b"X-API-Key:  {key}",
    b"X-API-Key:\t{key}",
    b"X-API-Key: {key}\t",
    b"X-API-Key: {key}   ",
    b"X-API-Key : {key}",
    b"X-API-Key\t: {key}",
    b" X-API-Key: {key}",
    b"\tX-API-Key: {key}",
    b"X-API-Key:\r\n {key}",
    b"X-API-Key:\r\n\t{key}",
    b"X-API-Key: {key}\r\n junk",
    b"X-API-Key: {key}\nX-API-Key: junk",
    b"X-API-Key: {key}\rX-API-Key: junk",
    b"Accept: a\nX-API-Key: {key}",
    b"Accept: a\rX-API-Key: {key}",
    b"Accept: a\r\r\nX-API-Key: {key}",
    b":X-API-Key: {key}",
    b"X-API-Key:: {key}",
    b"X-API-Key;: {key}",
    b"\"X-API-Key\": {key}",
    b"X-API-Key\x00: {key}",
    b"X-API\x00-Key: {key}",
    b"X-API-Key\xad: {key}",
    b"X\xe2\x80\x90API\xe2\x80\x90Key: {key}",
    // Underscores: CGI and WSGI read both as HTTP_X_API_KEY.
    b"X_API_Key: {key}",
    b"X-API_Key: {key}",
    b"X_API-Key: {key}",
    b"x_api_key: {key}",
    b"X-API-Key: junk\r\nX_API_Key: {key}",
    b"X_API_Key: {key}\r\nX-API-Key: junk",
    b"X-API-Key: {other}\r\nX_API_Key: {key}",
    b"X_API_Key: {key}\r\nX-API-Key: {other}",
    b"X_API_Key: {key}\r\nX_API_Key: junk",
    // lighttpd and PHP's own server make the same name of all of these.
    b"X.API.Key: {key}",
    b"X!API!Key: {key}",
    b"X~API+Key: {key}",
    b"X-API.Key: {key}",
    b"X|API`Key: {key}",
    b"X-API-Key: junk\r\nX.API.Key: {key}",
    b"X!API!Key: {key}\r\nX-API-Key: {other}",
    // Characters around the key that upstreams may strip.
    b"X-API-Key: {key}\x00",
    b"X-API-Key: {key}\x0b",
    b"X-API-Key: \x0c{key}",
    b"X-API-Key: {key}\x1f",
    b"X-API-Key: {key}\x7f",
    b"X-API-Key: {key}\x85",
    b"X-API-Key: {key}\xa0",
    b"X-API-Key: \xa0{key}",
    b"X-API-Key: {key}\xc2\xa0",
    b"X-API-Key: {key}\xe2\x80\x8b",
    b"X-API-Key: \xef\xbb\xbf{key}",
    b"X-API-Key: {key}, junk",
    b"X-API-Key: junk, {key}",
    b"X-API-Key: {key},",
    b"X-API-Key: ,{key}",
    b"X-API-Key: {key}, {key}",
    b"X-API-Key: \"{key}\"",
    b"X-API-Key: {key};q=1",
    // Lines that are for one hop, or that change how the request is served.
    b"X-API-Key: {key}\r\nConnection: X-API-Key",
    b"Connection: keep-alive, x-api-key\r\nX-API-Key: {key}",
    b"X-API-Key: {key}\r\nKeep-Alive: X-API-Key",
    b"X-API-Key: {key}\r\nExpect: 100-continue",
    b"X-API-Key: {key}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    b"X-API-Key: {key}\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nConnection: Upgrade, HTTP2-Settings",
    b"X-API-Key: {key}\r\nContent-Type: application/grpc\r\nTE: trailers",
    b"X-API-Key: {key}\r\nOrigin: https://elsewhere.test\r\nAccess-Control-Request-Method: GET",
    b"X-API-Key: {key}\r\nContent-Length: 0",
    b"{many}X-API-Key: {key}",
    b"{flood}X-API-Key: {key}",
    b"X-API-Key: {key}\r\nX-Filler: {long}{long}{long}{long}{long}{long}{long}",
    // Beside other identities.
    b"X-API-Key: {key}\r\nAuthorization: Bearer junk",
    b"X-API-Key: {key}\r\nAuthorization: Bearer {other}",
    b"X-API-Key: {key}\r\nX-User-Id: junk{i}",
    b"X-API-Key: {key}\r\nX-Forwarded-For: 203.0.113.{i}",
];

/// Plain: `Authorization: Bearer {key}`.
const BEARERS: &[&[u8]] = &[
    b"Authorization: Bearer {key}\r\nAuthorization: Bearer junk",
    b"Authorization: Bearer junk\r\nAuthorization: Bearer {key}",
    b"Authorization: Bearer {key}\r\nAuthorization: Bearer junk{i}",
    b"Authorization: Bearer {key}\r\nAuthorization: Bearer {other}",
    b"Authorization: Bearer {other}\r\nAuthorization: Bearer {key}",
    b"Authorization: Bearer {key}\r\nAuthorization: Basic YTpi",
    b"Authorization: Basic YTpi\r\nAuthorization: Bearer {key}",
    b"Authorization: Bearer {key}\r\nAuthorization:",
    b"Authorization:\r\nAuthorization: Bearer {key}",
    b"Authorization: Bearer {key}\r\nAuthorization: Bearer",
    b"Authorization: Bearer\r\nAuthorization: Bearer {key}",
    b"Authorization: Bearer {key}\r\nAuthorization: Bearer {key}",
    b"Authorization: Bearer {key}\r\nauthorization: bearer {key}",
    b"Authorization: Bearer {key}\r\nAuthorization: \xff",
    b"Authorization: Bearer {key}\r\nAuthorization: Bearer {long}",
    b"Authorization: Bearer {key}\r\nAccept: a\r\nAuthorization: Digest x",
    b"Authorization: Bearer\t{key}",
    b"Authorization: Bearer  {key}",
    b"Authorization: Bearer \t{key}",
    b"Authorization: Bearer\t {key}",
    b"Authorization: Bearer          {key}",
    b"Authorization: bearer {key}",
    b"Authorization: BEARER {key}",
    b"Authorization: bEaReR {key}",
    b"authorization:Bearer {key}",
    b"AUTHORIZATION: Bearer {key}",
    b"Authorization:\tBearer {key}",
    b"Authorization:   Bearer {key}",
    b"Authorization: Bearer {key} ",
    b"Authorization: Bearer {key}\t",
    b"Authorization : Bearer {key}",
    b" Authorization: Bearer {key}",
    b"Authorization:\r\n Bearer {key}",
    b"Authorization: Bearer\r\n {key}",
    b"Authorization: Bearer\r\n\t{key}",
    b"Authorization: Bearer\x0b{key}",
    b"Authorization: Bearer\x0c{key}",
    b"Authorization: Bearer\x00{key}",
    b"Authorization: Bearer\x1f{key}",
    b"Authorization: Bearer\x85{key}",
    b"Authorization: Bearer\xa0{key}",
    b"Authorization: Bearer\xc2\xa0{key}",
    b"Authorization: Bearer \xa0{key}",
    b"Authorization: Bearer {key}\xa0",
    b"Authorization: Bearer {key}\x85",
    b"Authorization: \xa0Bearer {key}",
    b"Authorization: \x85Bearer {key}",
    b"Authorization: Bearer {key} junk",
    b"Authorization: Bearer {key}\tjunk",
    b"Authorization: Bearer {key}, Bearer junk",
    b"Authorization: Bearer junk, Bearer {key}",
    b"Authorization: Bearer junk,Bearer {key}",
    b"Authorization: Basic YTpi, Bearer {key}",
    b"Authorization: Bearer {key},",
    b"Authorization: Bearer \"{key}\"",
    b"Authorization: Bearer token={key}",
    b"Proxy-Authorization: Bearer {key}",
    b"Authorization: Bearer {key}\r\nProxy-Authorization: Bearer junk",
    b"Authorization: Bearer {key}\r\nConnection: Authorization",
    b"X-API-Key:\r\nAuthorization: Bearer {key}",
    b"X-API-Key: junk\r\nAuthorization: Bearer {key}",
    b"X-API-Key: junk{i}\r\nAuthorization: Bearer {key}",
    b"X-API-Key: a\r\nX-API-Key: b\r\nAuthorization: Bearer {key}",
    b"X-API-Key: {long}\r\nAuthorization: Bearer {key}",
    b"X-API-Key: \xff\r\nAuthorization: Bearer {key}",
    b"X-User-Id: junk{i}\r\nAuthorization: Bearer {key}",
    b"{many}Authorization: Bearer {key}",
];

/// Plain: `Authorization: {key}`, where any scheme counts.
const CREDENTIALS: &[&[u8]] = &[
    b"Authorization: Token {key}",
    b"Authorization: ApiKey {key}",
    b"Authorization: Bearer {key}",
    b"Authorization: Bearer\t{key}",
    b"Authorization: Token  {key}",
    b"Authorization: Token \t{key}",
    b"Authorization: Token\xa0{key}",
    b"Authorization: Token {key} junk",
    b"Authorization: {key} junk",
    b"Authorization: a b {key}",
    b"Authorization: {key}\r\nAuthorization: junk",
    b"Authorization: junk\r\nAuthorization: {key}",
    b"Authorization: Token {key}\r\nAuthorization: {key}",
    b"Authorization: {key}\r\nAuthorization:",
    b"Authorization: Token {key}, Token junk",
];

/// Plain: `X-User-Id: {w}`, which everybody may set.
const USERS: &[&[u8]] = &[
    b"X-User-Id: {w}\r\nX-User-Id: junk",
    b"X-User-Id: junk\r\nX-User-Id: {w}",
    b"X-User-Id: {w}\r\nX-User-Id: junk{i}",
    b"X-User-Id: junk{i}\r\nX-User-Id: {w}",
    b"X-User-Id: {w}\r\nX-User-Id:",
    b"X-User-Id:\r\nX-User-Id: {w}",
    b"X-User-Id: {w}\r\nX-User-Id: \xff",
    b"X-User-Id: {w}\r\nX-User-Id: {long}",
    b"X-User-Id: {w}\r\nX-User-Id: {w}",
    b"X-User-Id: {w}\r\nX-User-Id: \t{w}",
    b"x-user-id: {w}",
    b"X-USER-ID:{w}",
    b"X-User-Id:\t{w}\t",
    b"X-User-Id: {w}\r\n ",
    b"X-User-Id:\r\n {w}",
    b"X_User_Id: {w}",
    b"X-User_Id: {w}",
    b"X-User-Id: junk{i}\r\nX_User_Id: {w}",
    b"X_User_Id: {w}\r\nX-User-Id: junk{i}",
    b"X-User-Id: {w}\xa0",
    b"X-User-Id: {w}\x85",
    b"X-User-Id: \xa0{w}",
    b"X-User-Id: {w}\xc2\xa0",
    b"X-User-Id: {w}\xe2\x80\x8b",
    b"X-User-Id: {w}\xff",
    b"X-User-Id: {w}\x00",
    b"X-User-Id: {w}, junk{i}",
    b"X-User-Id: junk{i}, {w}",
    b"X-User-Id: {w},",
    b"X-User-Id: {W}",
    b"X-API-Key: junk{i}\r\nX-User-Id: {w}",
    b"X-API-Key: a\r\nX-API-Key: b\r\nX-User-Id: {w}",
    b"Authorization: Bearer junk{i}\r\nX-User-Id: {w}",
    b"Authorization: Basic YTpi\r\nX-User-Id: {w}",
    b"Authorization: Bearer\r\nX-User-Id: {w}",
    b"X-User-Id: {w}\r\nConnection: X-User-Id",
    b"X-User-Id: {w}\r\nCookie: a=b",
];

/// Heads that would be several lines, or another request, where they are written as HTTP/1.
#[rustfmt::skip]
const SPLITS: &[super::Head] = &[
    &[("accept", "a\r\nX-API-Key: {key}")],
    &[("accept", "a\nX-API-Key: {key}")],
    &[("accept", "a\rX-API-Key: {key}")],
    &[("accept: a\r\nx-api-key", "{key}")],
    &[("x-a:x-api-key", "{key}")],
    &[(":authority", "a\r\nX-API-Key: {key}")],
    &[(":path", "/open HTTP/1.1\r\nX-API-Key: {key}\r\nX-A: b")],
    &[(":method", "GET /open HTTP/1.1\r\nX-API-Key: {key}\r\nX-A: b")],
    &[(":scheme", "http\r\nX-API-Key: {key}")],
    &[("X-API-Key", "{key}")],
    &[("x-api-key", " {key}")],
    &[("x-api-key", "{key} ")],
    &[("x-api-key", "{key}\t")],
    &[("connection", "x-api-key"), ("x-api-key", "{key}")],
    &[("x-api-key", "{key}"), (":x", "y")],
    &[(":x-api-key", "{key}")],
    &[("", "{key}")],
    &[("x-api-key ", "{key}")],
    &[("x-api-key\u{0}", "{key}")],
];

/// A family in which all requests are the same but for their header lines.
pub(crate) const LINES: Family = Family {
    name: "API key",
    setup: &IDENTITY,
    shape: OPEN,
    place: Place::Lines,
    plain: Some(b"X-API-Key: {key}"),
    attacks: Attacks::Texts(API_KEYS),
    subject: Subject::Key,
    limit: THREE,
    rule: "",
    client: CLIENT,
    one_source: false,
};

const BEARER: Family = Family {
    name: "bearer token",
    plain: Some(b"Authorization: Bearer {key}"),
    attacks: Attacks::Texts(BEARERS),
    subject: Subject::Bearer,
    ..LINES
};

pub(crate) const USER: Family = Family {
    name: "user id",
    plain: Some(b"X-User-Id: {w}"),
    attacks: Attacks::Texts(USERS),
    subject: Subject::User,
    client: "",
    ..LINES
};

pub(crate) fn families() -> Vec<Family> {
    vec![
        LINES,
        BEARER,
        USER,
        Family {
            name: "credential of any scheme",
            setup: &AUTHORIZATION,
            plain: Some(b"Authorization: {key}"),
            attacks: Attacks::Texts(CREDENTIALS),
            subject: Subject::Credential,
            ..LINES
        },
        Family {
            name: "API key in a head that splits",
            attacks: Attacks::Heads(SPLITS),
            ..LINES
        },
        Family {
            name: "API key behind nginx",
            setup: &FORWARD_AUTH,
            ..LINES
        },
        Family {
            name: "bearer token behind nginx",
            setup: &FORWARD_AUTH,
            ..BEARER
        },
        Family {
            name: "user id behind nginx",
            setup: &FORWARD_AUTH,
            ..USER
        },
    ]
}
