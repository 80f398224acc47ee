//! Requests as the upstream receives them, and responses as the client does: bytes of targets, headers and trailers.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, Request};
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tollgate_testing::gateway::PLENTY;
use tollgate_testing::upstream::{RawUpstream, read_head, reply};
use tollgate_testing::wait::until_value;
use tollgate_testing::{Connection, Response, Running, Upstream, http2};

use crate::kit;

/// An upstream that records every request, byte for byte, and sends the same response to all of them.
struct Recorder {
    upstream: RawUpstream,
    requests: Arc<Mutex<Vec<String>>>,
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

impl Recorder {
    fn answering(response: impl Into<String>) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (records, response) = (Arc::clone(&requests), response.into());
        let upstream = RawUpstream::start(move |mut stream, _| {
            let (records, response) = (Arc::clone(&records), response.clone());
            async move {
                while let Some(request) = message(&mut stream).await {
                    records.lock().push(request);
                    stream.write_all(response.as_bytes()).await.unwrap();
                }
            }
        });
        Self { upstream, requests }
    }

    fn hits(&self) -> usize {
        self.requests.lock().len()
    }

    fn last(&self) -> String {
        self.requests.lock().last().cloned().unwrap_or_default()
    }

    /// The targets of all requests.
    fn targets(&self) -> Vec<String> {
        let requests = self.requests.lock();
        let targets = requests.iter().map(|request| request.split(' ').nth(1));
        targets.map(|target| target.unwrap().to_owned()).collect()
    }

    /// The target of the last request.
    fn last_target(&self) -> String {
        self.targets().pop().unwrap_or_default()
    }
}

/// The next request on a connection, with all of its body and trailers as they came.
async fn message(stream: &mut TcpStream) -> Option<String> {
    let head = read_head(stream).await;
    if head.is_empty() {
        return None;
    }
    let body = match header(&head, "content-length").first() {
        Some(length) => {
            let mut body = vec![0; length.parse().unwrap()];
            stream.read_exact(&mut body).await.ok()?;
            String::from_utf8(body).unwrap()
        }
        // Chunks end as a head does, with an empty line.
        None if !header(&head, "transfer-encoding").is_empty() => read_head(stream).await,
        None => String::new(),
    };
    Some(head + &body)
}

/// A gateway before this upstream, with more of its own fields and of the configuration's.
fn gateway(upstream: &Recorder, fields: &str, rest: &str) -> Running {
    kit::serve(&format!(
        "gateway: {{ listen: 127.0.0.1:0, workers: 1, upstreams: [{{ to: \"http://{}\" }}], {fields} }}\nlog: {{ format: json }}\n{rest}\n",
        upstream.upstream.address
    ))
}

/// The response to one request on a connection of its own.
async fn ask(gateway: SocketAddr, request: impl AsRef<[u8]>) -> Response {
    let mut client = Connection::open(gateway).await;
    client.send(request).await;
    client.response().await.expect("a response")
}

/// All values of a header of a recorded request.
fn header<'m>(message: &'m str, name: &str) -> Vec<&'m str> {
    let head = message.split("\r\n\r\n").next().unwrap_or_default();
    let headers = head
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(": "));
    let named = headers.filter(|(header, _)| header.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value).collect()
}

/// Targets that lose their meaning when they are written in another way: keys of objects, signed URLs, characters that browsers leave
/// unencoded.
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
async fn a_path_and_query_are_forwarded_byte_for_byte() {
    let upstream = Recorder::answering(OK);
    let rest = format!("{PLENTY}\npaths: {{ encoded_slash: keep }}");
    let running = gateway(&upstream, "", &rest);
    let address = running.address("gateway");
    let mut http2_client = http2::connect(address).await;
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
            let response = ask(address, &request).await;
            if has_quote {
                assert_eq!(response.status, 400, "{request}{response:?}");
                continue;
            }
            assert_eq!(response.status, 200, "{request}{response:?}");
            assert_eq!(upstream.last_target(), target, "{request}");
        }
        if !has_quote {
            let request = Request::get(format!("http://h{target}")).body(Full::<Bytes>::default());
            let response = http2_client.send_request(request.unwrap()).await.unwrap();
            assert_eq!(response.status(), 200, "{target}");
            response.into_body().collect().await.unwrap();
            assert_eq!(upstream.last_target(), target, "HTTP/2");
        }
    }
}

