//! Shutdown of a gateway under load.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tollgate_testing::Connection;
use tollgate_testing::gateway::PLENTY;
use tollgate_testing::wait::eventually;

use crate::kit;

/// Requests and responses of all clients.
#[derive(Default)]
struct Counts {
    sent: AtomicUsize,
    answered: AtomicUsize,
}

/// Sends requests on one connection, and on another when it is closed, until connections are refused.
async fn send_until_the_end(address: SocketAddr, pause: Duration, counts: Arc<Counts>) {
    while let Ok(stream) = TcpStream::connect(address).await {
        let mut connection = Connection::over(stream);
        loop {
            let path = counts.sent.load(Relaxed) % 5;
            let request = format!("GET /wait/{path} HTTP/1.1\r\nHost: a\r\n\r\n");
            if connection
                .stream
                .write_all(request.as_bytes())
                .await
                .is_err()
            {
                break;
            }
            counts.sent.fetch_add(1, Relaxed);
            let Some(response) = connection.response().await else {
                break;
            };
            assert_eq!(response.status, 200);
            counts.answered.fetch_add(1, Relaxed);
            if response.header("connection") == Some("close") {
                break;
            }
            tokio::time::sleep(pause).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_when_it_stops_under_load() {
    for _ in 0..3 {
        let mut gateway = kit::gateway("", PLENTY);
        let counts: Arc<Counts> = Arc::default();
        let clients: Vec<_> = (0..24_u64)
            .map(|nth| {
                let pause = Duration::from_millis(nth % 8 * 20);
                let counts = Arc::clone(&counts);
                tokio::spawn(send_until_the_end(gateway.address, pause, counts))
            })
            .collect();
        eventually("a thousand responses", async || {
            counts.answered.load(Relaxed) >= 1_000
        })
        .await;
        gateway.running.stop();
        for client in clients {
            client.await.unwrap();
        }
        let hits = gateway.upstream.hits();
        let (sent, answered) = (counts.sent.load(Relaxed), counts.answered.load(Relaxed));
        assert_eq!((sent, answered), (hits, hits));
    }
}

#[tokio::test]
async fn at_shutdown_requests_finish_and_idle_connections_close() {
    let mut gateway = kit::gateway("", PLENTY);
    let mut slow = Connection::open(gateway.address).await;
    slow.send("GET /wait/2000 HTTP/1.1\r\nHost: a\r\n\r\n")
        .await;
    let mut idle = Connection::open(gateway.address).await;
    idle.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(idle.response().await.unwrap().status, 200);
    let mut silent = Connection::open(gateway.address).await;
    gateway.upstream.until_hits(2).await;
    gateway.signal("TERM");
    let responses = slow.responses().await;
    assert_eq!((responses.len(), responses[0].status), (1, 200));
    assert_eq!(responses[0].header("connection"), Some("close"));
    assert!(idle.responses().await.is_empty());
    assert!(silent.responses().await.is_empty());
    assert!(gateway.running.wait_for_exit().success());
    assert!(TcpStream::connect(gateway.address).await.is_err());
}

#[tokio::test]
async fn requests_that_outlast_the_drain_are_cut() {
    let gateway = kit::gateway("drain: 500ms", PLENTY);
    let mut slow = Connection::open(gateway.address).await;
    slow.send("GET /wait/600000 HTTP/1.1\r\nHost: a\r\n\r\n")
        .await;
    gateway.upstream.until_hits(1).await;
    gateway.stop();
    assert!(slow.responses().await.is_empty());
}
