//! What goes on to an upstream, and what comes back from it: bytes of targets, headers and trailers.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;

use crate::serving::{PATIENCE, Serving};

/// An upstream that notes every request, byte for byte, and answers all of them alike.
struct Recorder {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

impl Recorder {
    fn answering(answer: impl Into<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (noted, answer) = (Arc::clone(&seen), answer.into());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (noted, answer) = (Arc::clone(&noted), answer.clone());
                std::thread::spawn(move || {
                    while let Some(request) = message(&mut stream) {
                        noted.lock().push(request);
                        stream.write_all(answer.as_bytes()).unwrap();
                    }
                });
            }
        });
        Self { address, seen }
    }

    fn last(&self) -> String {
        self.seen.lock().last().cloned().unwrap_or_default()
    }

    /// The target of the last request.
    fn last_target(&self) -> String {
        self.last().split(' ').nth(1).unwrap_or_default().to_owned()
    }
}

/// The next message on a connection, with all of its body and trailers.
fn message(stream: &mut TcpStream) -> Option<String> {
    let head = read_until(stream, "\r\n\r\n")?;
    let field = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(": "));
        let found = fields.find(|(field, _)| field.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_owned())
    };
    let body = match (field("transfer-encoding"), field("content-length")) {
        (Some(_), _) => chunked(stream)?,
        (None, Some(length)) => {
            let mut body = vec![0; length.parse().unwrap()];
            stream.read_exact(&mut body).ok()?;
            latin1(&body)
        }
        (None, None) => String::new(),
    };
    Some(head + &body)
}

fn chunked(stream: &mut TcpStream) -> Option<String> {
    let mut body = String::new();
    loop {
        let size = read_until(stream, "\r\n")?;
        body.push_str(&size);
        if size.trim() == "0" {
            break;
        }
        let mut chunk = vec![0; usize::from_str_radix(size.trim(), 16).unwrap() + 2];
        stream.read_exact(&mut chunk).ok()?;
        body.push_str(&latin1(&chunk));
    }
    loop {
        let line = read_until(stream, "\r\n")?;
        body.push_str(&line);
        if line == "\r\n" {
            return Some(body);
        }
    }
}

fn read_until(stream: &mut TcpStream, end: &str) -> Option<String> {
    let (mut read, mut byte) = (Vec::new(), [0]);
    while !read.ends_with(end.as_bytes()) {
        stream.read_exact(&mut byte).ok()?;
        read.push(byte[0]);
    }
    Some(latin1(&read))
}

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// A gateway before this upstream, with more of its own fields and of the configuration's.
fn gateway(upstream: &Recorder, fields: &str, rest: &str) -> Serving {
    Serving::by(&format!(
        "gateway: {{ listen: 127.0.0.1:0, workers: 1, upstreams: [{{ to: \"http://{}\" }}], {fields} }}\nlog: {{ format: json }}\n{rest}\n",
        upstream.address
    ))
}

const EVERYBODY: &str = "rules: [{ id: everyone, per: [], limit: \"1/h burst 100000\" }]";

/// What the gateway says to one request on a connection of its own.
fn ask(gateway: SocketAddr, request: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(gateway).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_ref()).unwrap();
    message(&mut stream).expect("a response")
}

fn field<'m>(message: &'m str, name: &str) -> Vec<&'m str> {
    let head = message.split("\r\n\r\n").next().unwrap_or_default();
    let fields = head
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(": "));
    let named = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value).collect()
}

/// Keys of objects, signed addresses, what browsers leave unencoded: what loses its meaning when it is written in another way.
const TARGETS: [&str; 26] = [
    "/dir//file",
    "/dir/file",
    "//dir/file",
    "/a/../b",
    "/a/./b/.",
    "/a%2Bb+c",
    "/a%40b@c",
    "/k%3Dv%26w%3A%2C",
    "/100%25",
    "/%7Euser/~user",
    "/caf%c3%a9/%E2%82%AC",
    "/proxy/https://example.com/x",
    "/a;v=1/b;w",
    "/a%20b",
    "/trailing/",
    "/trailing//",
    "/%41%62c",
    "/a?b=%2F..//&c=+%2B&d",
    "/a?filter={\"a\":1}",
    "/a?b={c}|d^e`f'g[]\\",
    "/?",
    "/a??b?c",
    "/a?b=https://example.com/x//y",
    "/{a}|b^\"c",
    "/!$&'()*,=:",
    "/a%2Fb%2fc",
];

