//! Headers of an upstream's response, as clients receive them: the same on the fast path and through hyper.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::AsyncWriteExt as _;
use tollgate_testing::client::connect_from;
use tollgate_testing::upstream::{RawUpstream, read_head};

use crate::kit;

/// How the end of a body is announced.
#[derive(Clone, Copy)]
enum Framing {
    Length,
    Chunked,
}

impl Framing {
    /// What an upstream sends after its other headers.
    fn framed(self, body: &str) -> String {
        match self {
            Self::Length => format!("Content-Length: {}\r\n\r\n{body}", body.len()),
            Self::Chunked => format!("Transfer-Encoding: chunked\r\n\r\n{}", self.read(body)),
        }
    }

    /// What clients read after the head.
    fn read(self, body: &str) -> String {
        match self {
            Self::Length => body.to_owned(),
            Self::Chunked => format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()),
        }
    }
}

/// Answers every request with these headers and this body, on connections that stay open.
fn upstream(headers: &'static [u8], body: &'static str, framing: Framing) -> RawUpstream {
    RawUpstream::start(move |mut stream, _| async move {
        while !read_head(&mut stream).await.is_empty() {
            let rest = framing.framed(body);
            let response = [b"HTTP/1.1 200 OK\r\n", headers, rest.as_bytes()];
            stream.write_all(&response.concat()).await.unwrap();
        }
    })
}

/// All headers that a client receives, sorted, without the request id, which is the gateway's and new each time.
fn received(gateway: SocketAddr, request: &str, expected_body: &str) -> Vec<String> {
    let mut stream = connect_from(Ipv4Addr::LOCALHOST.into(), gateway).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    // Not all bytes are UTF-8.
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
        head.push(byte[0]);
    }
    let head = head.escape_ascii().to_string();
    let mut body = vec![0; expected_body.len()];
    stream.read_exact(&mut body).unwrap();
    assert_eq!(body, expected_body.as_bytes());
    let mut lines: Vec<String> = head.split("\\r\\n").map(str::to_owned).collect();
    let ids = lines.extract_if(.., |line| line.starts_with("x-request-id: "));
    let ids: Vec<String> = ids.collect();
    assert!(ids.len() == 1 && ids[0].len() == 46, "{ids:?}");
    // The first line and the future of the connection are not of the upstream's making.
    lines.retain(|line| {
        !line.is_empty() && !line.starts_with("HTTP/") && !line.starts_with("connection:")
    });
    lines.sort();
    lines
}

/// The headers that clients receive for these headers and this body of an upstream, with `X-RateLimit` headers. They must be the same
/// for every kind of request.
fn each_way(headers: &'static [u8], body: &'static str) -> Vec<String> {
    each_way_in(Framing::Length, "x-ratelimit", headers, body)
}

