//! Requests that servers may read in different ways, and what the gateway does with each.

/// A name, the bytes that are sent, the statuses of all responses, and how many requests are admitted. The gateway closes each
/// connection.
pub type Case = (&'static str, String, &'static [u16], usize);

/// A request with these header lines, followed by these bytes.
fn post(lines: &str, rest: &str) -> String {
    format!("POST /echo HTTP/1.1\r\nHost: a\r\n{lines}\r\n{rest}")
}

fn get(lines: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}Connection: close\r\n\r\n")
}

/// A second request, which must never reach the upstream.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

fn lengths_and_codings() -> Vec<Case> {
    let chunked = "Transfer-Encoding: chunked\r\n";
    let close = "Connection: close\r\n";
    vec![
        (
            "a length before chunks: the chunks count, and nothing follows",
            post(
                &format!("Content-Length: 40\r\n{chunked}"),
                &format!("0\r\n\r\n{SMUGGLED}"),
            ),
            &[200],
            1,
        ),
        (
            "a length after chunks",
            post(
                &format!("{chunked}Content-Length: 4\r\n"),
                &format!("3\r\nabc\r\n0\r\n\r\n{SMUGGLED}"),
            ),
            &[200],
            1,
        ),
        (
            "a length that covers another request",
            post(
                &format!("{chunked}Content-Length: 6\r\n"),
                &format!("0\r\n\r\n{SMUGGLED}{SMUGGLED}"),
            ),
            &[200],
            1,
        ),
        (
            "two lengths",
            post("Content-Length: 3\r\nContent-Length: 4\r\n", "abcd"),
            &[400],
            0,
        ),
        (
            "the same length twice",
            post(
                &format!("Content-Length: 3\r\nContent-Length: 3\r\n{close}"),
                "abc",
            ),
            &[200],
            1,
        ),
        (
            "two lengths in one line",
            post("Content-Length: 3, 4\r\n", "abcd"),
            &[400],
            0,
        ),
        (
            "the same length twice in one line",
            post("Content-Length: 3, 3\r\n", "abc"),
            &[400],
            0,
        ),
        (
            "a length with a sign",
            post("Content-Length: +3\r\n", "abc"),
            &[400],
            0,
        ),
        (
            "a negative length",
            post("Content-Length: -3\r\n", "abc"),
            &[400],
            0,
        ),
        (
            "a length in hex",
            post("Content-Length: 0x3\r\n", "abc"),
            &[400],
            0,
        ),
        (
            "a length with a space in it",
            post("Content-Length: 1 2\r\n", "abc"),
            &[400],
            0,
        ),
        (
            "an empty length",
            post("Content-Length:\r\n", "abc"),
            &[400],
            0,
        ),
        (
            "a length that overflows",
            post("Content-Length: 99999999999999999999\r\n", "abc"),
            &[400],
            0,
        ),
        (
            "an unknown coding",
            post("Transfer-Encoding: gzip\r\n", "abc"),
            &[400],
            0,
        ),
        (
            "a coding before chunks",
            post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
            &[501],
            0,
        ),
        (
            "a coding after chunks",
            post("Transfer-Encoding: chunked, gzip\r\n", "0\r\n\r\n"),
            &[400],
            0,
        ),
        (
            "identity",
            post("Transfer-Encoding: identity\r\n", "abc"),
            &[400],
            0,
        ),
        (
            "chunked twice",
            post(&format!("{chunked}{chunked}"), "0\r\n\r\n"),
            &[501],
            0,
        ),
        (
            "chunked twice in one line",
            post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"),
            &[501],
            0,
        ),
        (
            "chunked and then identity",
            post(
                &format!("{chunked}Transfer-Encoding: identity\r\n"),
                "0\r\n\r\n",
            ),
            &[400],
            0,
        ),
        (
            "something like chunked",
            post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
            &[400],
            0,
        ),
        (
            "chunked in quotes",
            post("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n"),
            &[400],
            0,
        ),
        (
            "chunked after a vertical tab",
            post("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"),
            &[400],
            0,
        ),
        (
            "a space before the colon",
            post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
            &[400],
            0,
        ),
        (
            "chunks in HTTP/1.0",
            format!("POST /echo HTTP/1.0\r\nHost: a\r\n{chunked}\r\n0\r\n\r\n"),
            &[400],
            0,
        ),
        (
            "valid chunks",
            post(&format!("{chunked}{close}"), "3\r\nabc\r\n0\r\n\r\n"),
            &[200],
            1,
        ),
    ]
}