#[tokio::test]
async fn a_path_and_query_go_on_byte_for_byte() {
    let upstream = Recorder::answering(OK);
    let rest = format!("{EVERYBODY}\npaths: {{ encoded_slash: keep }}");
    let serving = gateway(&upstream, "", &rest);
    let address = serving.address("gateway");
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut two, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    for target in TARGETS {
        let has_quote = target
            .split_once('?')
            .is_some_and(|(_, query)| query.contains('"'));
        let lines = "host: h\r\n";
        for request in [
            format!("GET {target} HTTP/1.1\r\n{lines}\r\n"),
            format!("PUT {target} HTTP/1.1\r\n{lines}content-length: 1\r\n\r\nx"),
            format!("GET {target} HTTP/1.0\r\n{lines}\r\n"),
            format!("GET http://h{target} HTTP/1.1\r\n{lines}\r\n"),
        ] {
            let response = ask(address, &request);
            if has_quote {
                assert!(response.starts_with("HTTP/1.1 400 "), "{request}{response}");
                continue;
            }
            assert!(response.contains(" 200 OK\r\n"), "{request}{response}");
            assert_eq!(upstream.last_target(), target, "{request}");
        }
        if !has_quote {
            let request = Request::get(format!("http://h{target}")).body(Full::<Bytes>::default());
            let response = two.send_request(request.unwrap()).await.unwrap();
            assert_eq!(response.status(), 200, "{target}");
            response.into_body().collect().await.unwrap();
            assert_eq!(upstream.last_target(), target, "HTTP/2");
        }
    }
}

/// As an object store sees them through the gateway: none overwrites another.
#[test]
fn eighteen_keys_are_eighteen_objects() {
    let keys = [
        "dir/file",
        "dir//file",
        "dir/./file",
        "b",
        "a/../b",
        "a%2Bb",
        "a+b",
        "a%40b",
        "a@b",
        "a%3Db",
        "a=b",
        "a%26b",
        "a&b",
        "a%3Ab",
        "a%2Cb",
        "a%20b",
        "a%2Fb",
        "caf%C3%A9",
    ];
    let upstream = Recorder::answering(OK);
    let rules = "rules: [{ id: puts, match: { methods: [PUT], path: \"/bucket/{*key}\" }, per: [client], limit: \"1/h burst 100\" }]";
    let rest = format!("{rules}\npaths: {{ encoded_slash: keep }}");
    let serving = gateway(&upstream, "", &rest);
    for key in keys {
        let request =
            format!("PUT /bucket/{key} HTTP/1.1\r\nhost: s3\r\ncontent-length: 1\r\n\r\nx");
        let response = ask(serving.address("gateway"), request);
        assert!(response.starts_with("HTTP/1.1 200 "), "{key}: {response}");
        assert!(
            !field(&response, "x-ratelimit-remaining").is_empty(),
            "{key}: no rule"
        );
    }
    let seen = upstream.seen.lock();
    let mut targets: Vec<&str> = seen
        .iter()
        .map(|seen| seen.split(' ').nth(1).unwrap())
        .collect();
    targets.sort_unstable();
    targets.dedup();
    assert_eq!(targets.len(), keys.len(), "{targets:?}");
}

#[test]
fn a_path_goes_to_the_upstream_of_its_normal_form_or_is_refused() {
    let (root, reports) = (Recorder::answering(OK), Recorder::answering(OK));
    let serving = Serving::by(&format!(
        "gateway:\n  listen: 127.0.0.1:0\n  upstreams:\n    - {{ to: \"http://{}\" }}\n    - {{ path: /v1/reports, to: \"http://{}\" }}\nlog: {{ format: json }}\n{EVERYBODY}\n",
        root.address, reports.address
    ));
    let get = |path: &str| {
        ask(
            serving.address("gateway"),
            format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n"),
        )
    };
    for path in [
        "/v1/reports/a//b",
        "/v1/reports/%41",
        "/v1/reports",
        "/v1/reports/a/../b",
    ] {
        assert!(get(path).starts_with("HTTP/1.1 200 "), "{path}");
        assert_eq!(reports.last_target(), path);
    }
    for path in ["/a//b", "/v1/x/../y"] {
        assert!(get(path).starts_with("HTTP/1.1 200 "), "{path}");
        assert_eq!(root.last_target(), path);
    }
    for path in [
        "/v1//reports/a",
        "/v1/%72eports",
        "/v1/reports/../x",
        "/x/../v1/reports",
    ] {
        assert!(get(path).starts_with("HTTP/1.1 400 "), "{path}");
    }
    assert_eq!((root.seen.lock().len(), reports.seen.lock().len()), (2, 4));
}

