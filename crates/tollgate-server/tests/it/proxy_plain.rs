//! Exchanges that are plain and such that are not, in turns on one connection to a server: who speaks on it changes, and nobody notices.

use tokio::io::AsyncWriteExt as _;

use crate::proxy_setting::{Front, by_hand, read_head, status};

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
            tokio::time::sleep(std::time::Duration::from_millis(u64::from(!other.is_empty()) * 30)).await;
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
