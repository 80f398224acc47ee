//! Requests and responses through the proxy: routes, headers, bodies and connections.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tollgate_http::body::LimitedBody;
use tollgate_http::proxy::{ClientInfo, HostHeader};
use tollgate_testing::upstream::{RawUpstream, read_head, reply, streamed};
use tollgate_testing::{TIMEOUT, Upstream};

use crate::proxy::{GET, Options, RunningProxy, upstream, upstream_at};

const OPEN: &str = "tollgate_upstream_connections{upstream=\"/\"}";

#[tokio::test]
async fn longest_path_by_whole_segments_decides_the_upstream() {
    let names = [("/", "all"), ("/v1", "v1"), ("/v1/reports", "reports")];
    let servers = names.map(|(path, name)| (path, Upstream::named(name)));
    let upstreams = (servers.each_ref()).map(|(path, server)| upstream_at(path, &[server.address]));
    let proxy = RunningProxy::of(&upstreams).await;
    for (path, expected) in [
        ("/", "all"),
        ("/v10", "all"),
        ("/v1", "v1"),
        ("/v1?a=b", "v1"),
        ("/v1/report", "v1"),
        ("/v1/reports/7", "reports"),
    ] {
        assert_eq!(proxy.get(path).await.text(), expected, "{path}");
    }
}

