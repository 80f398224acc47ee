//! 50,000 generated messages of each kind through the fast paths and through hyper: see [`differential`](crate::differential).

use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tollgate_testing::malformed;

use crate::differential::{
    compare_request_head, compare_requests, compare_response, compare_response_head,
};

const CASES: u32 = 50_000;

/// Parts that decide how a message is read.
const PARTS: &[&str] = &[
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    "\n\n",
    " ",
    "\t",
    ":",
    ",",
    ";",
    "\0",
    "\u{1}",
    "\u{7f}",
    "é",
    "%2F",
    "?",
    "#",
    "//",
    "Host: b\r\n",
    "Host : b\r\n",
    " folded\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 3\r\n",
    "content-length: +3\r\n",
    "Content-Length: 3, 3\r\n",
    "Transfer-Encoding: chunked\r\n",
    "transfer-encoding: identity\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Connection: x-a\r\n",
    "Connection: upgrade\r\nUpgrade: websocket\r\n",
    "Expect: 100-continue\r\n",
    "TE: trailers\r\n",
    "Trailer: x-a\r\n",
    "Date: x\r\n",
    "HTTP/1.0",
    "HTTP/1.1",
    "HTTP/2.0",
    "http/1.1",
    "GET ",
    "HEAD ",
    "CONNECT ",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http://h",
    "*",
    "0\r\n\r\n",
    "3\r\nabc\r\n",
    "abc",
    "200 ",
    "204 ",
    "304 ",
    "100 ",
    "101 ",
];

const NAMES: &[&str] = &[
    "host",
    "x-a",
    "x-a",
    "accept",
    "cookie",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "expect",
    "te",
    "trailer",
    "date",
    "content-type",
    "server",
    "set-cookie",
    "keep-alive",
];

const VALUES: &[&str] = &[
    "",
    "a",
    "b",
    "0",
    "3",
    "03",
    "+3",
    "3, 3",
    "99999999999999999999",
    "chunked",
    "gzip, chunked",
    "identity",
    "close",
    "keep-alive",
    "Keep-Alive",
    "keep-alive, x-a",
    "upgrade",
    "websocket",
    "100-continue",
    "trailers",
    "x y",
    " a ",
    "\ta",
    "Sun, 06 Nov 1994 08:49:37 GMT",
    "caf\u{e9}",
];

/// A change of a message: at this place, remove this many bytes and insert this.
type Change = (Index, usize, String);

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let part = prop_oneof![
        4 => select(PARTS).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    let count = prop_oneof![2 => Just(0..=0_usize), 3 => Just(1..=1), 1 => Just(2..=4)];
    count.prop_flat_map(move |count| vec((any::<Index>(), 0..3_usize, part.clone()), count))
}

fn changed(message: &str, changes: &[Change]) -> Vec<u8> {
    let mut bytes = message.as_bytes().to_vec();
    for (at, removed, inserted) in changes {
        let at = at.index(bytes.len() + 1);
        let end = (at + removed).min(bytes.len());
        bytes.splice(at..end, inserted.bytes());
    }
    bytes
}

fn header_lines(max: usize) -> impl Strategy<Value = String> {
    let end = prop_oneof![9 => Just("\r\n"), 1 => Just("\n")];
    let line = (select(NAMES), select(VALUES), end);
    let line = line.prop_map(|(name, value, end)| format!("{name}: {value}{end}"));
    vec(line, 0..=max).prop_map(|lines| lines.concat())
}

fn target() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("/".to_owned()),
        select(
            &[
                "*",
                "/a?b=c",
                "//h/a",
                "http://h/a",
                "h:1",
                "/a#b",
                "/%2F",
                "/{\"a\"}",
                ""
            ][..]
        )
        .prop_map(str::to_owned),
        "/[ -~]{0,12}",
        "/\\PC{0,4}",
    ]
}

fn request_text() -> impl Strategy<Value = String> {
    let method = select(
        &[
            "GET", "GET", "POST", "DELETE", "OPTIONS", "HEAD", "CONNECT", "get", "M-SEARCH", "G,T",
        ][..],
    );
    let version = prop_oneof![8 => Just("HTTP/1.1"), 1 => Just("HTTP/1.0"), 1 => Just("HTTP/1.2")];
    let body = prop_oneof![6 => Just(""), 1 => Just("abc"), 1 => Just("3\r\nabc\r\n0\r\n\r\n")];
    (method, target(), version, header_lines(4), body).prop_map(
        |(method, target, version, lines, body)| {
            format!("{method} {target} {version}\r\nhost: a\r\n{lines}\r\n{body}")
        },
    )
}

