//! Loads that cost a server more than they cost their sender. While one goes on, a good client must be served.

use crate::wire::frames::{
    self, ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PRIORITY,
    RST_STREAM, SETTINGS, WINDOW_UPDATE,
};

/// A flood, and what must become of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flood {
    pub(crate) name: &'static str,
    pub(crate) load: Load,
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// Frames on a few connections of HTTP/2, made from their number. Each connection must be closed before it has sent all of them.
    Frames(fn(u32) -> Vec<u8>),
    /// The same where each frame makes a request that the limit counts: at most three may arrive, on whatever streams.
    Requests(fn(u32, &str) -> Vec<u8>),
    /// The same request of HTTP/1 again and again, without waiting for responses: at most three may arrive.
    Pipelined(&'static [u8]),
    /// Requests that each name another client. One that has used up its limit before must stay denied.
    Keys(&'static [u8]),
    /// Connections that send these bytes and nothing more. The gateway takes 300.
    Held(usize, &'static [u8]),
    /// Connections that send one byte of these every now and then.
    Slow(usize, &'static [u8]),
    /// Connections of HTTP/2 with many streams whose responses nobody reads.
    Unread,
}

/// How many frames a connection sends at most.
pub(crate) const FRAMES: u32 = 30_000;

/// How many requests a flood of them sends at most on each connection.
pub(crate) const REQUESTS: u32 = 3_000;

/// How many other clients a flood of keys names: the store has room for 2,000.
pub(crate) const KEYS: usize = 6_000;

const fn flood(name: &'static str, load: Load) -> Flood {
    Flood { name, load }
}

/// Odd numbers, as clients number their streams.
const fn stream(n: u32) -> u32 {
    2 * n + 1
}

fn fields(names: &[(&str, &str)]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let bytes =
        |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    names.iter().map(bytes).collect()
}

fn get(key: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    fields(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/open"),
        (":authority", "a"),
        ("x-api-key", key),
    ])
}

/// The head of an upload that never ends.
fn upload(n: u32) -> Vec<u8> {
    let head = fields(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/open"),
        (":authority", "a"),
    ]);
    if n == 0 {
        frames::head(1, &head, false)
    } else {
        Vec::new()
    }
}

/// Against the gateway, and those of frames also against the decision service.
pub(crate) const FLOODS: &[Flood] = &[
    flood("PING", Load::Frames(|_| frames::frame(PING, 0, 0, b"12345678"))),
    flood("PING that acknowledges", Load::Frames(|_| frames::frame(PING, ACK, 0, b"12345678"))),
    flood("SETTINGS", Load::Frames(|_| frames::frame(SETTINGS, 0, 0, &[]))),
    flood("SETTINGS of the window", Load::Frames(|n| frames::frame(SETTINGS, 0, 0, &[&[0, 4][..], &(n & 0xffff).to_be_bytes()].concat()))),
    flood("SETTINGS with a hundred entries", Load::Frames(|_| frames::frame(SETTINGS, 0, 0, &[0, 5, 0, 0, 0x40, 0].repeat(100)))),
    flood("SETTINGS that acknowledge", Load::Frames(|_| frames::frame(SETTINGS, ACK, 0, &[]))),
    flood("PRIORITY", Load::Frames(|n| frames::frame(PRIORITY, 0, stream(n), &[0, 0, 0, 0, 16]))),
    flood("PRIORITY of one stream", Load::Frames(|_| frames::frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 16]))),
    flood("PRIORITY_UPDATE", Load::Frames(|_| frames::frame(0x10, 0, 0, b"\0\0\0\x01u=1"))),
    flood("WINDOW_UPDATE of the connection", Load::Frames(|_| frames::frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]))),
    flood("WINDOW_UPDATE of a stream", Load::Frames(|n| [upload(n), frames::frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])].concat())),
    flood("frames of unknown kinds", Load::Frames(|n| frames::frame(0x20 + (n % 200) as u8, 0, 0, b"junk"))),
    flood("unknown frames without content", Load::Frames(|_| frames::frame(0xee, 0xff, 1, &[]))),
    flood("DATA without content", Load::Frames(|n| [upload(n), frames::frame(DATA, 0, 1, &[])].concat())),
    flood("DATA of padding", Load::Frames(|n| [upload(n), frames::frame(DATA, 8, 1, &[[255].as_slice(), &[0; 255]].concat())].concat())),
    flood("DATA of a closed stream", Load::Frames(|n| [if n == 0 { frames::head(1, &get("junk"), true) } else { Vec::new() }, frames::frame(DATA, 0, 1, b"a")].concat())),
    flood("RST_STREAM of idle streams", Load::Frames(|n| frames::frame(RST_STREAM, 0, stream(n), &[0, 0, 0, 8]))),
    flood("RST_STREAM of one stream", Load::Frames(|n| [upload(n), frames::frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])].concat())),
    flood("GOAWAY", Load::Frames(|_| frames::frame(GOAWAY, 0, 0, &[0; 8]))),
    flood("CONTINUATION without end", Load::Frames(|n| match n {
        0 => frames::frame(HEADERS, END_STREAM, 1, &frames::block(&get("junk"))),
        _ => frames::frame(CONTINUATION, 0, 1, &frames::block(&fields(&[("x-filler", "y")]))),
    })),
    flood("CONTINUATION without content", Load::Frames(|n| match n {
        0 => frames::frame(HEADERS, END_STREAM, 1, &frames::block(&get("junk"))),
        _ => frames::frame(CONTINUATION, 0, 1, &[]),
    })),
    flood("HEADERS without content", Load::Frames(|n| frames::frame(HEADERS, END_HEADERS | END_STREAM, stream(n), &[]))),
    flood("HEADERS that are malformed", Load::Frames(|n| frames::frame(HEADERS, END_HEADERS | END_STREAM, stream(n), b"\x00\x03X-A\x01b"))),
    flood("requests that are reset at once", Load::Requests(|n, key| [frames::head(stream(n), &get(key), true), frames::frame(RST_STREAM, 0, stream(n), &[0, 0, 0, 8])].concat())),
    flood("requests that are made to be reset", Load::Requests(|n, key| [frames::head(stream(n), &get(key), false), frames::frame(WINDOW_UPDATE, 0, stream(n), &[0, 0, 0, 0])].concat())),
    flood("requests without waiting", Load::Requests(|n, key| frames::head(stream(n), &get(key), true))),
    flood("requests with a long head", Load::Requests(|n, key| {
        let mut head = get(key);
        head.push((b"x-filler".to_vec(), vec![b'y'; 8_000]));
        frames::head(stream(n), &head, true)
    })),
    flood("pipelined denials", Load::Pipelined(b"GET /open HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\n\r\n")),
    flood("pipelined uploads", Load::Pipelined(b"POST /open HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\nContent-Length: 3\r\n\r\nabc")),
    flood("pipelined requests that change", Load::Pipelined(b"GET /open?{i} HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\nX-Filler: {i}\r\n\r\n")),
    flood("new clients", Load::Keys(b"X-User-Id: {w}-{n}")),
    flood("unknown API keys", Load::Keys(b"X-API-Key: junk-{n}")),
    flood("idle connections", Load::Held(600, b"")),
    flood("connections with half a head", Load::Held(400, b"GET /open HTTP/1.1\r\nHost: a\r\nX-A:")),
    flood("connections with half a body", Load::Held(400, b"POST /open HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\na")),
    flood("connections with a chunk to come", Load::Held(400, b"POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\na")),
    flood("connections with half a preface", Load::Held(400, b"PRI * HTTP/2.0\r\n\r\n")),
    flood("connections of HTTP/2 without requests", Load::Held(400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")),
    flood("heads byte by byte", Load::Slow(250, b"GET /open HTTP/1.1\r\nHost: a\r\nX-Slow: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n\r\n")),
    flood("bodies byte by byte", Load::Slow(250, b"POST /open HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\nyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy")),
    flood("responses that nobody reads", Load::Unread),
];