#[tokio::test]
async fn unserved_paths_and_connect_reach_no_server() {
    let server = Upstream::named("v1");
    let proxy = RunningProxy::of(&[upstream_at("/v1", &[server.address])]).await;
    let response = proxy.get("/v2").await;
    assert_eq!(response.status, 404);
    assert_eq!(response.text(), "nothing is served at this path");
    let response = proxy
        .send("CONNECT a:443 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .await;
    assert_eq!(response.status, 501, "{response:?}");
    assert_eq!(server.hits(), 0);
}

/// Responds with the request's first line, headers and body, each as a line.
fn mirror() -> Upstream {
    Upstream::answering(|request| async move {
        let mut lines = format!("{} {}\n", request.method(), request.uri());
        for (name, value) in request.headers() {
            lines.push_str(&format!("{name}: {}\n", value.to_str().unwrap()));
        }
        let body = request.into_body().collect().await.unwrap().to_bytes();
        lines.push_str(&format!("body={}", String::from_utf8_lossy(&body)));
        reply(200, lines)
    })
}

#[tokio::test]
async fn hop_by_hop_headers_are_removed_in_both_directions() {
    let server = mirror();
    let proxy = RunningProxy::before(server.address).await;
    let response = proxy
        .send(
            "GET /a?b=c HTTP/1.1\r\nhost: api.test\r\nconnection: close, x-secret, host\r\nx-secret: 1\r\nkeep-alive: 5\r\n\
             proxy-authorization: x\r\nproxy-connection: close\r\nte: gzip, trailers\r\nupgrade: h2c\r\nx-kept: yes\r\n\r\n",
        )
        .await;
    let received = response.text();
    assert!(received.contains("GET /a?b=c\n"), "{received}");
    for kept in ["host: api.test\n", "te: trailers\n", "x-kept: yes\n"] {
        assert!(received.contains(kept), "{kept}: {received}");
    }
    for removed in ["x-secret", "keep-alive: 5", "proxy-", "upgrade", "gzip"] {
        assert!(!received.contains(removed), "{removed}: {received}");
        assert!(!response.head.contains(removed), "{removed}: {response:?}");
    }

    let server = RawUpstream::start(|mut stream, _| async move {
        read_head(&mut stream).await;
        let head = "HTTP/1.1 200 OK\r\nconnection: close, x-inner\r\nx-inner: 1\r\nkeep-alive: 9\r\n\
                    proxy-authenticate: x\r\nupgrade: h2c\r\nx-kept: yes\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
    });
    let proxy = RunningProxy::before(server.address).await;
    let mut client = proxy.connect().await;
    for _ in 0..2 {
        // The client's connection stays open, although the server closes its own.
        client.send(GET).await;
        let response = client.read_until("0\r\n\r\n").await;
        assert!(response.contains("x-kept: yes"), "{response}");
        for removed in ["x-inner", "keep-alive", "proxy-", "upgrade", "close"] {
            assert!(!response.contains(removed), "{removed}: {response}");
        }
    }
}

#[tokio::test]
async fn only_trusted_proxies_may_send_forwarding_headers() {
    let server = mirror();
    let upstreams = [upstream(server.address)];
    let request = "GET / HTTP/1.1\r\nhost: api.test\r\nx-forwarded-for: 198.51.100.1\r\nx-forwarded-for: 198.51.100.2\r\n\
                   x-forwarded-proto: gopher\r\nx-forwarded-host: evil\r\nforwarded: for=evil\r\nx-real-ip: 1.2.3.4\r\nconnection: close\r\n\r\n";
    let proxy = RunningProxy::of(&upstreams).await;
    let received = proxy.send(request).await.text();
    for added in [
        "x-forwarded-for: 198.51.100.1, 198.51.100.2, 127.0.0.1\n",
        "x-forwarded-proto: http\n",
        "x-forwarded-host: api.test\n",
    ] {
        assert!(received.contains(added), "{added}: {received}");
    }
    for claim in ["evil", "1.2.3.4"] {
        assert!(!received.contains(claim), "{claim}: {received}");
    }

    let options = Options {
        is_tls: true,
        trusts_all: true,
        ..Options::default()
    };
    let proxy = RunningProxy::with(&upstreams, options).await;
    let received = proxy.send(request).await.text();
    for kept in [
        "x-forwarded-proto: gopher",
        "x-forwarded-host: evil",
        "forwarded: for=evil",
    ] {
        assert!(received.contains(kept), "{kept}: {received}");
    }
    let received = proxy.get("/").await.text();
    assert!(
        received.contains("x-forwarded-proto: https\n"),
        "{received}"
    );
}

#[tokio::test]
async fn upstream_receives_the_requested_host_or_its_own() {
    let server = mirror();
    let mut upstream = upstream(server.address);
    let proxy = RunningProxy::of(std::slice::from_ref(&upstream)).await;
    // The target's host counts, as for the rules.
    let absolute =
        "GET http://user:pw@one.test/p?q HTTP/1.1\r\nhost: two.test\r\nconnection: close\r\n\r\n";
    let received = proxy.send(absolute).await.text();
    for kept in ["GET /p?q\n", "host: one.test\n"] {
        assert!(received.contains(kept), "{kept}: {received}");
    }
    for removed in ["two.test", "pw"] {
        assert!(!received.contains(removed), "{removed}: {received}");
    }
    upstream.host = HostHeader::Upstream;
    let proxy = RunningProxy::of(&[upstream]).await;
    let request = "GET / HTTP/1.1\r\nhost: api.test\r\nconnection: close\r\n\r\n";
    let received = proxy.send(request).await.text();
    let own = format!("\nhost: {}\n", server.address);
    for added in [&own, "x-forwarded-host: api.test\n"] {
        assert!(received.contains(added), "{added}: {received}");
    }
}

#[tokio::test]
async fn bodies_are_forwarded_for_all_methods_and_framings() {
    let server = mirror();
    let proxy = RunningProxy::before(server.address).await;
    for method in ["POST", "GET", "DELETE"] {
        for framed in [
            "content-length: 5\r\n\r\nhello",
            "transfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
        ] {
            let request =
                format!("{method} / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{framed}");
            let received = proxy.send(&request).await.text();
            assert!(received.ends_with("\nbody=hello"), "{request}: {received}");
        }
    }
}

#[tokio::test]
async fn responses_are_streamed_with_their_trailers() {
    let (bodies, mut sent) = mpsc::unbounded_channel();
    let server = Upstream::answering(move |_| {
        let (body, mut reply) = streamed();
        let trailer = "x-checksum".parse().unwrap();
        reply.headers_mut().insert("trailer", trailer);
        bodies.send(body).unwrap();
        async move { reply }
    });
    let proxy = RunningProxy::before(server.address).await;
    let mut client = proxy.connect().await;
    for _ in 0..2 {
        client
            .send("GET / HTTP/1.1\r\nhost: a\r\nte: trailers\r\nconnection: te\r\n\r\n")
            .await;
        let body = sent.recv().await.unwrap();
        body.send(Frame::data(Bytes::from("first"))).unwrap();
        let response = client.read_until("first\r\n").await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        body.send(Frame::data(Bytes::from("last"))).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", "7".parse().unwrap());
        body.send(Frame::trailers(trailers)).unwrap();
        drop(body);
        let rest = client.read_until("\r\n\r\n").await;
        assert!(
            rest.contains("last") && rest.contains("x-checksum: 7"),
            "{rest}"
        );
    }
    assert_eq!(server.connections(), 1, "the connection is reused");
}

#[tokio::test]
async fn requests_are_streamed_after_100_continue() {
    let (parts, mut received) = mpsc::unbounded_channel();
    let server = Upstream::answering(move |request| {
        let parts = parts.clone();
        async move {
            assert!(!request.headers().contains_key("expect"));
            let mut body = request.into_body();
            let mut trailers = None;
            while let Some(frame) = body.frame().await {
                match frame.unwrap().into_data() {
                    Ok(data) => parts.send(data).unwrap(),
                    Err(frame) => trailers = frame.into_trailers().ok(),
                }
            }
            let trailer = trailers.and_then(|trailers| trailers.get("x-end").cloned());
            reply(200, format!("{trailer:?}"))
        }
    });
    let proxy = RunningProxy::before(server.address).await;
    let mut client = proxy.connect().await;
    client
        .send("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ntrailer: x-end\r\ntransfer-encoding: chunked\r\n\r\n")
        .await;
    client.read_until("HTTP/1.1 100 Continue\r\n\r\n").await;
    client.send("5\r\nfirst\r\n").await;
    assert_eq!(received.recv().await.unwrap(), "first");
    client.send("4\r\nlast\r\n0\r\nx-end: yes\r\n\r\n").await;
    assert_eq!(received.recv().await.unwrap(), "last");
    let response = client.response().await.unwrap();
    assert_eq!(response.status, 200);
    assert_eq!(response.text(), "Some(\"yes\")");
}

#[tokio::test]
async fn responses_without_a_body_keep_their_headers() {
    let server = RawUpstream::start(|mut stream, _| async move {
        loop {
            let head = read_head(&mut stream).await;
            let response = match head.split(' ').nth(1) {
                Some("/head") => "HTTP/1.1 200 OK\r\ncontent-length: 12345\r\n\r\n",
                Some("/204") => "HTTP/1.1 204 No Content\r\n\r\n",
                Some("/304") => {
                    "HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\ncontent-length: 7\r\n\r\n"
                }
                _ => return,
            };
            stream.write_all(response.as_bytes()).await.unwrap();
        }
    });
    let proxy = RunningProxy::before(server.address).await;
    let mut client = proxy.connect().await;
    client.send("HEAD /head HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let response = client.read_until("\r\n\r\n").await;
    assert!(response.contains("content-length: 12345\r\n"), "{response}");
    client.send("GET /204 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let response = client.response().await.unwrap();
    assert_eq!(response.status, 204);
    assert_eq!(response.header("transfer-encoding"), None, "{response:?}");
    client.send("GET /304 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let response = client.response().await.unwrap();
    assert_eq!(response.status, 304);
    assert_eq!(response.header("etag"), Some("\"x\""));
    assert_eq!(proxy.metric(OPEN), Some(1.0));
}

#[tokio::test]
async fn connections_are_reused_and_counted() {
    let server = Upstream::named("ok");
    let proxy = RunningProxy::before(server.address).await;
    let mut client = proxy.connect().await;
    for _ in 0..100 {
        client.send(GET).await;
        assert_eq!(client.response().await.unwrap().text(), "ok");
    }
    assert_eq!((server.hits(), server.connections()), (100, 1));
    let count = "tollgate_upstream_requests_total{upstream=\"/\",status=\"2xx\"}";
    assert_eq!(proxy.metric(count), Some(100.0));
    let latency = "tollgate_upstream_response_seconds_count{upstream=\"/\"}";
    assert_eq!(proxy.metric(latency), Some(100.0));
    // A worker has connections of its own.
    drop(client);
    let worker = proxy.proxy.worker();
    let request = http::Request::new(LimitedBody::default());
    let client = ClientInfo {
        peer: [127, 0, 0, 1].into(),
        address: [127, 0, 0, 1].into(),
        trusts: &|_| false,
        path: "/",
        reserved: &|| std::sync::Arc::new(|_| false),
    };
    let response = worker.forward(request, &client).await.result.unwrap();
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "ok");
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn idle_connections_are_limited_and_expire() {
    let server = Upstream::answering(|_| async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        reply(200, "ok")
    });
    let mut upstream = upstream(server.address);
    upstream.keepalive = 2;
    upstream.keepalive_timeout = Duration::from_secs(2);
    let proxy = RunningProxy::of(&[upstream]).await;
    for response in proxy.get_all(&["/"; 8]).await {
        assert_eq!(response.status, 200);
    }
    assert_eq!(server.connections(), 8);
    proxy.until_metric(OPEN, 2.0).await;
    proxy.until_metric(OPEN, 0.0).await;
}

#[tokio::test]
async fn requests_beyond_max_connections_wait_for_a_slot() {
    let server = Upstream::answering(|request| async move {
        let path = request.uri().path();
        let ms = path.trim_start_matches('/').parse().unwrap();
        tokio::time::sleep(Duration::from_millis(ms)).await;
        reply(200, "ok")
    });
    let mut upstream = upstream(server.address);
    upstream.max_connections = 1;
    let proxy = RunningProxy::of(&[upstream]).await;
    let statuses = async |paths| {
        let responses = proxy.get_all(paths).await;
        let mut statuses: Vec<u16> = responses.iter().map(|response| response.status).collect();
        statuses.sort_unstable();
        statuses
    };
    // The second gets its turn.
    assert_eq!(statuses(&["/300", "/1"]).await, [200, 200]);
    assert_eq!(server.connections(), 1);
    // And the second of these does not, within 2 s.
    assert_eq!(statuses(&["/8000", "/1"]).await, [200, 503]);
    let busy = "tollgate_upstream_failures_total{upstream=\"/\",reason=\"busy\"}";
    assert_eq!(proxy.metric(busy), Some(1.0));
}

const PART: usize = 1 << 20;
const HUGE: usize = 100 * PART;

/// Writes until all is written, or nothing moves any more. Returns how much was written.
async fn write_until_stuck(stream: &mut (impl AsyncWrite + Unpin), total: usize) -> usize {
    let part = vec![7; PART];
    let mut written = 0;
    while written < total {
        let write = stream.write(&part[..PART.min(total - written)]);
        match tokio::time::timeout(Duration::from_secs(2), write).await {
            Ok(count) => written += count.unwrap(),
            Err(_) => break,
        }
    }
    written
}

async fn read_all(stream: &mut (impl AsyncRead + Unpin), total: usize) {
    let mut part = vec![0; PART];
    let mut left = total;
    while left > 0 {
        let count = stream.read(&mut part[..PART.min(left)]).await.unwrap();
        assert!(count > 0, "{left} bytes are missing");
        left -= count;
    }
}

#[tokio::test]
async fn backpressure_holds_up_huge_bodies_both_ways() {
    let reads = Arc::new(tokio::sync::Notify::new());
    let (sent, mut written_by_server) = mpsc::unbounded_channel();
    let may_read = Arc::clone(&reads);
    let server = RawUpstream::start(move |mut stream, _| {
        let (sent, may_read) = (sent.clone(), Arc::clone(&may_read));
        async move {
            let head = read_head(&mut stream).await;
            if head.starts_with("POST") {
                may_read.notified().await;
                read_all(&mut stream, HUGE).await;
                let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                stream.write_all(ok).await.unwrap();
                return;
            }
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {HUGE}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            let written = write_until_stuck(&mut stream, HUGE).await;
            sent.send(written).unwrap();
            write_until_stuck(&mut stream, HUGE - written).await;
        }
    });
    let proxy = RunningProxy::before(server.address).await;
    // The system's buffers are filled, and no more.
    let buffered = HUGE / 2;
    let mut client = TcpStream::connect(proxy.address).await.unwrap();
    let head = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {HUGE}\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    let written = write_until_stuck(&mut client, HUGE).await;
    assert!(
        written < buffered,
        "{written} bytes were accepted, and none was read"
    );
    reads.notify_one();
    assert_eq!(
        write_until_stuck(&mut client, HUGE - written).await,
        HUGE - written
    );
    let head = read_head(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");

    let mut client = TcpStream::connect(proxy.address).await.unwrap();
    client.write_all(GET.as_bytes()).await.unwrap();
    read_head(&mut client).await;
    let written = written_by_server.recv().await.unwrap();
    assert!(
        written < buffered,
        "{written} bytes were accepted, and none was read"
    );
    read_all(&mut client, HUGE).await;
}

#[tokio::test]
async fn client_disconnect_ends_the_upstream_connection() {
    let (ended, mut ends) = mpsc::unbounded_channel();
    let server = RawUpstream::start(move |mut stream, _| {
        let ended = ended.clone();
        async move {
            let head = read_head(&mut stream).await;
            if head.starts_with("GET /body") {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart")
                    .await
                    .unwrap();
            }
            // Only the end of the connection follows.
            let count = stream.read(&mut [0; 16]).await;
            ended.send(matches!(count, Ok(0) | Err(_))).unwrap();
        }
    });
    let proxy = RunningProxy::before(server.address).await;
    for path in ["/head", "/body"] {
        let mut client = proxy.connect().await;
        client
            .send(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n"))
            .await;
        if path == "/body" {
            client.read_until("part").await;
        }
        proxy.until_metric(OPEN, 1.0).await;
        drop(client);
        let end = tokio::time::timeout(TIMEOUT, ends.recv()).await;
        assert_eq!(end.expect("in time"), Some(true), "{path}");
    }
}