#[test]
fn an_unencoded_character_is_refused_with_the_reason() {
    let upstream = Recorder::answering(OK);
    let serving = gateway(&upstream, "", EVERYBODY);
    let address = serving.address("gateway");
    for (target, reason) in [
        (
            &b"/?filter={\"a\":1}"[..],
            "an unencoded \\\" at byte 10. Send it as %22.",
        ),
        (b"/a<b", "an unencoded < at byte 2. Send it as %3C."),
        (
            b"/?a=caf\xe9",
            "a byte that is not UTF-8 at byte 7. Send it as %E9.",
        ),
    ] {
        let request = [b"GET ", target, b" HTTP/1.1\r\nhost: h\r\n\r\n"].concat();
        let response = ask(address, &request);
        assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
        assert_eq!(
            field(&response, "content-type"),
            ["application/problem+json"]
        );
        assert_eq!(field(&response, "connection"), ["close"]);
        assert!(response.contains(reason), "{response}");
    }
    assert!(upstream.seen.lock().is_empty());
}

#[test]
fn an_address_without_a_path_asks_for_the_root() {
    let upstream = Recorder::answering(OK);
    let serving = gateway(&upstream, "", EVERYBODY);
    for (target, forwarded) in [
        ("http://a#x", "/"),
        ("http://a", "/"),
        ("http://a?x", "/?x"),
        ("http://a/?x#y", "/?x"),
    ] {
        for request in [
            format!("POST {target} HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx"),
            format!("GET {target} HTTP/1.1\r\nhost: a\r\n\r\n"),
        ] {
            let response = ask(serving.address("gateway"), &request);
            assert!(response.starts_with("HTTP/1.1 200 "), "{request}{response}");
            assert_eq!(upstream.last_target(), forwarded, "{request}");
        }
    }
}

#[test]
fn connection_cannot_have_dropped_what_the_gateway_adds() {
    let upstream = Recorder::answering(OK);
    let serving = gateway(&upstream, "", EVERYBODY);
    let request = "GET / HTTP/1.1\r\nhost: h\r\nx-request-id: mine\r\nx-secret: 1\r\n\
        connection: keep-alive, x-request-id, X-Forwarded-For, x-forwarded-proto, x-forwarded-host, x-secret\r\n\r\n";
    let response = ask(serving.address("gateway"), request);
    let seen = upstream.last();
    let id = field(&response, "x-request-id");
    assert_eq!(field(&seen, "x-request-id"), id);
    assert_eq!(field(&seen, "x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(field(&seen, "x-forwarded-proto"), ["http"]);
    assert_eq!(field(&seen, "x-forwarded-host"), ["h"]);
    assert!(
        field(&seen, "x-secret").is_empty() && field(&seen, "connection").is_empty(),
        "{seen}"
    );
}

/// What `Connection` names is for the gateway, so no rule sees it either.
#[test]
fn the_limiter_and_the_upstream_see_the_same_headers() {
    let upstream = Recorder::answering(OK);
    let rules = "rules: [{ id: eu, match: { headers: { X-Region: [eu] } }, per: [], limit: \"1/h burst 100\" }]";
    let serving = gateway(&upstream, "", rules);
    for (connection, is_limited) in [("keep-alive", true), ("x-region", false)] {
        let request = format!(
            "GET / HTTP/1.1\r\nhost: h\r\nx-region: eu\r\nconnection: {connection}\r\n\r\n"
        );
        let response = ask(serving.address("gateway"), request);
        assert_eq!(
            !field(&response, "x-ratelimit-limit").is_empty(),
            is_limited,
            "{response}"
        );
        assert_eq!(!field(&upstream.last(), "x-region").is_empty(), is_limited);
    }
}

#[test]
fn trailers_of_a_request_carry_nothing_that_belongs_in_a_head() {
    let upstream = Recorder::answering(OK);
    let rest = "identity: { client: [\"api_key:X-API-Key\", ip], plan: [\"header:X-Plan\"] }\n\
        rules: [{ id: eu, match: { headers: { X-Region: [eu] } }, per: [], limit: \"1/h\" }]";
    let serving = gateway(&upstream, "", rest);
    let names = "x-checksum, x-forwarded-for, cookie, connection, x-api-key, x-plan, x-region, x_api_key, x-real-ip";
    let trailers: String = names
        .split(", ")
        .map(|name| format!("{name}: v\r\n"))
        .collect();
    let request = format!(
        "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\ntrailer: {names}\r\n\r\n3\r\nabc\r\n0\r\n{trailers}\r\n"
    );
    let response = ask(serving.address("gateway"), request);
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let seen = upstream.last();
    let (_, body) = seen.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, "3\r\nabc\r\n0\r\nx-checksum: v\r\n\r\n", "{seen}");
}

#[test]
fn trailers_of_a_response_carry_nothing_that_belongs_in_a_head() {
    let names = "x-checksum, set-cookie, x-request-id, connection, forwarded, server-timing";
    let trailers: String = names
        .split(", ")
        .map(|name| format!("{name}: v\r\n"))
        .collect();
    let upstream = Recorder::answering(format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: {names}\r\n\r\n3\r\nabc\r\n0\r\n{trailers}\r\n"
    ));
    let serving = gateway(&upstream, "", EVERYBODY);
    let request = "GET / HTTP/1.1\r\nhost: h\r\nte: trailers\r\n\r\n";
    let response = ask(serving.address("gateway"), request);
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    assert_eq!(
        body, "3\r\nabc\r\n0\r\nx-checksum: v\r\nserver-timing: v\r\n\r\n",
        "{response}"
    );
}