/// As an object store receives them: none overwrites another.
#[tokio::test]
async fn eighteen_keys_are_eighteen_objects() {
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
    let running = gateway(&upstream, "", &rest);
    for key in keys {
        let request =
            format!("PUT /bucket/{key} HTTP/1.1\r\nhost: s3\r\ncontent-length: 1\r\n\r\nx");
        let response = ask(running.address("gateway"), request).await;
        assert_eq!(response.status, 200, "{key}: {response:?}");
        assert!(
            !response.headers("x-ratelimit-remaining").is_empty(),
            "{key}: no rule"
        );
    }
    let mut targets = upstream.targets();
    targets.sort_unstable();
    targets.dedup();
    assert_eq!(targets.len(), keys.len(), "{targets:?}");
}

#[tokio::test]
async fn a_path_goes_to_the_upstream_of_its_normal_form_or_is_refused() {
    let (root, reports) = (Recorder::answering(OK), Recorder::answering(OK));
    let running = kit::serve(&format!(
        "gateway:\n  listen: 127.0.0.1:0\n  upstreams:\n    - {{ to: \"http://{}\" }}\n    - {{ path: /v1/reports, to: \"http://{}\" }}\nlog: {{ format: json }}\n{PLENTY}\n",
        root.upstream.address, reports.upstream.address
    ));
    let get = async |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n");
        ask(running.address("gateway"), request).await.status
    };
    for path in [
        "/v1/reports/a//b",
        "/v1/reports/%41",
        "/v1/reports",
        "/v1/reports/a/../b",
    ] {
        assert_eq!(get(path).await, 200, "{path}");
        assert_eq!(reports.last_target(), path);
    }
    for path in ["/a//b", "/v1/x/../y"] {
        assert_eq!(get(path).await, 200, "{path}");
        assert_eq!(root.last_target(), path);
    }
    for path in [
        "/v1//reports/a",
        "/v1/%72eports",
        "/v1/reports/../x",
        "/x/../v1/reports",
    ] {
        assert_eq!(get(path).await, 400, "{path}");
    }
    assert_eq!((root.hits(), reports.hits()), (2, 4));
}

/// The reason is there where the fast path reads the head in one piece; otherwise hyper refuses the request without one.
#[tokio::test]
async fn an_unencoded_character_is_refused_with_the_reason() {
    let upstream = Recorder::answering(OK);
    for (fields, is_explained) in [("", true), ("fast_path: false", false)] {
        let running = gateway(&upstream, fields, PLENTY);
        let address = running.address("gateway");
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
            let mut client = Connection::open(address).await;
            client.send(&request).await;
            let response = client.response().await.expect("a response");
            assert_eq!(response.status, 400, "{response:?}");
            assert_eq!(response.headers("connection"), ["close"]);
            assert_eq!(
                response.text().contains(reason),
                is_explained,
                "{response:?}"
            );
        }
    }
    assert_eq!(upstream.hits(), 0);
}

#[tokio::test]
async fn a_url_without_a_path_requests_the_root() {
    let upstream = Recorder::answering(OK);
    let running = gateway(&upstream, "", PLENTY);
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
            let response = ask(running.address("gateway"), &request).await;
            assert_eq!(response.status, 200, "{request}{response:?}");
            assert_eq!(upstream.last_target(), forwarded, "{request}");
        }
    }
}

