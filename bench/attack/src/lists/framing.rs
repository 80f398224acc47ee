//! Requests inside requests: bodies whose length can be read in two ways, so that nobody decides on what is hidden in them.

use super::identity::LINES;
use super::{Attacks, Family, OPEN, Place, Shape, Subject};

/// Whole requests. `/{w}` stands in the request inside, and must not arrive.
const HIDDEN: &[&[u8]] = &[
    b"POST /open HTTP/1.1\r\nHost: a\r\nContent-Length: 39\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 34\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nContent-Length: 34\r\nContent-Length: 0\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nContent-Length: 0, 34\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nContent-Length: +0\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nContent-Length: 0x0\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nContent-Length : 3\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n:GET /{w} HTTP/1.1\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0;\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n\r\n0\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;a\rb\r\nabc\r\n0\r\n\r\nGET /{w}: HTTP/1.1\r\nHost\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n0\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffe\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n0\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 34\r\n\r\nGET /{w}; HTTP/9.9\r\nHost: a\r\n\r\n",
    b"GET /open HTTP/1.1\r\nHost: a\r\nContent-Length: 34\r\nConnection: Content-Length\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: Transfer-Encoding\r\n\r\n22\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n\r\n0\r\n\r\n",
    b"GET /open HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 34\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 34\r\nConnection: close\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: a\r\nExpect: x\r\nContent-Length: 34\r\nConnection: close\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://a#/{w} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
];

/// Heads of HTTP/2 whose fields would frame the body anew in HTTP/1. The body is the request inside.
#[rustfmt::skip]
const DOWNGRADES: &[super::Head] = &[
    &[("content-length", "0\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a")],
    &[(":method", "GET"), (":path", "/open HTTP/1.1\r\nHost: a\r\n\r\nGET /{w}")],
    &[(":method", "GET"), (":path", "/open\r\n\r\nGET /{w} HTTP/1.1")],
    &[(":method", "GET"), (":path", "/open /{w}")],
    &[(":method", "GET /{w} HTTP/1.1\r\nHost: a\r\n\r\nGET")],
    &[(":method", "GET"), (":authority", "a\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a")],
    &[(":method", "GET"), ("x-a", "b\r\n\r\nGET /{w} HTTP/1.1\r\nHost: a")],
    &[(":method", "GET"), ("x-a\r\n\r\nGET /{w} HTTP/1.1\r\nhost", "a")],
];

pub(crate) fn families() -> Vec<Family> {
    let hidden = Family {
        name: "request inside a request",
        shape: Shape {
            method: "POST",
            ..OPEN
        },
        place: Place::Whole,
        plain: None,
        attacks: Attacks::Texts(HIDDEN),
        subject: Subject::Arrived,
        limit: 0,
        client: "",
        ..LINES
    };
    vec![
        hidden,
        Family {
            name: "request inside a head of HTTP/2",
            attacks: Attacks::Heads(DOWNGRADES),
            ..hidden
        },
    ]
}