/// The same with another framing of the body, and these headers of the gateway.
fn each_way_in(
    framing: Framing,
    limit_headers: &str,
    headers: &'static [u8],
    body: &'static str,
) -> Vec<String> {
    let upstream = upstream(headers, body, framing);
    let running = kit::serve(&format!(
        "gateway: {{ listen: 127.0.0.1:0, workers: 1, upstreams: [{{ to: \"http://{}\" }}] }}
log: {{ format: json }}
answers: {{ headers: [{limit_headers}] }}
rules:
  - {{ id: everyone, per: [\"header:x-way\"], limit: \"1/h burst 5\" }}
",
        upstream.address
    ));
    let gateway = running.address("gateway");
    // Each with a bucket of its own.
    let mut requests = vec![
        "GET / HTTP/1.1\r\nhost: h\r\nx-way: plain\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: h\r\nx-way: last\r\nconnection: close\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: h\r\nx-way: body\r\ncontent-length: 1\r\n\r\na",
    ];
    // HTTP/1.0 has no chunks.
    if let Framing::Length = framing {
        requests.push("GET / HTTP/1.0\r\nhost: h\r\nx-way: old\r\n\r\n");
    }
    let without_reset = |mut lines: Vec<String>| {
        lines.retain(|line| !line.starts_with("x-ratelimit-reset: 1"));
        lines
    };
    let body = framing.read(body);
    let mut all =
        (requests.into_iter()).map(|request| without_reset(received(gateway, request, &body)));
    let plain = all.next().unwrap();
    for other in all {
        assert_eq!(other, plain);
    }
    plain
}

#[test]
fn headers_of_an_upstream_are_passed_on_to_every_client() {
    let headers = b"Server: s\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nSet-Cookie: a=1\r\nX-Byte: \xe9\r\nX-Empty:\r\n\
        set-cookie: b=2\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nTE: gzip\r\nX-Request-Id: theirs\r\n";
    assert_eq!(
        each_way(headers, "hi"),
        [
            "content-length: 2",
            "date: Sun, 06 Nov 1994 08:49:37 GMT",
            "server: s",
            "set-cookie: a=1",
            "set-cookie: b=2",
            r"x-byte: \xe9",
            "x-empty: ",
            "x-ratelimit-limit: 5",
            "x-ratelimit-remaining: 4",
        ]
    );
}

#[test]
fn limit_headers_of_an_upstream_are_merged_with_ours() {
    let headers = b"Date: now\r\nX-RateLimit-Limit: 9\r\nx-ratelimit-remaining: 0\r\nX-RateLimit-Reset: 7\r\nRetry-After: 3\r\n";
    assert_eq!(
        each_way(headers, "hi"),
        [
            "content-length: 2",
            "date: now",
            "retry-after: 3",
            "x-ratelimit-limit: 9",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 7",
        ]
    );
    let looser = b"Date: now\r\nX-RateLimit-Limit: 99\r\nX-RateLimit-Remaining: 98\r\nX-RateLimit-Reset: 7\r\n";
    assert_eq!(
        each_way(looser, "hi"),
        [
            "content-length: 2",
            "date: now",
            "x-ratelimit-limit: 5",
            "x-ratelimit-remaining: 4",
        ]
    );
}

#[test]
fn ratelimit_lists_of_an_upstream_stand_beside_ours() {
    let lists: &[u8] = b"Date: now\r\nRateLimit-Policy: \"daily\";q=9;w=86400\r\nratelimit: \"daily\";r=2;t=7\r\nRateLimit: \"monthly\";r=1;t=8\r\nRetry-After: 3\r\n";
    // Headers of an older draft are not lists that ours could be added to.
    let older: &[u8] = b"Date: now\r\nRateLimit-Policy: 100;w=60\r\nRateLimit: limit=100, remaining=50, reset=5\r\n";
    for (framing, length) in [
        (Framing::Length, "content-length: 2"),
        (Framing::Chunked, "transfer-encoding: chunked"),
    ] {
        let received = |headers| each_way_in(framing, "ratelimit", headers, "hi");
        let mut expected = [
            length,
            "date: now",
            r#"ratelimit-policy: \"daily\";q=9;w=86400"#,
            r#"ratelimit-policy: \"everyone\";q=5;w=18000"#,
            r#"ratelimit: \"daily\";r=2;t=7"#,
            r#"ratelimit: \"everyone\";r=4;t=3600"#,
            r#"ratelimit: \"monthly\";r=1;t=8"#,
            "retry-after: 3",
        ];
        expected.sort_unstable();
        assert_eq!(received(lists), expected);
        let mut expected = [
            length,
            "date: now",
            "ratelimit-policy: 100;w=60",
            "ratelimit: limit=100, remaining=50, reset=5",
        ];
        expected.sort_unstable();
        assert_eq!(received(older), expected);
    }
}

#[test]
fn headers_that_connection_names_are_not_passed_on() {
    let headers = b"Date: now\r\nConnection: x-secret, keep-alive\r\nX-Secret: 1\r\nX-A: 1\r\n";
    assert_eq!(
        each_way(headers, "hi"),
        [
            "content-length: 2",
            "date: now",
            "x-a: 1",
            "x-ratelimit-limit: 5",
            "x-ratelimit-remaining: 4",
        ]
    );
}

#[test]
fn an_empty_body_has_a_known_length() {
    assert_eq!(
        each_way(b"Date: now\r\n", ""),
        [
            "content-length: 0",
            "date: now",
            "x-ratelimit-limit: 5",
            "x-ratelimit-remaining: 4",
        ]
    );
}
