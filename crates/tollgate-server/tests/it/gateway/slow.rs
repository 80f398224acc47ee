//! Callers who take their time: they are ended, and nobody else waits for them. Ten thousand of them are in `gateway_crowd`.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};

use crate::gateway::{PLENTY, hear_one, heard, start};

const OPEN: &str = "tollgate_gateway_connections_open";

fn closed(reason: &str) -> String {
    format!("tollgate_gateway_connections_closed_early_total{{reason=\"{reason}\"}}")
}

/// Opens so many connections that say a part of a head and no more.
async fn slow_heads(address: std::net::SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut slow = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // It may have been ended meanwhile, to make room.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX-").await;
        slow.push(stream);
    }
    slow
}

#[tokio::test]
async fn where_places_get_scarce_those_who_ask_for_nothing_make_room() {
    let fields = "max_connections: 100, connections_per_address: 0, head_timeout: 1h";
    let front = start(fields, PLENTY).await;
    let mut busy = TcpStream::connect(front.address).await.unwrap();
    busy.write_all(b"GET /wait/3000 HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    for round in 0..20 {
        let slow = slow_heads(front.address, 50).await;
        assert_eq!(front.get("/").await.status, 200, "round {round}");
        assert!(front.figure(OPEN) <= 100);
        // They stay open as far as it is for them.
        std::mem::forget(slow);
    }
    assert!(front.figure(&closed("shed")) >= 900);
    // A request that is under way is not touched.
    assert_eq!(hear_one(&mut busy).await.unwrap().status, 200);
    front.end().await;
}

#[tokio::test]
async fn one_address_cannot_take_all_places_unless_it_is_a_proxy_that_is_trusted() {
    let refused = "tollgate_gateway_connections_refused_total{reason=\"address\"}";
    let front = start("connections_per_address: 3", PLENTY).await;
    let slow = slow_heads(front.address, 10).await;
    front.until_figure(refused, |count| count == 7).await;
    // Another address of this machine.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(front.address).await.unwrap();
    other
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(heard(&mut other).await[0].status, 200);
    drop(slow);
    front.until_figure(OPEN, |open| open == 0).await;
    assert_eq!(front.get("/").await.status, 200);
    front.end().await;

    let trusted = format!("identity: {{ trusted_proxies: [127.0.0.1] }}\n{PLENTY}");
    let front = start("connections_per_address: 3", &trusted).await;
    let slow = slow_heads(front.address, 10).await;
    front.until_figure(OPEN, |open| open == 10).await;
    assert_eq!(front.figure(refused), 0);
    drop(slow);
    front.end().await;
}

/// Also if it was read together with the request before it.
#[tokio::test]
async fn the_time_of_a_head_runs_from_its_first_byte() {
    let front = start("head_timeout: 1s, idle_timeout: 1h", PLENTY).await;
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    let said = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nG";
    stream.write_all(said).await.unwrap();
    let heard = heard(&mut stream).await;
    assert_eq!(heard[0].status, 200);
    assert_eq!(front.figure(&closed("head_timeout")), 1);
    front.end().await;
}

