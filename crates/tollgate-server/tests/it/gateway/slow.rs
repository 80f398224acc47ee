//! Slow clients: their connections are closed, and no other client waits for them. Ten thousand of them are in `crowd`.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tollgate_testing::Connection;
use tollgate_testing::gateway::PLENTY;

use crate::kit;

const OPEN: &str = "tollgate_gateway_connections_open";
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn closed(reason: &str) -> String {
    format!("tollgate_gateway_connections_closed_early_total{{reason=\"{reason}\"}}")
}

/// Opens this many connections that send a part of a head and no more.
async fn slow_heads(address: SocketAddr, count: usize) -> Vec<Connection> {
    let mut slow = Vec::new();
    for _ in 0..count {
        let mut connection = Connection::open(address).await;
        // The gateway may already have closed it to make room.
        connection.try_send("GET / HTTP/1.1\r\nHost: a\r\nX-").await;
        slow.push(connection);
    }
    slow
}

#[tokio::test]
async fn idle_connections_make_room_when_all_are_in_use() {
    let fields = "max_connections: 100, connections_per_address: 0, head_timeout: 1h";
    let gateway = kit::gateway(fields, PLENTY);
    let mut busy = Connection::open(gateway.address).await;
    busy.send("GET /wait/3000 HTTP/1.1\r\nHost: a\r\n\r\n")
        .await;
    let mut slow = Vec::new();
    for round in 0..20 {
        // The clients never close them.
        slow.extend(slow_heads(gateway.address, 50).await);
        assert_eq!(gateway.get("/").await.status, 200, "round {round}");
        assert!(gateway.count(OPEN) <= 100);
    }
    assert!(gateway.count(&closed("shed")) >= 900);
    // A connection with a request in flight stays open.
    assert_eq!(busy.response().await.unwrap().status, 200);
    gateway.stop();
}

#[tokio::test]
async fn only_a_trusted_proxy_may_exceed_connections_per_address() {
    let refused = "tollgate_gateway_connections_refused_total{reason=\"address\"}";
    let gateway = kit::gateway("connections_per_address: 3", PLENTY);
    let slow = slow_heads(gateway.address, 10).await;
    gateway.until_metric(refused, |count| count == 7.0).await;
    // Another address of this machine.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = Connection::over(socket.connect(gateway.address).await.unwrap());
    other
        .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .await;
    assert_eq!(other.responses().await[0].status, 200);
    drop(slow);
    gateway.until_metric(OPEN, |open| open == 0.0).await;
    assert_eq!(gateway.get("/").await.status, 200);
    gateway.stop();

    let trusted = format!("identity: {{ trusted_proxies: [127.0.0.1] }}\n{PLENTY}");
    let gateway = kit::gateway("connections_per_address: 3", &trusted);
    let slow = slow_heads(gateway.address, 10).await;
    gateway.until_metric(OPEN, |open| open == 10.0).await;
    assert_eq!(gateway.count(refused), 0);
    drop(slow);
    gateway.stop();
}

/// Also if that byte was read together with the request before it.
#[tokio::test]
async fn head_timeout_starts_at_the_first_byte() {
    let gateway = kit::gateway("head_timeout: 1s, idle_timeout: 1h", PLENTY);
    let responses = gateway.exchange(format!("{GET}G")).await;
    assert_eq!(responses[0].status, 200);
    assert_eq!(gateway.count(&closed("head_timeout")), 1);
    gateway.stop();
}

