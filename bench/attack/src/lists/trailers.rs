//! Fields behind a body that may only stand in a head. Some upstreams take trailers for headers, among them uvicorn over httptools.

use super::identity::LINES;
use super::{Attacks, Family, OPEN, Place, Shape, Subject};

/// Fields that no trailer may carry to an upstream: `{w}` must not arrive in any of them.
const FORBIDDEN: &[&[u8]] = &[
    b"X-API-Key: {w}",
    b"x-api-key:{w}",
    b"X_API_Key: {w}",
    b"Authorization: Bearer {w}",
    b"X-User-Id: {w}",
    b"X_User_Id: {w}",
    b"X-Forwarded-For: {w}",
    b"X-Forwarded-Host: {w}",
    b"X-Forwarded-Proto: {w}",
    b"X-Forwarded-Port: {w}",
    b"X-Forwarded-Prefix: {w}",
    b"X-Real-IP: {w}",
    b"X_Real_IP: {w}",
    b"Forwarded: for={w}",
    b"Cookie: a={w}",
    b"Set-Cookie: a={w}",
    b"Host: {w}",
    b"Connection: {w}",
    b"Keep-Alive: timeout={w}",
    b"Proxy-Connection: {w}",
    b"Proxy-Authorization: Basic {w}",
    b"Proxy-Authenticate: {w}",
    b"TE: {w}",
    b"Trailer: {w}",
    b"Upgrade: {w}",
    b"Transfer-Encoding: {w}",
    b"Content-Length: 5{w}",
    b"Content-Type: text/{w}",
    b"Content-Encoding: {w}",
    b"Content-Range: bytes 1-2/{w}",
    b"Expect: {w}",
    b"Range: bytes={w}",
    b"Max-Forwards: {w}",
    b"Cache-Control: {w}",
    b"WWW-Authenticate: {w}",
    b"X-HTTP-Method-Override: {w}",
    b"X-Original-URL: /{w}",
    b"X-Checksum: a\r\nX-API-Key: {w}",
    b"X-API-Key: {w}\r\nX-API-Key: {w}",
    b"X-Checksum: a\r\n X-API-Key: {w}",
    b"X-Checksum: a\nX-API-Key: {w}",
    b"X-Checksum: a\rX-API-Key: {w}",
    b" X-API-Key: {w}",
    b"X-API-Key : {w}",
    b"X-API-Key\x00: {w}",
    b":authority: {w}",
    b":path: /{w}",
];

/// Plain: the head has `X-API-Key: {key}`. Trailers must not change whose request it is, nor hide it.
const BESIDE: &[&[u8]] = &[
    b"X-API-Key: junk",
    b"X-API-Key: {other}",
    b"X-API-Key:",
    b"x-api-key: junk{i}",
    b"Connection: X-API-Key",
    b"X-Checksum: {long}",
    b"{many}X-Checksum: a",
    b"{flood}X-Checksum: a",
    b"no colon",
    b"X-Checksum: \x00",
    b"X-Checksum: a\r\n folded",
];

/// Nothing in the head, and the key as a trailer alone.
const ALONE: &[&[u8]] = &[
    b"X-API-Key: {key}",
    b"x-api-key:{key}",
    b"X-API-Key: {key}\r\nX-API-Key: junk",
    b"X-API-Key: junk\r\nX-API-Key: {key}",
    b"X_API_Key: {key}",
    b"X-Checksum: a\r\nX-API-Key: {key}",
];

/// Plain: trailers that may pass, so that this list is known to see any.
const ALLOWED: &[&[u8]] = &[b"X-Checksum: {w}", b"Server-Timing: {w}"];

/// HTTP/1 clients, and proxies, send only what they have announced.
const ANNOUNCED: &str = "Trailer: X-Checksum, Server-Timing, X-API-Key, X_API_Key, Authorization, X-User-Id, X_User_Id, X-Forwarded-For, \
X-Forwarded-Host, X-Forwarded-Proto, X-Forwarded-Port, X-Forwarded-Prefix, X-Real-IP, X_Real_IP, Forwarded, Cookie, Set-Cookie, Host, \
Connection, Keep-Alive, Proxy-Connection, Proxy-Authorization, Proxy-Authenticate, TE, Trailer, Upgrade, Transfer-Encoding, Content-Length, \
Content-Type, Content-Encoding, Content-Range, Expect, Range, Max-Forwards, Cache-Control, WWW-Authenticate, X-HTTP-Method-Override, \
X-Original-URL\r\n";

const POST: Shape = Shape {
    method: "POST",
    lines: ANNOUNCED,
    ..OPEN
};

const TRAILER: Family = Family {
    name: "trailer that must not arrive",
    shape: POST,
    place: Place::Trailers,
    plain: None,
    attacks: Attacks::Texts(FORBIDDEN),
    subject: Subject::Trailer,
    limit: 0,
    client: "",
    ..LINES
};

pub(crate) fn families() -> Vec<Family> {
    vec![
        TRAILER,
        Family {
            name: "trailer beside an API key",
            shape: Shape {
                lines: "Trailer: X-API-Key, X-Checksum\r\nX-API-Key: {key}\r\n",
                ..POST
            },
            plain: Some(b"X-Checksum: a"),
            attacks: Attacks::Texts(BESIDE),
            subject: Subject::Key,
            limit: super::THREE,
            client: LINES.client,
            ..TRAILER
        },
        Family {
            name: "API key as a trailer",
            attacks: Attacks::Texts(ALONE),
            subject: Subject::Key,
            limit: super::THREE,
            client: LINES.client,
            ..TRAILER
        },
        Family {
            name: "trailer that may arrive",
            plain: Some(b"X-Checksum: {w}"),
            attacks: Attacks::Texts(ALLOWED),
            limit: usize::MAX,
            ..TRAILER
        },
    ]
}
