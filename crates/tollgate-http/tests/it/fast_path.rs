//! Exchanges that the proxy's fast path can take, and others, in turns on one connection to a server. Clients see no difference.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tollgate_testing::Upstream;
use tollgate_testing::upstream::{RawUpstream, read_head, reply};

use crate::proxy::{Options, RunningProxy, upstream};

/// Responds, in a way that the path names, with the path and the number of requests on this connection before.
fn versatile() -> RawUpstream {
    RawUpstream::start(|mut stream, _| async move {
        for nth in 0.. {
            let head = read_head(&mut stream).await;
            let Some(path) = head.split_whitespace().nth(1) else {
                return;
            };
            let body = format!("{path} {nth}");
            let length = body.len();
            let response = match path {
                "/chunked" => format!(
                    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
                ),
                "/own-reason" => {
                    format!("HTTP/1.1 200 Fine\r\ncontent-length: {length}\r\n\r\n{body}")
                }
                _ => format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"),
            };
            let (one, other) = match path {
                "/in-pieces" => response.split_at(response.len() - 3),
                _ => (&*response, ""),
            };
            stream.write_all(one.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(u64::from(!other.is_empty()) * 30)).await;
            stream.write_all(other.as_bytes()).await.unwrap();
        }
    })
}

#[tokio::test]
async fn one_connection_serves_all_kinds_of_responses_in_any_order() {
    let server = versatile();
    let paths = ["/plain", "/chunked", "/in-pieces", "/own-reason"];
    for fast_path in [true, false] {
        let options = Options {
            fast_path,
            ..Options::default()
        };
        let proxy = RunningProxy::with(&[upstream(server.address)], options).await;
        // Each after each, and often enough that hyper has to take over, keeps the connection for a while, and returns it.
        for nth in 0..120_usize {
            let path = paths[(nth * nth / 7 + nth / 5) % paths.len()];
            let response = proxy.get(path).await;
            assert_eq!(response.status, 200, "{response:?}");
            // All over one connection, whose responses are never out of step.
            assert_eq!(response.text(), format!("{path} {nth}"));
        }
    }
}

/// A request that waited for a slot, and then takes over the connection of another, has not used up the server's time.
#[tokio::test]
async fn response_timeout_does_not_include_the_wait_for_a_slot() {
    let server = Upstream::answering(|_| async {
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        reply(200, "slow")
    });
    let mut upstream = upstream(server.address);
    upstream.max_connections = 1;
    upstream.connect_timeout = Duration::from_secs(10);
    upstream.response_timeout = Some(Duration::from_secs(2));
    let proxy = RunningProxy::of(&[upstream]).await;
    for response in proxy.get_all(&["/one", "/other"]).await {
        assert_eq!(response.status, 200, "{response:?}");
    }
}