/// Malformed bodies after valid heads: these are decided, and nothing or a part of them reaches the upstream.
fn chunks() -> Vec<Case> {
    let chunked = |rest: &str| post("Transfer-Encoding: chunked\r\n", rest);
    vec![
        (
            "a chunk whose length is no number",
            chunked("zz\r\nabc\r\n0\r\n\r\n"),
            &[400],
            1,
        ),
        (
            "a chunk with a negative length",
            chunked("-1\r\nabc\r\n0\r\n\r\n"),
            &[400],
            1,
        ),
        (
            "a chunk without a length",
            chunked("\r\nabc\r\n0\r\n\r\n"),
            &[400],
            1,
        ),
        (
            "a chunk with 0x",
            chunked("0x3\r\nabc\r\n0\r\n\r\n"),
            &[400],
            1,
        ),
        (
            "a chunk longer than its length",
            chunked("2\r\nabc\r\n0\r\n\r\n"),
            &[400],
            1,
        ),
        (
            "a chunk without a line end",
            chunked("3\r\nabc0\r\n\r\n"),
            &[400],
            1,
        ),
        (
            "a chunk whose length overflows",
            chunked("fffffffffffffffff\r\nabc\r\n"),
            &[400],
            1,
        ),
        (
            "a chunk with an endless extension",
            chunked(&format!("3;{}\r\nabc\r\n0\r\n\r\n", "x".repeat(20_000))),
            &[400],
            1,
        ),
        (
            "a chunk's length that ends in a bare line feed",
            chunked("3\nabc\r\n0\r\n\r\n"),
            &[400],
            1,
        ),
    ]
}

fn hosts_and_targets() -> Vec<Case> {
    let with = |first: &str, lines: &str| format!("{first}\r\n{lines}Connection: close\r\n\r\n");
    let one = "GET / HTTP/1.1";
    vec![
        ("no host", with(one, ""), &[400], 0),
        ("two hosts", with(one, "Host: a\r\nHost: b\r\n"), &[400], 0),
        (
            "the same host twice",
            with(one, "Host: a\r\nHost: a\r\n"),
            &[400],
            0,
        ),
        ("an empty host", with(one, "Host:\r\n"), &[400], 0),
        (
            "a host with a path",
            with(one, "Host: a/admin\r\n"),
            &[400],
            0,
        ),
        ("a host with a user", with(one, "Host: a@b\r\n"), &[400], 0),
        ("a host with a space", with(one, "Host: a b\r\n"), &[400], 0),
        (
            "HTTP/1.0 without a host",
            with("GET / HTTP/1.0", ""),
            &[200],
            1,
        ),
        (
            "an absolute target and its host",
            with("GET http://a/ HTTP/1.1", "Host: A\r\n"),
            &[200],
            1,
        ),
        (
            "an absolute target and another host",
            with("GET http://b/ HTTP/1.1", "Host: a\r\n"),
            &[400],
            0,
        ),
        (
            "an absolute target and no host",
            with("GET http://a/ HTTP/1.1", ""),
            &[400],
            0,
        ),
        (
            "an absolute target with a user",
            with("GET http://u:p@a/ HTTP/1.1", "Host: a\r\n"),
            &[400],
            0,
        ),
        (
            "an absolute target of another scheme",
            with("GET ftp://a/ HTTP/1.1", "Host: a\r\n"),
            &[400],
            0,
        ),
        (
            "a target without a slash",
            with("GET admin HTTP/1.1", "Host: a\r\n"),
            &[400],
            0,
        ),
        (
            "an asterisk as the target",
            with("GET * HTTP/1.1", "Host: a\r\n"),
            &[400],
            0,
        ),
        (
            "an encoded slash",
            with("GET /a%2Fb HTTP/1.1", "Host: a\r\n"),
            &[400],
            0,
        ),
        (
            "CONNECT",
            with("CONNECT a:443 HTTP/1.1", "Host: a:443\r\n"),
            &[405],
            0,
        ),
        (
            "CONNECT to a path",
            with("CONNECT / HTTP/1.1", "Host: a\r\n"),
            &[405],
            0,
        ),
        ("TRACE", with("TRACE / HTTP/1.1", "Host: a\r\n"), &[405], 0),
    ]
}

