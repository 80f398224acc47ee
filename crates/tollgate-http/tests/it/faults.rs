//! Upstreams that close, stall, send garbage or are unreachable: what clients get, and which requests are sent again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tollgate_http::body::BodyLimits;
use tollgate_testing::Upstream;
use tollgate_testing::ports::closed_address;
use tollgate_testing::upstream::{RawUpstream, read_head, reply};

use crate::proxy::{GET, Options, RunningProxy, upstream, upstream_at};

const OPEN: &str = "tollgate_upstream_connections{upstream=\"/\"}";
const CUT: &str = "tollgate_upstream_failures_total{upstream=\"/\",reason=\"response_cut\"}";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn unreachable_server_is_reported_without_its_address() {
    let server = closed_address();
    let proxy = RunningProxy::before(server).await;
    let response = proxy.get("/").await;
    assert_eq!(response.status, 502);
    let text = response.text();
    assert!(text.contains("could not be reached"), "{text}");
    let port = server.port().to_string();
    assert!(!text.contains(&port) && !response.head.contains(&port));
    let failures = "tollgate_upstream_failures_total{upstream=\"/\",reason=\"unreachable\"}";
    assert_eq!(proxy.metric(failures), Some(1.0));
    let requests = "tollgate_upstream_requests_total{upstream=\"/\",status=\"5xx\"}";
    assert_eq!(proxy.metric(requests), Some(1.0));
}

#[tokio::test]
async fn get_succeeds_though_the_server_closes_each_connection() {
    // One response, and then the end without notice; often the next request is on its way by then.
    let server = RawUpstream::start(|mut stream, _| async move {
        if !read_head(&mut stream).await.is_empty() {
            let _ = stream.write_all(OK).await;
        }
    });
    let proxy = RunningProxy::before(server.address).await;
    let mut client = proxy.connect().await;
    for nth in 0..1_000 {
        client.send(GET).await;
        let response = client.response().await.unwrap();
        assert_eq!(response.status, 200, "{nth}");
        assert_eq!(response.text(), "ok", "{nth}");
    }
}

/// Answers the first request of each connection, and closes it after reading the second. Returns how many second requests
/// arrived, too.
fn closes_on_the_second() -> (RawUpstream, Arc<AtomicUsize>) {
    let arrivals = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&arrivals);
    let server = RawUpstream::start(move |mut stream, _| {
        let counted = Arc::clone(&counted);
        async move {
            read_head(&mut stream).await;
            let _ = stream.write_all(OK).await;
            if !read_head(&mut stream).await.is_empty() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    (server, arrivals)
}

#[tokio::test]
async fn idempotent_requests_are_repeated_and_a_post_never_is() {
    for (request, expected) in [
        ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", 200),
        ("DELETE / HTTP/1.1\r\nhost: a\r\n\r\n", 200),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
            502,
        ),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi",
            502,
        ),
        (
            "PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi",
            502,
        ),
    ] {
        let (server, arrivals) = closes_on_the_second();
        let proxy = RunningProxy::before(server.address).await;
        let mut client = proxy.connect().await;
        client.send(GET).await;
        client.response().await.unwrap();
        client.send(request).await;
        let response = client.response().await.unwrap();
        assert_eq!(response.status, expected, "{request}");
        assert_eq!(arrivals.load(Ordering::SeqCst), 1, "{request}");
    }
}

#[tokio::test]
async fn requests_are_not_repeated_after_a_partial_response() {
    let arrivals = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&arrivals);
    let server = RawUpstream::start(move |mut stream, nth| {
        let counted = Arc::clone(&counted);
        async move {
            read_head(&mut stream).await;
            counted.fetch_add(1, Ordering::SeqCst);
            if nth == 0 {
                let _ = stream.write_all(OK).await;
                read_head(&mut stream).await;
                counted.fetch_add(1, Ordering::SeqCst);
            }
            let _ = stream.write_all(b"HTTP/1.1 20").await;
        }
    });
    let proxy = RunningProxy::before(server.address).await;
    let mut client = proxy.connect().await;
    client.send(GET).await;
    client.response().await.unwrap();
    client.send(GET).await;
    let response = client.response().await.unwrap();
    assert_eq!(response.status, 502, "{response:?}");
    assert_eq!(arrivals.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn post_goes_to_another_server_if_one_is_unreachable() {
    let server = Upstream::named("ok");
    let mut upstream = upstream_at("/", &[closed_address(), server.address]);
    upstream.failures = 1_000;
    let proxy = RunningProxy::of(std::slice::from_ref(&upstream)).await;
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi";
    for _ in 0..20 {
        let response = proxy.send(post).await;
        assert_eq!(response.status, 200, "{response:?}");
    }
    assert_eq!(server.hits(), 20);
    let retries = proxy.metric("tollgate_upstream_retries_total{upstream=\"/\"}");
    assert!(retries > Some(0.0), "{retries:?}");
    // And without retries, each second one fails.
    upstream.retries = 0;
    let proxy = RunningProxy::of(&[upstream]).await;
    let mut statuses = BTreeSet::new();
    for _ in 0..50 {
        statuses.insert(proxy.send(post).await.status);
    }
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), [200, 502]);
}

