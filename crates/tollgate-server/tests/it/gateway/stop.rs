//! The end of a gateway, under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::gateway::{PLENTY, hear_one, heard, start};

/// What a client with a connection that it keeps has seen.
#[derive(Default)]
struct Counts {
    sent: AtomicUsize,
    answered: AtomicUsize,
}

/// Asks again and again on one connection, and on another when it is told to; until nobody listens any more.
async fn ask_until_the_end(address: std::net::SocketAddr, pause: Duration, counts: Arc<Counts>) {
    while let Ok(mut stream) = TcpStream::connect(address).await {
        loop {
            let path = counts.sent.load(Relaxed) % 5;
            let ask = format!("GET /wait/{path} HTTP/1.1\r\nHost: a\r\n\r\n");
            if stream.write_all(ask.as_bytes()).await.is_err() {
                break;
            }
            counts.sent.fetch_add(1, Relaxed);
            let Some(heard) = hear_one(&mut stream).await else {
                break;
            };
            assert_eq!(heard.status, 200);
            counts.answered.fetch_add(1, Relaxed);
            if heard.field("connection") == Some("close") {
                break;
            }
            tokio::time::sleep(pause).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_when_it_stops_under_load() {
    for _ in 0..3 {
        let front = start("", PLENTY).await;
        let counts: Arc<Counts> = Arc::default();
        let clients: Vec<_> = (0..24_u64)
            .map(|nth| {
                let pause = Duration::from_millis(nth % 8 * 20);
                tokio::spawn(ask_until_the_end(front.address, pause, Arc::clone(&counts)))
            })
            .collect();
        while counts.answered.load(Relaxed) < 1_000 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let behind = Arc::clone(&front.behind);
        front.end().await;
        for client in clients {
            client.await.unwrap();
        }
        let (sent, answered) = (counts.sent.load(Relaxed), counts.answered.load(Relaxed));
        assert_eq!((sent, answered), (behind.count(), behind.count()));
    }
}

#[tokio::test]
async fn what_is_under_way_ends_and_what_is_idle_is_closed() {
    let front = start("", PLENTY).await;
    let connect = || TcpStream::connect(front.address);
    let mut slow = connect().await.unwrap();
    slow.write_all(b"GET /wait/2000 HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    let mut idle = connect().await.unwrap();
    idle.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(hear_one(&mut idle).await.unwrap().status, 200);
    let mut silent = connect().await.unwrap();
    front.behind.until(2).await;
    let address = front.address;
    let end = tokio::spawn(front.end());
    let all = heard(&mut slow).await;
    assert_eq!((all.len(), all[0].status), (1, 200));
    assert_eq!(all[0].field("connection"), Some("close"));
    assert!(heard(&mut idle).await.is_empty());
    assert!(heard(&mut silent).await.is_empty());
    end.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn what_takes_too_long_at_the_end_is_cut() {
    let front = start("drain: 500ms", PLENTY).await;
    let mut slow = TcpStream::connect(front.address).await.unwrap();
    slow.write_all(b"GET /wait/600000 HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    front.behind.until(1).await;
    front.end().await;
    assert!(heard(&mut slow).await.is_empty());
}
