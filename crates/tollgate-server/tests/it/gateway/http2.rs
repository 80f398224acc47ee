//! HTTP/2 without TLS, by clients with prior knowledge, and clients that abuse the protocol.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tollgate_testing::gateway::PLENTY;
use tollgate_testing::http2::{PREFACE, connect, connect_with, frame, get, handshake};
use tollgate_testing::{Connection, Gateway, TIMEOUT};

use crate::kit;

/// A client that accepts this many bytes of a response at once.
async fn connect_with_window(gateway: &Gateway, bytes: u32) -> SendRequest<Empty<Bytes>> {
    let mut settings = Builder::new(TokioExecutor::new());
    settings.initial_stream_window_size(bytes);
    connect_with(gateway.address, &settings).await
}

fn closed_early(reason: &str) -> String {
    format!("tollgate_gateway_connections_closed_early_total{{reason=\"{reason}\"}}")
}

async fn until_all_closed(gateway: &Gateway) {
    gateway
        .until_metric("tollgate_gateway_connections_open", |open| open == 0.0)
        .await;
}

#[tokio::test]
async fn a_client_without_a_window_is_closed_after_send_timeout() {
    let gateway = kit::gateway("send_timeout: 500ms", PLENTY);
    let mut sender = connect_with_window(&gateway, 0).await;
    let response = sender.send_request(get("/big/1000000")).await.unwrap();
    assert_eq!(response.status(), 200);
    gateway
        .until_metric(&closed_early("send_timeout"), |count| count == 1.0)
        .await;
    assert!(response.into_body().collect().await.is_err());
    until_all_closed(&gateway).await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn send_timeout_spares_slow_readers_and_slow_upstreams() {
    const BIG: usize = 600_000;
    let gateway = kit::gateway("send_timeout: 5s", PLENTY);
    // The upstream is slow, not the client.
    let mut sender = connect_with_window(&gateway, 65_535).await;
    let slow_upstream = async {
        let response = sender.send_request(get("/wait/8000")).await.unwrap();
        response.into_body().collect().await.unwrap();
    };
    let mut sender = connect_with_window(&gateway, 65_535).await;
    let slow_reader = async {
        let response = sender.send_request(get(&format!("/big/{BIG}"))).await;
        let mut body = response.unwrap().into_body();
        let (mut received, began) = (0, Instant::now());
        while let Some(frame) = body.frame().await {
            let bytes = frame.unwrap().into_data().unwrap().len();
            received += bytes;
            // 80 kB a second, whatever size the frames have.
            let pause = Duration::from_micros(u64::try_from(bytes * 12).unwrap());
            tokio::time::sleep(pause).await;
        }
        assert_eq!(received, BIG);
        began.elapsed()
    };
    let ((), duration) = tokio::join!(slow_upstream, slow_reader);
    assert!(
        duration > Duration::from_secs(6),
        "longer than a client may read nothing: {duration:?}"
    );
    assert_eq!(gateway.count(&closed_early("send_timeout")), 0);
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_past_max_age_ends_after_its_requests() {
    let gateway = kit::gateway("max_age: 1s", PLENTY);
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let settings = Builder::new(TokioExecutor::new());
    let (mut sender, connection) = handshake(stream, &settings).await.unwrap();
    // The client is asked to leave while this is in flight, and receives the response all the same.
    let response = sender.send_request(get("/wait/4000")).await.unwrap();
    assert_eq!(gateway.count(&closed_early("age")), 1);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "");
    let ended = tokio::time::timeout(TIMEOUT, connection).await;
    ended.unwrap().unwrap().expect("a good end");
    // HTTP/1.1 connections may have any age.
    let mut old = Connection::open(gateway.address).await;
    for _ in 0..2 {
        let response = old
            .request("GET /wait/3000 HTTP/1.1\r\nHost: a\r\n\r\n")
            .await;
        assert_eq!(response.status, 200);
    }
    assert_eq!(gateway.count(&closed_early("age")), 1);
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_concurrent_requests_is_decided() {
    let rules = "rules: [{ id: address, per: [ip], limit: \"1/h burst 10\" }]";
    let gateway = kit::gateway("", rules);
    let sender = connect(gateway.address).await;
    let requests: Vec<_> = (0..30)
        .map(|_| {
            let mut sender = sender.clone();
            tokio::spawn(async move {
                let response = sender.send_request(get("/wait/50")).await;
                response.unwrap().status()
            })
        })
        .collect();
    let mut admitted = 0;
    for request in requests {
        match request.await.unwrap() {
            StatusCode::OK => admitted += 1,
            status => assert_eq!(status, StatusCode::TOO_MANY_REQUESTS),
        }
    }
    assert_eq!((admitted, gateway.upstream.hits()), (10, 10));
    drop(sender);
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn denials_during_long_bodies_keep_the_connection() {
    let rules = "rules: [{ id: address, per: [ip], limit: \"1/h burst 1\" }]";
    let gateway = kit::gateway("max_body: 1KiB", rules);
    let mut sender = connect(gateway.address).await;
    let long = || Full::from(Bytes::from(vec![b'x'; 3_000_000]));
    for expected in [413, 429, 429] {
        let request = Request::post("http://a/echo").body(long()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status().as_u16(), expected);
        response.into_body().collect().await.unwrap();
    }
    assert_eq!(gateway.upstream.hits(), 0);
    drop(sender);
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_differs_from_the_authority_is_refused() {
    let gateway = kit::gateway("", PLENTY);
    let mut sender = connect(gateway.address).await;
    for (host, expected) in [("a", 200), ("b", 400)] {
        let mut request = get("/");
        let host = http::HeaderValue::from_static(host);
        request.headers_mut().insert("host", host.clone());
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status().as_u16(), expected, "{host:?}");
    }
    assert_eq!((gateway.upstream.hits(), gateway.decisions()), (1, 1));
    drop(sender);
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_waits_for_requests_in_flight() {
    let gateway = kit::gateway("", PLENTY);
    let mut sender = connect(gateway.address).await;
    let request = tokio::spawn(async move {
        let response = sender.send_request(get("/wait/1500")).await;
        response.unwrap().status()
    });
    gateway.upstream.until_hits(1).await;
    gateway.stop();
    assert_eq!(request.await.unwrap(), StatusCode::OK);
}

/// CVE-2023-44487: requests that are cancelled as soon as they were sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_cancelled_requests_ends_only_its_connection() {
    const FLOOD: u32 = 20_000;
    let gateway = kit::gateway("", PLENTY);
    let mut other = connect(gateway.address).await;
    let mut attacker = Connection::open(gateway.address).await;
    let mut flood = [PREFACE, &frame(4, 0, 0, &[])].concat();
    for nth in 0..FLOOD {
        flood.extend(frame(1, 5, 2 * nth + 1, GET));
        flood.extend(frame(RESET, 0, 2 * nth + 1, &8_u32.to_be_bytes()));
    }
    // The gateway does not read all of it.
    attacker.try_send(&flood).await;
    let response = other.send_request(get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let received = attacker.bytes_to_end().await;
    // GOAWAY with ENHANCE_YOUR_CALM.
    let goaway = received
        .windows(9)
        .position(|head| head[3] == 7 && head[5..] == [0; 4]);
    let reason = &received[goaway.expect("the connection ends with a reason") + 13..][..4];
    assert_eq!(reason, 11_u32.to_be_bytes());
    let hits = gateway.upstream.hits();
    assert!(hits < FLOOD as usize / 2, "{hits}");
    let response = other.send_request(get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    drop(other);
    gateway.stop();
}

/// Frames that cause work and are not part of a request.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_control_frames_ends_its_own_connection() {
    const FLOOD: usize = 20_000;
    let gateway = kit::gateway("", PLENTY);
    let mut other = connect(gateway.address).await;
    let floods = [
        ("PING", frame(6, 0, 0, &[7; 8])),
        ("SETTINGS", frame(4, 0, 0, &[])),
        ("PRIORITY", frame(2, 0, 1, &[0, 0, 0, 0, 9])),
        ("WINDOW_UPDATE", frame(8, 0, 0, &1_u32.to_be_bytes())),
        ("unknown", frame(0xbe, 0, 0, &[1, 2, 3])),
    ];
    for (nth, (name, repeated)) in (0..).zip(&floods) {
        let mut attacker = TcpStream::connect(gateway.address).await.unwrap();
        let preface = PREFACE.to_vec();
        let flood = [preface, frame(4, 0, 0, &[]), repeated.repeat(FLOOD)].concat();
        let (mut reader, mut writer) = attacker.split();
        let mut received = Vec::new();
        // It reads what it gets, so that only the budget of frames can end it.
        let reading = tokio::time::timeout(TIMEOUT, reader.read_to_end(&mut received));
        let (_, read) = tokio::join!(writer.write_all(&flood), reading);
        assert!(read.is_ok(), "{name}: the connection ends in time");
        let closed = gateway.count(&closed_early("control_frames"));
        assert_eq!(closed, nth + 1, "{name}");
        let response = other.send_request(get("/")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{name}");
    }
    drop(other);
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_headers_are_refused_before_a_decision() {
    let gateway = kit::gateway("max_head: 5KiB", PLENTY);
    let mut sender = connect(gateway.address).await;
    let with_headers = |count: usize, bytes: usize| {
        let mut request = get("/");
        for nth in 0..count {
            let name = http::HeaderName::try_from(format!("x-{nth}")).unwrap();
            let value = "x".repeat(bytes).parse().unwrap();
            request.headers_mut().insert(name, value);
        }
        request
    };
    for (count, bytes, expected) in [
        (5, 900, 200),
        (6, 900, 431),
        (90, 0, 200),
        (100, 0, 200),
        (101, 0, 431),
    ] {
        let response = sender.send_request(with_headers(count, bytes)).await;
        let status = response.unwrap().status().as_u16();
        assert_eq!(status, expected, "{count} of {bytes} bytes");
    }
    let mut cookies = with_headers(90, 0);
    for _ in 0..20 {
        cookies
            .headers_mut()
            .append("cookie", "a=1".parse().unwrap());
    }
    let response = sender.send_request(cookies).await.unwrap();
    assert_eq!(response.status(), 200, "all cookies are one header");
    // Far too many end the connection.
    assert!(sender.send_request(with_headers(40, 900)).await.is_err());
    drop(sender);
    until_all_closed(&gateway).await;
    assert_eq!((gateway.upstream.hits(), gateway.decisions()), (4, 4));
    gateway.stop();
}

/// A header as a literal that neither side indexes.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut literal = vec![0];
    for part in [name, value] {
        literal.push(u8::try_from(part.len()).unwrap());
        literal.extend(part.as_bytes());
    }
    literal
}

/// The kind and the payload of the first frame of stream 1.
async fn first_frame_of_stream_1(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.unwrap();
        if head[5..] == [0, 0, 0, 1] {
            return (head[3], payload);
        }
    }
}

const HEADERS: u8 = 1;
const RESET: u8 = 3;
/// GET / of http at "a", and POST /echo, which is answered when its body is complete.
const GET: &[u8] = b"\x82\x86\x84\x41\x01a";
const POST: &[u8] = b"\x83\x86\x44\x05/echo\x41\x01a";

/// Sends a request in frames on a connection of its own, and returns the first frame of its response.
async fn response_to(gateway: &Gateway, frames: &[Vec<u8>]) -> (u8, Vec<u8>) {
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let preface = [PREFACE.to_vec(), frame(4, 0, 0, &[])];
    let bytes = [&preface, frames].concat().concat();
    stream.write_all(&bytes).await.unwrap();
    let first = tokio::time::timeout(TIMEOUT, first_frame_of_stream_1(&mut stream)).await;
    first.expect("a response in time")
}

/// RST_STREAM with PROTOCOL_ERROR.
fn protocol_error() -> (u8, Vec<u8>) {
    (RESET, 1_u32.to_be_bytes().to_vec())
}

#[tokio::test]
async fn connection_headers_are_refused_before_a_decision() {
    let gateway = kit::gateway("", PLENTY);
    for (name, value) in [
        ("connection", "close"),
        ("connection", "x-secret"),
        ("transfer-encoding", "chunked"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("upgrade", "websocket"),
        ("te", "gzip"),
    ] {
        let head = [GET, &literal(name, value)].concat();
        let response = response_to(&gateway, &[frame(1, 5, 1, &head)]).await;
        assert_eq!(response, protocol_error(), "{name}: {value}");
    }
    // A header that HTTP/2 allows passes.
    let head = [GET, &literal("te", "trailers")].concat();
    let (kind, payload) = response_to(&gateway, &[frame(1, 5, 1, &head)]).await;
    assert_eq!((kind, payload[0]), (HEADERS, 0x88), "200");
    until_all_closed(&gateway).await;
    assert_eq!((gateway.upstream.hits(), gateway.decisions()), (1, 1));
    gateway.stop();
}

#[tokio::test]
async fn a_wrong_content_length_is_refused() {
    let gateway = kit::gateway("", PLENTY);
    let head = |length: &str| [POST, &literal("content-length", length)].concat();
    // A length without a body, and values that are no length, are refused before there is a request.
    for length in ["5", "-1", "0x5", "99999999999999999999"] {
        let response = response_to(&gateway, &[frame(1, 5, 1, &head(length))]).await;
        assert_eq!(response, protocol_error(), "{length}");
    }
    assert_eq!((gateway.upstream.hits(), gateway.decisions()), (0, 0));
    // A body that is too long or too short may be noticed after the decision.
    for body in ["too long", "no"] {
        let frames = [frame(1, 4, 1, &head("5")), frame(0, 1, 1, body.as_bytes())];
        let response = response_to(&gateway, &frames).await;
        assert_eq!(response, protocol_error(), "{body}");
    }
    let frames = [frame(1, 4, 1, &head("5")), frame(0, 1, 1, b"world")];
    let (kind, payload) = response_to(&gateway, &frames).await;
    assert_eq!((kind, payload[0]), (HEADERS, 0x88), "200");
    until_all_closed(&gateway).await;
    let (hits, decisions) = (gateway.upstream.hits() as u64, gateway.decisions());
    assert!((1..=3).contains(&decisions), "{decisions}");
    assert!((1..=decisions).contains(&hits), "{hits} of {decisions}");
    gateway.stop();
}
