//! What comes through a proxy, and what does not: routes, heads, bodies and connections.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tollgate_server::config::{HostField, Upstream};
use tollgate_server::proxy::ProxySettings;

use crate::proxy_setting::{
    Front, LONG, Server, by_hand, read_head, reply, status, streamed, until,
};

#[tokio::test]
async fn the_longest_path_that_fits_segment_by_segment_says_where_a_request_goes() {
    let (all, v1, reports) = (
        Server::named("all").await,
        Server::named("v1").await,
        Server::named("reports").await,
    );
    let to =
        |path: &str, server: &Server| Upstream::new(path, [format!("http://{}", server.address)]);
    let front = Front::of(&[to("/", &all), to("/v1", &v1), to("/v1/reports", &reports)]).await;
    for (path, expected) in [
        ("/", "all"),
        ("/v10", "all"),
        ("/v1", "v1"),
        ("/v1?a=b", "v1"),
        ("/v1/report", "v1"),
        ("/v1/reports/7", "reports"),
    ] {
        let response = front.get(path).await;
        assert!(response.ends_with(expected), "{path}: {response}");
    }
}

#[tokio::test]
async fn a_path_that_nobody_serves_is_not_found_and_nobody_is_asked() {
    let server = Server::named("v1").await;
    let front = Front::of(&[Upstream::new("/v1", [format!("http://{}", server.address)])]).await;
    let response = front.get("/v2").await;
    assert_eq!(status(&response), 404);
    assert!(response.contains("application/problem+json"), "{response}");
    assert!(
        response.contains("nothing is served at this path"),
        "{response}"
    );
    let grpc = "POST /v2 HTTP/1.1\r\nhost: a\r\ncontent-type: application/grpc\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let response = front.ask(grpc).await;
    assert_eq!(status(&response), 200);
    assert!(response.contains("grpc-status: 12"), "{response}");
    let response = front
        .ask("CONNECT a:443 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .await;
    assert_eq!(status(&response), 501, "{response}");
    assert_eq!(server.requests(), 0);
}

/// Answers with the head it got, as lines of a body.
async fn mirror() -> Server {
    Server::answering(|request| async move {
        let mut lines = format!("{} {}\n", request.method(), request.uri());
        for (name, value) in request.headers() {
            lines.push_str(&format!("{name}: {}\n", value.to_str().unwrap()));
        }
        let body = request.into_body().collect().await.unwrap().to_bytes();
        lines.push_str(&format!("body={}", String::from_utf8_lossy(&body)));
        reply(200, lines)
    })
    .await
}

#[tokio::test]
async fn what_is_for_one_hop_alone_stays_there_in_both_directions() {
    let server = mirror().await;
    let front = Front::before(server.address).await;
    let response = front
        .ask(
            "GET /a?b=c HTTP/1.1\r\nhost: api.test\r\nconnection: close, x-secret, host\r\nx-secret: 1\r\nkeep-alive: 5\r\n\
             proxy-authorization: x\r\nproxy-connection: close\r\nte: gzip, trailers\r\nupgrade: h2c\r\nx-kept: yes\r\n\r\n",
        )
        .await;
    assert!(response.contains("GET /a?b=c\n"), "{response}");
    for kept in ["host: api.test\n", "te: trailers\n", "x-kept: yes\n"] {
        assert!(response.contains(kept), "{kept}: {response}");
    }
    for gone in ["x-secret", "keep-alive: 5", "proxy-", "upgrade", "gzip"] {
        assert!(!response.contains(gone), "{gone}: {response}");
    }

    let server = by_hand(|mut stream, _| async move {
        read_head(&mut stream).await;
        let head = "HTTP/1.1 200 OK\r\nconnection: close, x-inner\r\nx-inner: 1\r\nkeep-alive: 9\r\n\
                    proxy-authenticate: x\r\nupgrade: h2c\r\nx-kept: yes\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
    })
    .await;
    let front = Front::before(server).await;
    let mut caller = front.caller().await;
    for _ in 0..2 {
        // The server's wish to close is not the caller's business.
        caller.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let response = caller.read_until("0\r\n\r\n").await;
        assert!(response.contains("x-kept: yes"), "{response}");
        for gone in ["x-inner", "keep-alive", "proxy-", "upgrade", "close"] {
            assert!(!response.contains(gone), "{gone}: {response}");
        }
    }
}

#[tokio::test]
async fn the_server_is_told_who_asked_and_a_stranger_cannot_tell_it_otherwise() {
    let server = mirror().await;
    let to = Upstream::new("/", [format!("http://{}", server.address)]);
    let request = "GET / HTTP/1.1\r\nhost: api.test\r\nx-forwarded-for: 198.51.100.1\r\nx-forwarded-for: 198.51.100.2\r\n\
                   x-forwarded-proto: gopher\r\nx-forwarded-host: evil\r\nforwarded: for=evil\r\nx-real-ip: 1.2.3.4\r\nconnection: close\r\n\r\n";
    let front = Front::of(std::slice::from_ref(&to)).await;
    let response = front.ask(request).await;
    for told in [
        "x-forwarded-for: 198.51.100.1, 198.51.100.2, 127.0.0.1\n",
        "x-forwarded-proto: http\n",
        "x-forwarded-host: api.test\n",
    ] {
        assert!(response.contains(told), "{told}: {response}");
    }
    assert!(
        !response.contains("evil") && !response.contains("1.2.3.4"),
        "{response}"
    );

    let settings = ProxySettings {
        is_tls: true,
        trusts: Arc::new(|peer| peer.is_loopback()),
        ..ProxySettings::default()
    };
    let front = Front::with(&[to], settings).await;
    let response = front.ask(request).await;
    for kept in [
        "x-forwarded-proto: gopher",
        "x-forwarded-host: evil",
        "forwarded: for=evil",
    ] {
        assert!(response.contains(kept), "{kept}: {response}");
    }
    let response = front.get("/").await;
    assert!(
        response.contains("x-forwarded-proto: https\n"),
        "{response}"
    );
}

#[tokio::test]
async fn the_server_sees_the_host_that_was_asked_for_or_its_own() {
    let server = mirror().await;
    let mut to = Upstream::new("/", [format!("http://{}", server.address)]);
    let front = Front::of(std::slice::from_ref(&to)).await;
    // The target's host counts, as for the rules.
    let absolute =
        "GET http://user:pw@one.test/p?q HTTP/1.1\r\nhost: two.test\r\nconnection: close\r\n\r\n";
    let response = front.ask(absolute).await;
    assert!(
        response.contains("GET /p?q\n") && response.contains("host: one.test\n"),
        "{response}"
    );
    assert!(
        !response.contains("two.test") && !response.contains("pw"),
        "{response}"
    );
    to.host = HostField::Upstream;
    let front = Front::of(&[to]).await;
    let response = front.get("/").await;
    let own = format!("host: {}\n", server.address);
    assert!(response.contains(&own), "{response}");
    assert!(
        response.contains("x-forwarded-host: api.test\n"),
        "{response}"
    );
}

#[tokio::test]
async fn a_body_is_passed_on_whatever_the_method_and_however_its_length_is_said() {
    let server = mirror().await;
    let front = Front::before(server.address).await;
    for method in ["POST", "GET", "DELETE"] {
        let request = format!(
            "{method} / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello"
        );
        let response = front.ask(&request).await;
        assert!(response.ends_with("body=hello"), "{response}");
        let request = format!(
            "{method} / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
        );
        let response = front.ask(&request).await;
        assert!(response.ends_with("body=hello"), "{response}");
    }
}

#[tokio::test]
async fn the_first_part_of_a_response_arrives_before_the_last_is_sent_and_trailers_come_along() {
    let (bodies, mut sent) = mpsc::unbounded_channel();
    let server = Server::answering(move |_| {
        let (body, mut reply) = streamed();
        let trailer = "x-checksum".parse().unwrap();
        reply.headers_mut().insert("trailer", trailer);
        bodies.send(body).unwrap();
        async move { reply }
    })
    .await;
    let front = Front::before(server.address).await;
    let mut caller = front.caller().await;
    for _ in 0..2 {
        caller
            .send("GET / HTTP/1.1\r\nhost: a\r\nte: trailers\r\nconnection: te\r\n\r\n")
            .await;
        let body = sent.recv().await.unwrap();
        body.send(Frame::data(Bytes::from("first"))).unwrap();
        let response = caller.read_until("first\r\n").await;
        assert_eq!(status(&response), 200);
        body.send(Frame::data(Bytes::from("last"))).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", "7".parse().unwrap());
        body.send(Frame::trailers(trailers)).unwrap();
        drop(body);
        let rest = caller.read_until("\r\n\r\n").await;
        assert!(
            rest.contains("last") && rest.contains("x-checksum: 7"),
            "{rest}"
        );
    }
    assert_eq!(server.connections(), 1, "the connection is used again");
}

#[tokio::test]
async fn a_request_is_passed_on_while_it_is_sent_and_waits_for_a_word_before_its_body() {
    let (parts, mut seen) = mpsc::unbounded_channel();
    let server = Server::answering(move |request| {
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
            let said = trailers.and_then(|trailers| trailers.get("x-end").cloned());
            reply(200, format!("{said:?}"))
        }
    })
    .await;
    let front = Front::before(server.address).await;
    let mut caller = front.caller().await;
    caller
        .send("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ntrailer: x-end\r\ntransfer-encoding: chunked\r\n\r\n")
        .await;
    caller.read_until("HTTP/1.1 100 Continue\r\n\r\n").await;
    caller.send("5\r\nfirst\r\n").await;
    assert_eq!(seen.recv().await.unwrap(), "first");
    caller.send("4\r\nlast\r\n0\r\nx-end: yes\r\n\r\n").await;
    assert_eq!(seen.recv().await.unwrap(), "last");
    let response = caller.read_until("Some(\"yes\")").await;
    assert_eq!(status(&response), 200);
}