#[tokio::test]
async fn connection_cannot_remove_headers_of_the_gateway() {
    let upstream = Recorder::answering(OK);
    let running = gateway(&upstream, "", PLENTY);
    let request = "GET / HTTP/1.1\r\nhost: h\r\nx-request-id: mine\r\nx-secret: 1\r\n\
        connection: keep-alive, x-request-id, X-Forwarded-For, x-forwarded-proto, x-forwarded-host, x-secret\r\n\r\n";
    let response = ask(running.address("gateway"), request).await;
    let forwarded = upstream.last();
    let id = response.headers("x-request-id");
    assert_eq!(header(&forwarded, "x-request-id"), id);
    assert_eq!(header(&forwarded, "x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(header(&forwarded, "x-forwarded-proto"), ["http"]);
    assert_eq!(header(&forwarded, "x-forwarded-host"), ["h"]);
    assert!(
        header(&forwarded, "x-secret").is_empty() && header(&forwarded, "connection").is_empty(),
        "{forwarded}"
    );
}

/// What `Connection` names is for the gateway, so no rule sees it either.
#[tokio::test]
async fn the_limiter_and_the_upstream_see_the_same_headers() {
    let upstream = Recorder::answering(OK);
    let rules = "rules: [{ id: eu, match: { headers: { X-Region: [eu] } }, per: [], limit: \"1/h burst 100\" }]";
    let running = gateway(&upstream, "", rules);
    for (connection, is_limited) in [("keep-alive", true), ("x-region", false)] {
        let request = format!(
            "GET / HTTP/1.1\r\nhost: h\r\nx-region: eu\r\nconnection: {connection}\r\n\r\n"
        );
        let response = ask(running.address("gateway"), request).await;
        assert_eq!(
            !response.headers("x-ratelimit-limit").is_empty(),
            is_limited,
            "{response:?}"
        );
        assert_eq!(!header(&upstream.last(), "x-region").is_empty(), is_limited);
    }
}

#[tokio::test]
async fn request_trailers_that_belong_in_a_head_are_dropped() {
    let upstream = Recorder::answering(OK);
    let rest = "identity: { client: [\"api_key:X-API-Key\", ip], plan: [\"header:X-Plan\"] }\n\
        rules: [{ id: eu, match: { headers: { X-Region: [eu] } }, per: [], limit: \"1/h\" }]";
    let running = gateway(&upstream, "", rest);
    let names = "x-checksum, x-forwarded-for, cookie, connection, x-api-key, x-plan, x-region, x_api_key, x-real-ip";
    let trailers: String = names
        .split(", ")
        .map(|name| format!("{name}: v\r\n"))
        .collect();
    let request = format!(
        "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\ntrailer: {names}\r\n\r\n3\r\nabc\r\n0\r\n{trailers}\r\n"
    );
    let response = ask(running.address("gateway"), request).await;
    assert_eq!(response.status, 200, "{response:?}");
    let forwarded = upstream.last();
    let (_, body) = forwarded.split_once("\r\n\r\n").unwrap();
    assert_eq!(
        body, "3\r\nabc\r\n0\r\nx-checksum: v\r\n\r\n",
        "{forwarded}"
    );
}

/// The first request's trailers arrive when a policy is in force that looks at one of them.
#[tokio::test]
async fn trailers_are_judged_by_the_policy_of_their_request() {
    let upstream = Upstream::answering(|request| async move {
        let body = request.into_body().collect().await.unwrap();
        let trailers = body.trailers().cloned().unwrap_or_default();
        let names: Vec<&str> = trailers.keys().map(HeaderName::as_str).collect();
        reply(200, names.join(" "))
    });
    let config = |rules: &str| {
        format!(
            "gateway: {{ listen: 127.0.0.1:0, upstreams: [{{ to: {:?} }}] }}\nadmin: {{ listen: 127.0.0.1:0 }}\nlog: {{ format: json }}\n{rules}\n",
            upstream.url()
        )
    };
    let running = kit::serve(&config(PLENTY));
    let mut client = Connection::open(running.address("gateway")).await;
    let head =
        "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\ntrailer: x-region\r\n\r\n";
    let (body, trailers) = ("3\r\nabc\r\n", "0\r\nx-region: eu\r\n\r\n");
    client.send([head, body].concat()).await;
    upstream.until_hits(1).await;
    let by_region =
        "rules: [{ id: eu, match: { headers: { X-Region: [eu] } }, per: [], limit: \"1/h\" }]";
    running.program.write("tollgate.yaml", &config(by_region));
    let generation = || running.metric("tollgate_rules_generation");
    until_value("the next policy", generation, |number| *number == 2.0);
    client.send(trailers).await;
    assert_eq!(client.response().await.unwrap().text(), "x-region");
    let response = client.request([head, body, trailers].concat()).await;
    assert_eq!(response.text(), "");
}

#[tokio::test]
async fn response_trailers_that_belong_in_a_head_are_dropped() {
    let names = "x-checksum, set-cookie, x-request-id, connection, forwarded, server-timing";
    let trailers: String = names
        .split(", ")
        .map(|name| format!("{name}: v\r\n"))
        .collect();
    let upstream = Recorder::answering(format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: {names}\r\n\r\n3\r\nabc\r\n0\r\n{trailers}\r\n"
    ));
    let running = gateway(&upstream, "", PLENTY);
    let request = "GET / HTTP/1.1\r\nhost: h\r\nte: trailers\r\n\r\n";
    let mut client = Connection::open(running.address("gateway")).await;
    client.send(request).await;
    let head = client.read_until("\r\n\r\n").await;
    let body = client.read_until("\r\n\r\n").await;
    assert_eq!(
        body, "3\r\nabc\r\n0\r\nx-checksum: v\r\nserver-timing: v\r\n\r\n",
        "{head}"
    );
}

#[tokio::test]
async fn a_response_has_one_correct_length() {
    for (head, expected) in [
        // Transfer-Encoding frames the body, although Connection names it.
        (
            "connection: transfer-encoding\r\ntransfer-encoding: chunked\r\ncontent-length: 9\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            Ok(()),
        ),
        ("content-length: 2\r\ncontent-length: 2\r\n\r\nok", Ok(())),
        ("content-length: 2, 2\r\n\r\nok", Ok(())),
        ("content-length: 2\r\ncontent-length: 3\r\n\r\nok", Err(())),
    ] {
        let upstream = Recorder::answering(format!("HTTP/1.1 200 OK\r\n{head}"));
        let running = gateway(&upstream, "", PLENTY);
        let response = ask(
            running.address("gateway"),
            "GET / HTTP/1.1\r\nhost: h\r\n\r\n",
        )
        .await;
        match expected {
            Ok(()) => {
                assert_eq!(response.status, 200, "{head}: {response:?}");
                let lengths = response.headers("content-length");
                let is_chunked = !response.headers("transfer-encoding").is_empty();
                assert!(
                    matches!((&lengths[..], is_chunked), (["2"], false) | ([], true)),
                    "{head}: {response:?}"
                );
                assert_eq!(response.text(), "ok");
            }
            Err(()) => assert_eq!(response.status, 502, "{head}: {response:?}"),
        }
    }
}

#[tokio::test]
async fn a_content_length_repeated_in_http2_is_forwarded_once() {
    let upstream = Recorder::answering(OK);
    let running = gateway(&upstream, "", PLENTY);
    let mut sender = http2::connect(running.address("gateway")).await;
    let request = Request::post("http://h/")
        .header("content-length", "3")
        .header("content-length", "3")
        .body(Full::<Bytes>::from("abc"));
    let response = sender.send_request(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    let forwarded = upstream.last();
    assert_eq!(header(&forwarded, "content-length"), ["3"], "{forwarded}");
}

#[tokio::test]
async fn a_response_with_more_than_256_headers_is_a_502() {
    for (count, status) in [(64, 200), (101, 200), (250, 200), (300, 502)] {
        let lines: String = (0..count).map(|nth| format!("x-{nth}: 1\r\n")).collect();
        let upstream = Recorder::answering(format!(
            "HTTP/1.1 200 OK\r\n{lines}content-length: 2\r\n\r\nok"
        ));
        let running = gateway(&upstream, "", PLENTY);
        let response = ask(
            running.address("gateway"),
            "GET / HTTP/1.1\r\nhost: h\r\n\r\n",
        )
        .await;
        assert_eq!(response.status, status, "{count}: {response:?}");
        match status {
            200 => assert_eq!(response.headers(&format!("x-{}", count - 1)), ["1"]),
            _ => assert!(
                response.text().contains("more than 256 headers"),
                "{response:?}"
            ),
        }
    }
}

/// By default, nginx does not compress responses to requests with `Via`.
#[tokio::test]
async fn via_is_sent_only_where_it_is_configured() {
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
        let running = gateway(&upstream, fields, PLENTY);
        ask(running.address("gateway"), request).await;
        assert_eq!(
            header(&upstream.last(), "via"),
            expected,
            "{fields}: {request}"
        );
    }
}