#[tokio::test]
async fn response_head_response_body_and_request_body_time_out() {
    // The system accepts the connection, and nothing follows but a part of a response.
    let server = RawUpstream::start(|mut stream, _| async move {
        let head = read_head(&mut stream).await;
        if head.starts_with("GET /stall") {
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart")
                .await;
        }
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let mut upstream = upstream(server.address);
    upstream.response_timeout = Some(Duration::from_millis(300));
    upstream.idle_timeout = Some(Duration::from_millis(300));
    let proxy = RunningProxy::of(&[upstream]).await;
    let response = proxy.get("/").await;
    assert_eq!(response.status, 504);
    let text = response.text();
    assert!(text.contains("did not respond in time"), "{text}");
    let mut client = proxy.connect().await;
    client.send("GET /stall HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let text = client.text_to_end().await;
    assert!(text.ends_with("\r\n\r\npart"), "{text}");
    assert_eq!(proxy.metric(CUT), Some(1.0));
    // A client that stops sending its body is the one to blame.
    let mut client = proxy.connect().await;
    client
        .send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\npart")
        .await;
    let response = client.response().await.unwrap();
    assert_eq!(response.status, 408, "{response:?}");
    proxy.until_metric(OPEN, 0.0).await;
}

#[tokio::test]
async fn bodies_beyond_their_limits_are_failures_of_the_client() {
    let server = Upstream::answering(|request| async move {
        let body = request.into_body().collect().await;
        reply(200, body.unwrap_or_default().to_bytes())
    });
    let body = BodyLimits {
        max_bytes: 8,
        timeout: Duration::from_millis(300),
    };
    let options = Options {
        body,
        ..Options::default()
    };
    let proxy = RunningProxy::with(&[upstream(server.address)], options).await;
    for (length, sent, status, reason) in [
        (8, "too long", 200, None),
        (9, "too  long", 413, Some("caller_body_too_large")),
        (8, "slow", 408, Some("caller_slow")),
    ] {
        let mut client = proxy.connect().await;
        let head = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
        client.send([&*head, sent].concat()).await;
        let response = client.response().await.unwrap();
        assert_eq!(response.status, status, "{response:?}");
        if let Some(reason) = reason {
            let metric =
                format!("tollgate_upstream_failures_total{{upstream=\"/\",reason=\"{reason}\"}}");
            assert_eq!(proxy.metric(&metric), Some(1.0), "{reason}");
        }
    }
}

#[tokio::test]
async fn response_timeout_waits_for_a_body_that_still_arrives() {
    let server = Upstream::answering(|request| async move {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        reply(200, body)
    });
    let mut upstream = upstream(server.address);
    upstream.response_timeout = Some(Duration::from_secs(2));
    let proxy = RunningProxy::of(&[upstream]).await;
    let mut client = proxy.connect().await;
    client
        .send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\n\r\n")
        .await;
    for part in ["a", "b", "c", "d", "e", "f"] {
        tokio::time::sleep(Duration::from_millis(500)).await;
        client.send(part).await;
    }
    assert_eq!(client.response().await.unwrap().text(), "abcdef");
}

#[tokio::test]
async fn connect_timeout_includes_the_tls_handshake() {
    // The other side never begins TLS.
    let server = RawUpstream::start(|mut stream, _| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let mut upstream = upstream(server.address);
    upstream.to = vec![format!("https://{}", server.address)];
    upstream.connect_timeout = Duration::from_millis(300);
    let proxy = RunningProxy::of(&[upstream]).await;
    let response = proxy.get("/").await;
    assert_eq!(response.status, 504);
    let text = response.text();
    assert!(text.contains("could not be reached in time"), "{text}");
}

#[tokio::test]
async fn truncated_responses_stay_truncated() {
    let end = Arc::new(tokio::sync::Notify::new());
    let ends = Arc::clone(&end);
    let server = RawUpstream::start(move |mut stream, _| {
        let ends = Arc::clone(&ends);
        async move {
            let head = read_head(&mut stream).await;
            let response: &[u8] = match head.starts_with("GET /chunked") {
                true => b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\npart\r\n",
                false => b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart",
            };
            let _ = stream.write_all(response).await;
            ends.notified().await;
        }
    });
    let proxy = RunningProxy::before(server.address).await;
    for path in ["/length", "/chunked"] {
        let mut client = proxy.connect().await;
        client
            .send(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n"))
            .await;
        let response = client.read_until("part").await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        end.notify_one();
        // The connection ends without the rest, and without the chunk that ends a body.
        assert_eq!(client.text_to_end().await.trim(), "", "{path}");
    }
    assert_eq!(proxy.metric(CUT), Some(2.0));
}

#[tokio::test]
async fn responses_that_are_not_http_are_bad_gateways() {
    let server = RawUpstream::start(|mut stream, _| async move {
        let head = read_head(&mut stream).await;
        let response: &[u8] = match head.starts_with("GET /101") {
            true => {
                b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
            }
            false => b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        };
        let _ = stream.write_all(response).await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let proxy = RunningProxy::before(server.address).await;
    for path in ["/", "/101"] {
        let response = proxy.get(path).await;
        assert_eq!(response.status, 502, "{path}");
        let text = response.text();
        assert!(text.contains("is not HTTP"), "{path}: {text}");
    }
}

#[tokio::test]
async fn early_response_arrives_while_the_body_is_still_sent() {
    let server = RawUpstream::start(|mut stream, _| async move {
        read_head(&mut stream).await;
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nearly")
            .await;
        let mut rest = vec![0; 4];
        stream.read_exact(&mut rest).await.unwrap();
        assert_eq!(rest, b"late");
    });
    let proxy = RunningProxy::before(server.address).await;
    let mut client = proxy.connect().await;
    client
        .send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n")
        .await;
    assert_eq!(client.response().await.unwrap().text(), "early");
    client.send("late").await;
    proxy.until_metric(OPEN, 0.0).await;
}