#[tokio::test]
async fn responses_without_a_body_have_none_and_keep_their_length_where_it_says_something() {
    let server = by_hand(|mut stream, _| async move {
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
    })
    .await;
    let front = Front::before(server).await;
    let mut caller = front.caller().await;
    caller.send("HEAD /head HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let response = caller.read_until("\r\n\r\n").await;
    assert!(response.contains("content-length: 12345\r\n"), "{response}");
    caller.send("GET /204 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let response = caller.read_until("\r\n\r\n").await;
    assert_eq!(status(&response), 204);
    assert!(!response.contains("transfer-encoding"), "{response}");
    caller.send("GET /304 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let response = caller.read_until("\r\n\r\n").await;
    assert_eq!(status(&response), 304);
    assert!(response.contains("etag: \"x\""), "{response}");
    assert_eq!(
        front.metric("tollgate_upstream_connections{upstream=\"/\"}"),
        Some(1.0)
    );
}

#[tokio::test]
async fn connections_are_used_again_and_counted() {
    let server = Server::named("ok").await;
    let front = Front::before(server.address).await;
    let mut caller = front.caller().await;
    for _ in 0..100 {
        caller.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        caller.read_until("ok").await;
    }
    assert_eq!((server.requests(), server.connections()), (100, 1));
    let count = "tollgate_upstream_requests_total{upstream=\"/\",status=\"2xx\"}";
    assert_eq!(front.metric(count), Some(100.0));
    let latency = "tollgate_upstream_response_seconds_count{upstream=\"/\"}";
    assert_eq!(front.metric(latency), Some(100.0));
    // A worker has connections of its own.
    drop(caller);
    let worker = front.proxy.worker();
    let request = http::Request::new(http_body_util::Empty::<Bytes>::new());
    let response = tower_service::Service::call(&mut worker.clone(), request)
        .await
        .unwrap();
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "ok"
    );
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn idle_connections_have_a_bound_and_an_end() {
    let server = Server::answering(|_| async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        reply(200, "ok")
    })
    .await;
    let mut to = Upstream::new("/", [format!("http://{}", server.address)]);
    to.keepalive = 2;
    to.keepalive_timeout = Duration::from_secs(2);
    let front = Front::of(&[to]).await;
    for response in front.get_all(&["/"; 8]).await {
        assert_eq!(status(&response), 200);
    }
    let open = "tollgate_upstream_connections{upstream=\"/\"}";
    assert_eq!(server.connections(), 8);
    until("two are kept", async || front.metric(open) == Some(2.0)).await;
    until("none is kept for ever", async || {
        front.metric(open) == Some(0.0)
    })
    .await;
}

#[tokio::test]
async fn no_more_requests_are_under_way_than_may_be_and_others_wait_for_a_while() {
    let server = Server::answering(|request| async move {
        let ms = request
            .uri()
            .path()
            .trim_start_matches('/')
            .parse()
            .unwrap();
        tokio::time::sleep(Duration::from_millis(ms)).await;
        reply(200, "ok")
    })
    .await;
    let mut to = Upstream::new("/", [format!("http://{}", server.address)]);
    to.max_connections = 1;
    let front = Front::of(&[to]).await;
    // The second gets its turn.
    let both = front.get_all(&["/300", "/1"]).await;
    assert_eq!(
        both.iter().map(|one| status(one)).collect::<Vec<_>>(),
        [200, 200]
    );
    assert_eq!(server.connections(), 1);
    // And the second of these does not, within 2 s.
    let both = front.get_all(&["/8000", "/1"]).await;
    let mut both: Vec<u16> = both.iter().map(|one| status(one)).collect();
    both.sort_unstable();
    assert_eq!(both, [200, 503]);
    let busy = "tollgate_upstream_failures_total{upstream=\"/\",reason=\"busy\"}";
    assert_eq!(front.metric(busy), Some(1.0));
}

const PART: usize = 1 << 20;
const HUGE: usize = 100 * PART;

/// Writes until all is written, or nothing moves any more. How much went.
async fn write_until_stuck(stream: &mut (impl AsyncWrite + Unpin), most: usize) -> usize {
    let part = vec![7; PART];
    let mut written = 0;
    while written < most {
        let write = stream.write(&part[..PART.min(most - written)]);
        match tokio::time::timeout(Duration::from_secs(2), write).await {
            Ok(count) => written += count.unwrap(),
            Err(_) => break,
        }
    }
    written
}

async fn read_all(stream: &mut (impl AsyncRead + Unpin), count: usize) {
    let mut part = vec![0; PART];
    let mut left = count;
    while left > 0 {
        let most = PART.min(left);
        let count = stream.read(&mut part[..most]).await.unwrap();
        assert!(count > 0, "{left} bytes are missing");
        left -= count;
    }
}

#[tokio::test]
async fn a_huge_body_passes_both_ways_and_is_held_up_while_nobody_reads_it() {
    let (reads, mut may_read) = (
        Arc::new(tokio::sync::Notify::new()),
        mpsc::unbounded_channel(),
    );
    let (told, go) = (may_read.0.clone(), Arc::clone(&reads));
    let server = by_hand(move |mut stream, _| {
        let (told, go) = (told.clone(), Arc::clone(&go));
        async move {
            let head = read_head(&mut stream).await;
            if head.starts_with("POST") {
                go.notified().await;
                read_all(&mut stream, HUGE).await;
                let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                stream.write_all(ok).await.unwrap();
                return;
            }
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {HUGE}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            let written = write_until_stuck(&mut stream, HUGE).await;
            told.send(written).unwrap();
            write_until_stuck(&mut stream, HUGE - written).await;
        }
    })
    .await;
    let front = Front::before(server).await;
    // Buffers of the system's are filled, and no more.
    let most = HUGE / 2;
    let mut caller = tokio::net::TcpStream::connect(front.address).await.unwrap();
    let head = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {HUGE}\r\n\r\n");
    caller.write_all(head.as_bytes()).await.unwrap();
    let written = write_until_stuck(&mut caller, HUGE).await;
    assert!(
        written < most,
        "{written} bytes were taken, and nobody read"
    );
    reads.notify_one();
    assert_eq!(
        write_until_stuck(&mut caller, HUGE - written).await,
        HUGE - written
    );
    assert_eq!(status(&read_head(&mut caller).await), 200);

    let mut caller = tokio::net::TcpStream::connect(front.address).await.unwrap();
    caller
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    read_head(&mut caller).await;
    let written = may_read.1.recv().await.unwrap();
    assert!(
        written < most,
        "{written} bytes were taken, and nobody read"
    );
    read_all(&mut caller, HUGE).await;
}

#[tokio::test]
async fn who_leaves_takes_the_request_to_the_server_along() {
    let (ended, mut ends) = mpsc::unbounded_channel();
    let server = by_hand(move |mut stream, _| {
        let ended = ended.clone();
        async move {
            let head = read_head(&mut stream).await;
            if head.starts_with("GET /body") {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart")
                    .await
                    .unwrap();
            }
            // Nothing more comes from a caller that has left but the end.
            let count = stream.read(&mut [0; 16]).await;
            ended.send(matches!(count, Ok(0) | Err(_))).unwrap();
        }
    })
    .await;
    let front = Front::before(server).await;
    for path in ["/head", "/body"] {
        let mut caller = front.caller().await;
        caller
            .send(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n"))
            .await;
        if path == "/body" {
            caller.read_until("part").await;
        }
        let open = "tollgate_upstream_connections{upstream=\"/\"}";
        until("it is under way", async || front.metric(open) == Some(1.0)).await;
        drop(caller);
        let end = tokio::time::timeout(LONG, ends.recv()).await;
        assert_eq!(end.expect("in time"), Some(true), "{path}");
    }
}