#[test]
fn a_response_says_one_length_that_is_true() {
    for (head, expected) in [
        // Named by Connection or not, it was the framing.
        (
            "connection: transfer-encoding\r\ntransfer-encoding: chunked\r\ncontent-length: 9\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            Ok(()),
        ),
        ("content-length: 2\r\ncontent-length: 2\r\n\r\nok", Ok(())),
        ("content-length: 2, 2\r\n\r\nok", Ok(())),
        ("content-length: 2\r\ncontent-length: 3\r\n\r\nok", Err(())),
    ] {
        let upstream = Recorder::answering(format!("HTTP/1.1 200 OK\r\n{head}"));
        let serving = gateway(&upstream, "", EVERYBODY);
        let response = ask(
            serving.address("gateway"),
            "GET / HTTP/1.1\r\nhost: h\r\n\r\n",
        );
        match expected {
            Ok(()) => {
                assert!(response.starts_with("HTTP/1.1 200 "), "{head}: {response}");
                let lengths = field(&response, "content-length");
                let is_chunked = !field(&response, "transfer-encoding").is_empty();
                assert!(
                    matches!(lengths[..], ["2"]) || (lengths.is_empty() && is_chunked),
                    "{head}: {response}"
                );
            }
            Err(()) => assert!(response.starts_with("HTTP/1.1 502 "), "{head}: {response}"),
        }
    }
}

#[tokio::test]
async fn a_length_that_http2_says_twice_goes_on_once() {
    let upstream = Recorder::answering(OK);
    let serving = gateway(&upstream, "", EVERYBODY);
    let stream = tokio::net::TcpStream::connect(serving.address("gateway"))
        .await
        .unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::post("http://h/")
        .header("content-length", "3")
        .header("content-length", "3")
        .body(Full::<Bytes>::from("abc"));
    let response = sender.send_request(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    let seen = upstream.last();
    assert_eq!(field(&seen, "content-length"), ["3"], "{seen}");
}

#[test]
fn a_response_with_many_headers_passes_and_one_with_very_many_says_why_not() {
    for (count, status) in [(64, 200), (101, 200), (250, 200), (300, 502)] {
        let lines: String = (0..count).map(|nth| format!("x-{nth}: 1\r\n")).collect();
        let upstream = Recorder::answering(format!(
            "HTTP/1.1 200 OK\r\n{lines}content-length: 2\r\n\r\nok"
        ));
        let serving = gateway(&upstream, "", EVERYBODY);
        let response = ask(
            serving.address("gateway"),
            "GET / HTTP/1.1\r\nhost: h\r\n\r\n",
        );
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status} ")),
            "{count}: {response}"
        );
        match status {
            200 => assert_eq!(field(&response, &format!("x-{}", count - 1)), ["1"]),
            _ => assert!(
                response.contains("more than 256 header fields"),
                "{response}"
            ),
        }
    }
}

/// nginx compresses nothing for who says `Via`, unless it is configured to.
#[test]
fn via_is_sent_only_where_it_is_configured() {
    for (fields, request, expected) in [
        ("", "GET / HTTP/1.1\r\nhost: h\r\n\r\n", &[][..]),
        (
            "via: false",
            "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\n\r\nx",
            &[],
        ),
        (
            "",
            "GET / HTTP/1.1\r\nhost: h\r\nvia: 1.1 edge\r\n\r\n",
            &["1.1 edge"],
        ),
        (
            "via: true",
            "GET / HTTP/1.1\r\nhost: h\r\n\r\n",
            &["1.1 tollgate"],
        ),
        (
            "via: true",
            "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\n\r\nx",
            &["1.1 tollgate"],
        ),
    ] {
        let upstream = Recorder::answering(OK);
        let serving = gateway(&upstream, fields, EVERYBODY);
        ask(serving.address("gateway"), request);
        assert_eq!(
            field(&upstream.last(), "via"),
            expected,
            "{fields}: {request}"
        );
    }
}