#[tokio::test]
async fn idle_timeout_applies_between_requests_only() {
    let gateway = kit::gateway("head_timeout: 300ms, idle_timeout: 2s", PLENTY);
    let mut idle = Connection::open(gateway.address).await;
    idle.send(GET).await;
    assert_eq!(idle.response().await.unwrap().status, 200);
    // Longer than the head timeout.
    tokio::time::sleep(Duration::from_millis(900)).await;
    idle.send(GET).await;
    assert_eq!(idle.response().await.unwrap().status, 200);
    assert!(idle.responses().await.is_empty());
    assert_eq!(gateway.count(&closed("idle_timeout")), 1);
    drop(idle);

    let mut slow = Connection::open(gateway.address).await;
    slow.send(GET).await;
    assert_eq!(slow.response().await.unwrap().status, 200);
    slow.send("GET / HT").await;
    assert!(slow.responses().await.is_empty());
    assert_eq!(gateway.count(&closed("head_timeout")), 1);
    let mut silent = Connection::open(gateway.address).await;
    assert!(silent.responses().await.is_empty());
    assert_eq!(gateway.count(&closed("head_timeout")), 2);
    assert_eq!(gateway.count(&closed("idle_timeout")), 1);
    gateway.stop();
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_answered_with_408() {
    let gateway = kit::gateway("body_timeout: 300ms", PLENTY);
    for framing in [
        "Content-Length: 10\r\n\r\nabc",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ] {
        let request = format!("POST /echo HTTP/1.1\r\nHost: a\r\n{framing}");
        let responses = gateway.exchange(request).await;
        assert_eq!(responses.len(), 1, "{framing}");
        assert_eq!(
            (responses[0].status, responses[0].header("connection")),
            (408, Some("close"))
        );
    }
    // A body whose pieces each arrive in time may take longer as a whole.
    let mut steady = Connection::open(gateway.address).await;
    let head = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nConnection: close\r\n\r\n";
    steady.send(head).await;
    for _ in 0..10 {
        steady.send("x").await;
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    let responses = steady.responses().await;
    assert_eq!((responses[0].status, responses[0].body.len()), (200, 10));
    gateway.stop();
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    let gateway = kit::gateway("send_timeout: 500ms", PLENTY);
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let request = b"GET /big/50000000 HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(request).await.unwrap();
    gateway
        .until_metric(&closed("send_timeout"), |count| count == 1.0)
        .await;
    gateway.until_metric(OPEN, |open| open == 0.0).await;
    assert_eq!(gateway.get("/").await.status, 200);
    drop(stream);
    gateway.stop();
}

#[tokio::test]
async fn a_client_that_is_sending_a_long_body_receives_its_denial() {
    const LONG: usize = 10_000_000;
    let rules = "rules: [{ id: address, per: [ip], limit: \"1/h burst 1\" }]";
    let gateway = kit::gateway("", rules);
    assert_eq!(gateway.get("/").await.status, 200);
    for _ in 0..3 {
        let mut client = Connection::open(gateway.address).await;
        let head = format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {LONG}\r\n\r\n");
        client.send(head).await;
        // Sends everything before it reads, as simple clients do.
        client.send(vec![b'x'; LONG]).await;
        client.stream.shutdown().await.unwrap();
        let responses = client.responses().await;
        assert_eq!(responses.len(), 1);
        assert_eq!(responses[0].status, 429);
    }
    // A short body is read, and the connection stays open.
    let mut client = Connection::open(gateway.address).await;
    for _ in 0..3 {
        client
            .send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
            .await;
        assert_eq!(client.response().await.unwrap().status, 429);
    }
    // With Expect: 100-continue, the client need not send the body.
    let head =
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    let responses = gateway.exchange(head).await;
    let statuses: Vec<u16> = responses.iter().map(|response| response.status).collect();
    assert_eq!(statuses, [429]);
    assert_eq!(gateway.upstream.hits(), 1);
    gateway.stop();
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_after_the_decision() {
    let gateway = kit::gateway("max_body: 1KiB", PLENTY);
    let head = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1025\r\n\r\n";
    let responses = gateway.exchange(head).await;
    assert_eq!((responses.len(), responses[0].status), (1, 413));
    assert!(responses[0].header("x-ratelimit-remaining").is_some());
    assert_eq!((gateway.decisions(), gateway.upstream.hits()), (1, 0));
    // Without a length, the bytes are counted as they arrive.
    let chunk = format!("200\r\n{}\r\n", "x".repeat(512));
    let head = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let responses = gateway
        .exchange(format!("{head}{chunk}{chunk}{chunk}0\r\n\r\n"))
        .await;
    assert_eq!((responses.len(), responses[0].status), (1, 413));
    let head = head.replace("Transfer", "Connection: close\r\nTransfer");
    let responses = gateway
        .exchange(format!("{head}{chunk}{chunk}0\r\n\r\n"))
        .await;
    assert_eq!((responses[0].status, responses[0].body.len()), (200, 1_024));
    gateway.stop();

    let gateway = kit::gateway("max_body: 0", PLENTY);
    let head =
        "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 300000\r\n\r\n";
    let responses = gateway
        .exchange([head.as_bytes(), &vec![b'x'; 300_000]].concat())
        .await;
    assert_eq!(
        (responses[0].status, responses[0].body.len()),
        (200, 300_000)
    );
    gateway.stop();
}
