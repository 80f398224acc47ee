//! Interim answers (1xx) of servers: they stay at the proxy, and what is final comes through whole.

use tokio::io::AsyncWriteExt as _;

use crate::proxy_setting::{Front, by_hand, read_head, status};

const INTERIM: &str = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n";

/// Says all kinds of interim answers before each final one, on a connection that stays.
async fn hasty() -> std::net::SocketAddr {
    by_hand(|mut stream, _| async move {
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
    .await
}

#[tokio::test]
async fn interim_answers_of_servers_are_dropped_and_the_final_one_comes_through() {
    let front = Front::before(hasty().await).await;
    for nth in 0..5 {
        let heard = front.get("/").await;
        assert_eq!(status(&heard), 200, "{heard}");
        assert_eq!(heard.matches("HTTP/1.1 ").count(), 1, "{heard}");
        assert!(!heard.contains("style.css"), "{heard}");
        // All over one connection to the server, whose answers never get out of step.
        assert!(heard.ends_with(&format!("\r\n\r\n{nth}")), "{heard}");
    }
}

#[tokio::test]
async fn who_waits_for_100_continue_hears_it_once_and_from_us() {
    let server = by_hand(|mut stream, _| async move {
        let head = read_head(&mut stream).await;
        assert!(!head.contains("expect"), "{head}");
        stream.write_all(INTERIM.as_bytes()).await.unwrap();
        let last = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
        stream.write_all(last).await.unwrap();
        // The body, until we are hung up on.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    })
    .await;
    let front = Front::before(server).await;
    let mut caller = front.caller().await;
    caller
        .send("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\nconnection: close\r\n\r\n")
        .await;
    caller.read_until("HTTP/1.1 100 Continue\r\n\r\n").await;
    caller.send("hello").await;
    let rest = caller.rest().await;
    assert_eq!(rest.matches("HTTP/1.1 ").count(), 1, "{rest}");
    assert!(
        rest.starts_with("HTTP/1.1 200 ") && rest.ends_with("\r\n\r\nok"),
        "{rest}"
    );
}