#[tokio::test]
async fn an_idle_connection_lives_longer_than_a_slow_head_and_not_for_ever() {
    let front = start("head_timeout: 300ms, idle_timeout: 2s", PLENTY).await;
    let ask = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut idle = TcpStream::connect(front.address).await.unwrap();
    idle.write_all(ask).await.unwrap();
    assert_eq!(hear_one(&mut idle).await.unwrap().status, 200);
    // Longer than a head may take.
    tokio::time::sleep(Duration::from_millis(900)).await;
    idle.write_all(ask).await.unwrap();
    assert_eq!(hear_one(&mut idle).await.unwrap().status, 200);
    assert!(heard(&mut idle).await.is_empty());
    assert_eq!(front.figure(&closed("idle_timeout")), 1);
    drop(idle);

    let mut slow = TcpStream::connect(front.address).await.unwrap();
    slow.write_all(ask).await.unwrap();
    assert_eq!(hear_one(&mut slow).await.unwrap().status, 200);
    slow.write_all(b"GET / HT").await.unwrap();
    assert!(heard(&mut slow).await.is_empty());
    assert_eq!(front.figure(&closed("head_timeout")), 1);
    let mut silent = TcpStream::connect(front.address).await.unwrap();
    assert!(heard(&mut silent).await.is_empty());
    assert_eq!(front.figure(&closed("head_timeout")), 2);
    assert_eq!(front.figure(&closed("idle_timeout")), 1);
    front.end().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_answered_with_408() {
    let front = start("body_timeout: 300ms", PLENTY).await;
    for framing in [
        "Content-Length: 10\r\n\r\nabc",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ] {
        let heard = front
            .exchange(format!("POST /echo HTTP/1.1\r\nHost: a\r\n{framing}"))
            .await;
        assert_eq!(heard.len(), 1, "{framing}");
        assert_eq!(
            (heard[0].status, heard[0].field("connection")),
            (408, Some("close"))
        );
    }
    // One that comes in pieces, each in time, may take longer in all.
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    stream
        .write_all(
            b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nConnection: close\r\n\r\n",
        )
        .await
        .unwrap();
    for _ in 0..10 {
        stream.write_all(b"x").await.unwrap();
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    let all = heard(&mut stream).await;
    assert_eq!((all[0].status, all[0].body.len()), (200, 10));
    front.end().await;
}

#[tokio::test]
async fn who_does_not_take_its_answer_is_cut_off() {
    let front = start("send_timeout: 500ms", PLENTY).await;
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    stream
        .write_all(b"GET /big/50000000 HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    front
        .until_figure(&closed("send_timeout"), |count| count == 1)
        .await;
    front.until_figure(OPEN, |open| open == 0).await;
    assert_eq!(front.get("/").await.status, 200);
    drop(stream);
    front.end().await;
}

#[tokio::test]
async fn who_is_denied_in_the_midst_of_a_long_body_hears_of_it() {
    let rules = "rules: [{ id: address, per: [ip], limit: \"1/h burst 1\" }]";
    let front = start("", rules).await;
    assert_eq!(front.get("/").await.status, 200);
    const LONG: usize = 10_000_000;
    for _ in 0..3 {
        let mut stream = TcpStream::connect(front.address).await.unwrap();
        let head = format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {LONG}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        // Says all before it listens, as simple clients do.
        stream.write_all(&vec![b'x'; LONG]).await.unwrap();
        stream.shutdown().await.unwrap();
        let heard = heard(&mut stream).await;
        assert_eq!(heard.len(), 1);
        assert_eq!(heard[0].status, 429);
    }
    // A short body is read, and the connection stays.
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    for _ in 0..3 {
        stream
            .write_all(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
            .await
            .unwrap();
        assert_eq!(hear_one(&mut stream).await.unwrap().status, 429);
    }
    // Who asks first is spared the body.
    let head =
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    let heard = front.exchange(head).await;
    assert_eq!(
        heard.iter().map(|heard| heard.status).collect::<Vec<_>>(),
        [429]
    );
    assert_eq!(front.behind.count(), 1);
    front.end().await;
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_after_it_was_decided_on() {
    let front = start("max_body: 1KiB", PLENTY).await;
    let said = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1025\r\n\r\n";
    let heard = front.exchange(said).await;
    assert_eq!((heard.len(), heard[0].status), (1, 413));
    assert!(heard[0].field("x-ratelimit-remaining").is_some());
    assert_eq!((front.decided().await, front.behind.count()), (1, 0));
    // Without a length it is counted on its way.
    let chunk = format!("200\r\n{}\r\n", "x".repeat(512));
    let head = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let heard = front
        .exchange(format!("{head}{chunk}{chunk}{chunk}0\r\n\r\n"))
        .await;
    assert_eq!((heard.len(), heard[0].status), (1, 413));
    let head = head.replace("Transfer", "Connection: close\r\nTransfer");
    let heard = front
        .exchange(format!("{head}{chunk}{chunk}0\r\n\r\n"))
        .await;
    assert_eq!((heard[0].status, heard[0].body.len()), (200, 1_024));
    front.end().await;
    let front = start("max_body: 0", PLENTY).await;
    let head =
        "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 300000\r\n\r\n";
    let heard = front
        .exchange([head.as_bytes(), &vec![b'x'; 300_000]].concat())
        .await;
    assert_eq!((heard[0].status, heard[0].body.len()), (200, 300_000));
    front.end().await;
}
