//! Servers that close, stall, lie or are not there: what callers hear, and what is sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tollgate_server::config::Upstream;

use crate::proxy_setting::{Front, Server, by_hand, nobody, read_head, reply, status, until};

#[tokio::test]
async fn a_server_that_is_not_there_is_said_without_its_address() {
    let server = nobody().await;
    let front = Front::before(server).await;
    let response = front.get("/").await;
    assert_eq!(status(&response), 502);
    assert!(response.contains("could not be reached"), "{response}");
    assert!(!response.contains(&server.port().to_string()), "{response}");
    let failures = "tollgate_upstream_failures_total{upstream=\"/\",reason=\"unreachable\"}";
    assert_eq!(front.metric(failures), Some(1.0));
    let requests = "tollgate_upstream_requests_total{upstream=\"/\",status=\"5xx\"}";
    assert_eq!(front.metric(requests), Some(1.0));
}

#[tokio::test]
async fn no_get_fails_though_the_server_closes_every_connection_just_when_it_is_used() {
    // One response, and then the end without a word; the next request often is on its way by then.
    let server = by_hand(|mut stream, _| async move {
        if !read_head(&mut stream).await.is_empty() {
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                .await;
        }
    })
    .await;
    let front = Front::before(server).await;
    let mut caller = front.caller().await;
    for nth in 0..1_000 {
        caller.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let response = caller.read_until("\r\n\r\n").await;
        assert_eq!(status(&response), 200, "{nth}");
        caller.read_until("ok").await;
    }
}

/// Answers the first request of each connection, and closes it upon the second, having read it.
async fn closes_on_the_second() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let arrivals = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&arrivals);
    let server = by_hand(move |mut stream, _| {
        let counted = Arc::clone(&counted);
        async move {
            read_head(&mut stream).await;
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                .await;
            if !read_head(&mut stream).await.is_empty() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }
    })
    .await;
    (server, arrivals)
}

#[tokio::test]
async fn what_may_be_repeated_is_repeated_on_a_new_connection_and_a_post_never_is() {
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
        let (server, arrivals) = closes_on_the_second().await;
        let front = Front::before(server).await;
        let mut caller = front.caller().await;
        caller.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        caller.read_until("ok").await;
        caller.send(request).await;
        let response = caller.read_until("\r\n\r\n").await;
        assert_eq!(status(&response), expected, "{request}");
        assert_eq!(arrivals.load(Ordering::SeqCst), 1, "{request}");
    }
}