fn requests() -> impl Strategy<Value = String> {
    let corpus: Vec<String> = malformed::cases()
        .into_iter()
        .map(|case| case.1)
        .filter(|bytes| bytes.len() < 4_000)
        .collect();
    prop_oneof![
        1 => select(corpus),
        2 => vec(request_text(), 1..4).prop_map(|requests| requests.concat()),
    ]
}

fn response_text() -> impl Strategy<Value = String> {
    let status = prop_oneof![
        3 => select(&["200 OK", "404 Not Found", "429 Too Many Requests"][..]),
        1 => select(&["204 No Content", "304 Not Modified", "100 Continue", "101 Switching Protocols", "200 Fine", "200", "999 "][..]),
    ];
    let version = prop_oneof![8 => Just("HTTP/1.1"), 1 => Just("HTTP/1.0")];
    let length = prop_oneof![8 => Just("content-length: 3\r\n"), 1 => Just("content-length: 0\r\n"), 1 => Just("")];
    let body = prop_oneof![8 => Just("abc"), 1 => Just(""), 1 => Just("abcd"), 1 => Just("3\r\nabc\r\n0\r\n\r\n")];
    (
        version,
        status,
        length,
        header_lines(3),
        any::<bool>(),
        body,
    )
        .prop_map(
            |(version, status, length, lines, is_first, body)| match is_first {
                true => format!("{version} {status}\r\n{length}{lines}\r\n{body}"),
                false => format!("{version} {status}\r\n{lines}{length}\r\n{body}"),
            },
        )
}

fn header() -> impl Strategy<Value = (HeaderName, HeaderValue)> {
    let value = prop_oneof![select(VALUES).prop_map(str::to_owned), "[ -~]{0,8}"];
    (select(NAMES), value).prop_map(|(name, value)| {
        let value = HeaderValue::from_bytes(value.trim().as_bytes());
        (HeaderName::from_static(name), value.unwrap())
    })
}

fn response() -> impl Strategy<Value = Response<Full<bytes::Bytes>>> {
    let status = prop_oneof![3 => Just(200), 2 => 200..600_u16];
    (status, vec(header(), 0..5), 0..20_usize).prop_map(|(status, headers, length)| {
        let mut response = Response::new(Full::from("a".repeat(length)));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
            .headers_mut()
            .extend(headers.into_iter().map(|(name, value)| (Some(name), value)));
        response
    })
}

fn request() -> impl Strategy<Value = Request<Empty<bytes::Bytes>>> {
    let method = select(
        &[
            "GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "CONNECT", "M-SEARCH",
        ][..],
    );
    let target = target().prop_filter_map("a URI", |target| target.parse::<http::Uri>().ok());
    (method, target, vec(header(), 0..5)).prop_map(|(method, target, headers)| {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
        *request.uri_mut() = target;
        request
            .headers_mut()
            .extend(headers.into_iter().map(|(name, value)| (Some(name), value)));
        request
    })
}

/// Runs a comparison with generated input, and checks that the fast path took a good part of it: otherwise nothing was compared.
fn compare<S: Strategy>(input: S, took: impl Fn(S::Value) -> bool) {
    let config = ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let taken = std::cell::Cell::new(0_u32);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result = runner.run(&input, |value| {
        taken.set(taken.get() + u32::from(took(value)));
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let taken = taken.get();
    assert!(
        (CASES / 10..CASES * 9 / 10).contains(&taken),
        "the fast path took {taken} of {CASES}"
    );
}

#[test]
fn requests_are_read_as_hyper_reads_them() {
    let limit = prop_oneof![3 => Just(8_192_usize), 1 => 20..200_usize];
    compare(
        (requests(), changes(), limit),
        |(requests, changes, limit)| compare_requests(&changed(&requests, &changes), limit) > 0,
    );
}

#[test]
fn responses_are_read_as_hyper_reads_them() {
    compare((response_text(), changes()), |(response, changes)| {
        compare_response(&changed(&response, &changes))
    });
}

#[test]
fn heads_of_responses_are_written_as_hyper_writes_them() {
    compare(response(), |response| compare_response_head(&response));
}

#[test]
fn heads_of_requests_are_written_as_hyper_writes_them() {
    compare(request(), |request| compare_request_head(&request));
}
