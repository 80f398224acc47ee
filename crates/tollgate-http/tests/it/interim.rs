//! Interim responses (1xx) of upstreams: the proxy drops them, and the final response arrives whole.

use tokio::io::AsyncWriteExt as _;
use tollgate_testing::upstream::{RawUpstream, read_head};

use crate::proxy::RunningProxy;

const INTERIM: &str = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n";

/// Sends interim responses before each final one, on a connection that stays open.
fn hasty() -> RawUpstream {
    RawUpstream::start(|mut stream, _| async move {
        for nth in 0.. {
            if read_head(&mut stream).await.is_empty() {
                return;
            }
            let last = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{nth}");
            // At once for the first, in pieces for the others.
            if nth == 0 {
                let all = [INTERIM, &last].concat();
                stream.write_all(all.as_bytes()).await.unwrap();
                continue;
            }
            for piece in INTERIM.split_inclusive("\r\n\r\n").chain([&*last]) {
                stream.write_all(piece.as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
                tokio::task::yield_now().await;
            }
        }
    })
}

#[tokio::test]
async fn interim_responses_are_dropped_and_the_final_one_arrives() {
    let server = hasty();
    let proxy = RunningProxy::before(server.address).await;
    for nth in 0..5 {
        // `get` fails if it gets anything but one response. All go over one connection to the server, in step.
        let response = proxy.get("/").await;
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(response.header("link"), None, "{response:?}");
        assert_eq!(response.text(), nth.to_string(), "{response:?}");
    }
}

#[tokio::test]
async fn the_proxy_itself_sends_100_continue_once() {
    let server = RawUpstream::start(|mut stream, _| async move {
        let head = read_head(&mut stream).await;
        assert!(!head.contains("expect"), "{head}");
        stream.write_all(INTERIM.as_bytes()).await.unwrap();
        let last = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
        stream.write_all(last).await.unwrap();
        // The body, until the proxy closes the connection.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    });
    let proxy = RunningProxy::before(server.address).await;
    let mut client = proxy.connect().await;
    client
        .send("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\nconnection: close\r\n\r\n")
        .await;
    client.read_until("HTTP/1.1 100 Continue\r\n\r\n").await;
    client.send("hello").await;
    let responses = client.responses().await;
    assert_eq!(responses.len(), 1, "{responses:?}");
    assert_eq!(
        (responses[0].status, responses[0].text().as_str()),
        (200, "ok")
    );
}