fn lines() -> Vec<Case> {
    let long = "x".repeat(40_000);
    let many = (0..101)
        .map(|n| format!("X-{n}: 1\r\n"))
        .collect::<String>();
    vec![
        ("a folded line", get("X-A: 1\r\n 2\r\n"), &[400], 0),
        (
            "a folded first header",
            "GET / HTTP/1.1\r\n Host: a\r\n\r\n".to_owned(),
            &[400],
            0,
        ),
        ("a line without a colon", get("X-A\r\n"), &[400], 0),
        ("a header without a name", get(": 1\r\n"), &[400], 0),
        ("a header name with a sign", get("X@A: 1\r\n"), &[400], 0),
        ("a header name with a space", get("X A: 1\r\n"), &[400], 0),
        (
            "a header name that is not ASCII",
            get("X-\u{e4}: 1\r\n"),
            &[400],
            0,
        ),
        ("a NUL in a value", get("X-A: 1\x002\r\n"), &[400], 0),
        (
            "a bare carriage return in a value",
            get("X-A: 1\r2\r\n"),
            &[400],
            0,
        ),
        (
            "another control character in a value",
            get("X-A: 1\x1b2\r\n"),
            &[400],
            0,
        ),
        (
            "two spaces in the request line",
            "GET  / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            &[400],
            0,
        ),
        (
            "a tab in the request line",
            "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            &[400],
            0,
        ),
        (
            "a line feed in the target",
            "GET /a\nb HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            &[400],
            0,
        ),
        (
            "an unknown version",
            "GET / HTTP/1.2\r\nHost: a\r\n\r\n".to_owned(),
            &[400],
            0,
        ),
        (
            "a version in lower case",
            "GET / http/1.1\r\nHost: a\r\n\r\n".to_owned(),
            &[400],
            0,
        ),
        ("no version", "GET /\r\n\r\n".to_owned(), &[400], 0),
        (
            "an invalid method",
            "G(T / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            &[400],
            0,
        ),
        (
            "a value that is too long",
            get(&format!("X-A: {long}\r\n")),
            &[431],
            0,
        ),
        (
            "a target that is too long",
            format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"),
            &[431],
            0,
        ),
        ("too many headers", get(&many), &[431], 0),
        (
            "lines that end in bare line feeds",
            "GET / HTTP/1.1\nHost: a\nConnection: close\n\n".to_owned(),
            &[200],
            1,
        ),
        (
            "empty lines before the request",
            format!("\r\n\r\n{}", get("")),
            &[200],
            1,
        ),
        (
            "two requests at once",
            format!("GET / HTTP/1.1\r\nHost: a\r\n\r\n{}", get("")),
            &[200, 200],
            2,
        ),
        (
            "a malformed request after a good one",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n\r\n\0".to_owned(),
            &[200, 400],
            1,
        ),
        (
            "an upgrade to HTTP/2",
            get(
                "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
            ),
            &[200],
            1,
        ),
    ]
}

/// All cases. Those whose body is malformed are the last.
#[must_use]
pub fn cases() -> Vec<Case> {
    [
        lines(),
        hosts_and_targets(),
        lengths_and_codings(),
        chunks(),
    ]
    .concat()
}
