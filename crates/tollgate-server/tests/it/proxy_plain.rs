//! Exchanges that are plain and such that are not, in turns on one connection to a server: who speaks on it changes, and nobody notices.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tollgate_server::config::Upstream;

use crate::proxy_setting::{Front, Server, by_hand, read_head, reply, status};

/// Answers by the path, on connections that stay, with its name and how many it answered on this connection before.
async fn versatile() -> std::net::SocketAddr {
    by_hand(|mut stream, _| async move {
        for nth in 0.. {
            let head = read_head(&mut stream).await;
            let Some(path) = head.split_whitespace().nth(1) else {
                return;
            };
            let body = format!("{path} {nth}");
            let length = body.len();
            let answer = match path {
                "/chunked" => format!(
                    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
                ),
                "/own-words" => {
                    format!("HTTP/1.1 200 Fine\r\ncontent-length: {length}\r\n\r\n{body}")
                }
                _ => format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"),
            };
            let (one, other) = match path {
                "/in-pieces" => answer.split_at(answer.len() - 3),
                _ => (&*answer, ""),
            };
            stream.write_all(one.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(u64::from(!other.is_empty()) * 30)).await;
            stream.write_all(other.as_bytes()).await.unwrap();
        }
    })
    .await
}

#[tokio::test]
async fn one_connection_serves_whatever_comes_in_any_order() {
    let front = Front::before(versatile().await).await;
    let paths = ["/plain", "/chunked", "/in-pieces", "/own-words"];
    // Each after each, and often enough that hyper has to speak, goes on for a while, and stops.
    for nth in 0..120_usize {
        let path = paths[(nth * nth / 7 + nth / 5) % paths.len()];
        let heard = front.get(path).await;
        assert_eq!(status(&heard), 200, "{heard}");
        // All over one connection, whose answers never get out of step.
        assert!(heard.contains(&format!("{path} {nth}")), "{nth}: {heard}");
    }
}

/// Who waited for a place, and then takes over the connection of who had it, has not used up the server's time by that.
#[tokio::test]
async fn a_server_has_its_whole_time_whatever_was_waited_for_before() {
    let server = Server::answering(|_| async {
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        reply(200, "slow")
    })
    .await;
    let mut upstream = Upstream::new("/", [format!("http://{}", server.address)]);
    upstream.max_connections = 1;
    upstream.connect_timeout = Duration::from_secs(10);
    upstream.response_timeout = Some(Duration::from_secs(2));
    let front = Front::of(&[upstream]).await;
    for heard in front.get_all(&["/one", "/other"]).await {
        assert_eq!(status(&heard), 200, "{heard}");
    }
}