#[tokio::test]
async fn a_server_that_has_said_anything_is_not_asked_again() {
    let arrivals = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&arrivals);
    let server = by_hand(move |mut stream, nth| {
        let counted = Arc::clone(&counted);
        async move {
            read_head(&mut stream).await;
            counted.fetch_add(1, Ordering::SeqCst);
            if nth == 0 {
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                    .await;
                read_head(&mut stream).await;
                counted.fetch_add(1, Ordering::SeqCst);
            }
            let _ = stream.write_all(b"HTTP/1.1 20").await;
        }
    })
    .await;
    let front = Front::before(server).await;
    let mut caller = front.caller().await;
    caller.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    caller.read_until("ok").await;
    caller.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let response = caller.read_until("\r\n\r\n").await;
    assert_eq!(status(&response), 502, "{response}");
    assert_eq!(arrivals.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_post_goes_to_another_server_if_the_first_was_not_there_and_only_then() {
    let dead = nobody().await;
    let server = Server::named("ok").await;
    let to = [
        format!("http://{dead}"),
        format!("http://{}", server.address),
    ];
    let mut upstream = Upstream::new("/", to);
    upstream.failures = 1_000;
    let front = Front::of(std::slice::from_ref(&upstream)).await;
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi";
    for _ in 0..20 {
        let response = front.ask(post).await;
        assert_eq!(status(&response), 200, "{response}");
    }
    assert_eq!(server.requests(), 20);
    assert!(front.metric("tollgate_upstream_retries_total{upstream=\"/\"}") > Some(0.0));
    upstream.retries = 0;
    let front = Front::of(&[upstream]).await;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..50 {
        seen.insert(status(&front.ask(post).await));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [200, 502]);
}

#[tokio::test]
async fn each_wait_has_its_end() {
    // The system takes the connection, and nobody says anything over it.
    let server = by_hand(|mut stream, _| async move {
        let head = read_head(&mut stream).await;
        if head.starts_with("GET /stall") {
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart")
                .await;
        }
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let mut upstream = Upstream::new("/", [format!("http://{server}")]);
    upstream.response_timeout = Some(Duration::from_millis(300));
    upstream.idle_timeout = Some(Duration::from_millis(300));
    let front = Front::of(&[upstream]).await;
    let response = front.get("/").await;
    assert_eq!(status(&response), 504);
    assert!(response.contains("did not answer in time"), "{response}");
    let response = front.get("/stall").await;
    assert!(response.ends_with("\r\n\r\npart"), "{response}");
    let cut = "tollgate_upstream_failures_total{upstream=\"/\",reason=\"response_cut\"}";
    assert_eq!(front.metric(cut), Some(1.0));
    // A caller that does not go on with its body is the one to blame.
    let mut caller = front.caller().await;
    caller
        .send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\npart")
        .await;
    let response = caller.read_until("\r\n\r\n").await;
    assert_eq!(status(&response), 408, "{response}");
    let open = "tollgate_upstream_connections{upstream=\"/\"}";
    until("nothing is left open", async || {
        front.metric(open) == Some(0.0)
    })
    .await;
}

#[tokio::test]
async fn a_body_that_takes_its_time_is_waited_for_as_long_as_it_moves() {
    let server = Server::answering(|request| async move {
        use http_body_util::BodyExt as _;
        let body = request.into_body().collect().await.unwrap().to_bytes();
        reply(200, body)
    })
    .await;
    let mut upstream = Upstream::new("/", [format!("http://{}", server.address)]);
    upstream.response_timeout = Some(Duration::from_secs(2));
    let front = Front::of(&[upstream]).await;
    let mut caller = front.caller().await;
    caller
        .send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\n\r\n")
        .await;
    for part in ["a", "b", "c", "d", "e", "f"] {
        tokio::time::sleep(Duration::from_millis(500)).await;
        caller.send(part).await;
    }
    caller.read_until("abcdef").await;
}

#[tokio::test]
async fn a_connection_that_is_not_made_in_time_is_given_up() {
    // TLS is never begun on the other side.
    let server = by_hand(|mut stream, _| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let mut upstream = Upstream::new("/", [format!("https://{server}")]);
    upstream.connect_timeout = Duration::from_millis(300);
    let front = Front::of(&[upstream]).await;
    let response = front.get("/").await;
    assert_eq!(status(&response), 504);
    assert!(
        response.contains("could not be reached in time"),
        "{response}"
    );
}

#[tokio::test]
async fn a_response_that_ends_early_is_not_made_whole() {
    let end = Arc::new(tokio::sync::Notify::new());
    let ends = Arc::clone(&end);
    let server = by_hand(move |mut stream, _| {
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
    })
    .await;
    let front = Front::before(server).await;
    for path in ["/length", "/chunked"] {
        let mut caller = front.caller().await;
        caller
            .send(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n"))
            .await;
        let response = caller.read_until("part").await;
        assert_eq!(status(&response), 200);
        end.notify_one();
        // The connection ends, without the rest and without the chunk that says that there is none.
        assert_eq!(caller.rest().await.trim(), "", "{path}");
    }
    let cut = "tollgate_upstream_failures_total{upstream=\"/\",reason=\"response_cut\"}";
    assert_eq!(front.metric(cut), Some(2.0));
}

#[tokio::test]
async fn what_is_not_http_is_said_to_be_so() {
    let server = by_hand(|mut stream, _| async move {
        let head = read_head(&mut stream).await;
        let answer: &[u8] = match head.starts_with("GET /101") {
            true => {
                b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
            }
            false => b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        };
        let _ = stream.write_all(answer).await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let front = Front::before(server).await;
    for path in ["/", "/101"] {
        let response = front.get(path).await;
        assert_eq!(status(&response), 502, "{path}");
        assert!(response.contains("is not HTTP"), "{path}: {response}");
    }
}

#[tokio::test]
async fn a_response_before_the_end_of_the_request_arrives_and_the_rest_is_taken() {
    let server = by_hand(|mut stream, _| async move {
        read_head(&mut stream).await;
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nearly")
            .await;
        let mut rest = vec![0; 4];
        stream.read_exact(&mut rest).await.unwrap();
        assert_eq!(rest, b"late");
    })
    .await;
    let front = Front::before(server).await;
    let mut caller = front.caller().await;
    caller
        .send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n")
        .await;
    caller.read_until("early").await;
    caller.send("late").await;
    let open = "tollgate_upstream_connections{upstream=\"/\"}";
    until("it ended", async || front.metric(open) == Some(0.0)).await;
}
