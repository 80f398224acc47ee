//! HTTP/2 without TLS, by callers who know that it is spoken; and what they must not do.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::gateway::{Front, PLENTY, start};

pub(crate) async fn connect<B>(front: &Front) -> SendRequest<B>
where
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Unpin
        + Send
        + 'static,
{
    let stream = TokioIo::new(TcpStream::connect(front.address).await.unwrap());
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream)
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

/// A caller who takes so many bytes of an answer at a time; with 0, nothing of any.
async fn connect_with_window(front: &Front, bytes: u32) -> SendRequest<Empty<Bytes>> {
    let stream = TokioIo::new(TcpStream::connect(front.address).await.unwrap());
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(bytes)
        .handshake(stream)
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

pub(crate) fn ask(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://a{path}"))
        .body(Empty::new())
        .unwrap()
}

fn closed(reason: &str) -> String {
    format!("tollgate_gateway_connections_closed_early_total{{reason=\"{reason}\"}}")
}

#[tokio::test]
async fn who_gives_no_window_for_its_answers_is_cut_off() {
    let front = start("send_timeout: 500ms", PLENTY).await;
    let mut sender = connect_with_window(&front, 0).await;
    let response = sender.send_request(ask("/big/1000000")).await.unwrap();
    assert_eq!(response.status(), 200);
    front
        .until_figure(&closed("send_timeout"), |count| count == 1)
        .await;
    assert!(response.into_body().collect().await.is_err());
    front
        .until_figure("tollgate_gateway_connections_open", |open| open == 0)
        .await;
    front.end().await;
}

#[tokio::test]
async fn who_takes_its_answer_bit_by_bit_or_waits_for_the_service_is_not() {
    const BIG: usize = 600_000;
    let front = start("send_timeout: 5s", PLENTY).await;
    // The service takes its time, which is not the caller's fault.
    let mut sender = connect_with_window(&front, 65_535).await;
    let waits = async {
        let response = sender.send_request(ask("/wait/8000")).await.unwrap();
        response.into_body().collect().await.unwrap();
    };
    let mut sender = connect_with_window(&front, 65_535).await;
    let takes_little = async {
        let response = sender.send_request(ask(&format!("/big/{BIG}"))).await;
        let mut body = response.unwrap().into_body();
        let (mut taken, began) = (0, Instant::now());
        while let Some(frame) = body.frame().await {
            let bytes = frame.unwrap().into_data().unwrap().len();
            taken += bytes;
            // 80 kB a second, of whatever size the frames are.
            let pause = Duration::from_micros(u64::try_from(bytes * 12).unwrap());
            tokio::time::sleep(pause).await;
        }
        assert_eq!(taken, BIG);
        began.elapsed()
    };
    let ((), took) = tokio::join!(waits, takes_little);
    assert!(
        took > Duration::from_secs(6),
        "longer than one may take nothing: {took:?}"
    );
    assert_eq!(front.figure(&closed("send_timeout")), 0);
    front.end().await;
}

#[tokio::test]
async fn a_connection_that_is_too_old_ends_when_its_requests_have() {
    let front = start("max_age: 1s", PLENTY).await;
    let stream = TokioIo::new(TcpStream::connect(front.address).await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    // It is told to go while this is under way, and hears the answer all the same.
    let response = sender.send_request(ask("/wait/4000")).await.unwrap();
    assert_eq!(front.figure(&closed("age")), 1);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "");
    let ended = tokio::time::timeout(crate::gateway::PATIENCE, connection).await;
    ended.unwrap().unwrap().expect("a good end");
    // One of HTTP/1.1 may be of any age.
    let mut old = TcpStream::connect(front.address).await.unwrap();
    let said = b"GET /wait/3000 HTTP/1.1\r\nHost: a\r\n\r\n";
    for _ in 0..2 {
        old.write_all(said).await.unwrap();
        let heard = crate::gateway::hear_one(&mut old).await.unwrap();
        assert_eq!(heard.status, 200);
    }
    assert_eq!(front.figure(&closed("age")), 1);
    front.end().await;
}

#[tokio::test]
async fn requests_side_by_side_are_each_decided_on() {
    let rules = "rules: [{ id: address, per: [ip], limit: \"1/h burst 10\" }]";
    let front = start("", rules).await;
    let sender = connect(&front).await;
    let asks: Vec<_> = (0..30)
        .map(|_| {
            let mut sender = sender.clone();
            tokio::spawn(async move {
                let request = Request::get("http://a/wait/50")
                    .body(Empty::<Bytes>::new())
                    .unwrap();
                sender.send_request(request).await.unwrap().status()
            })
        })
        .collect();
    let mut passed = 0;
    for ask in asks {
        match ask.await.unwrap() {
            StatusCode::OK => passed += 1,
            status => assert_eq!(status, StatusCode::TOO_MANY_REQUESTS),
        }
    }
    assert_eq!((passed, front.behind.count()), (10, 10));
    drop(sender);
    front.end().await;
}

#[tokio::test]
async fn who_is_denied_in_the_midst_of_a_long_body_hears_of_it_and_goes_on() {
    let rules = "rules: [{ id: address, per: [ip], limit: \"1/h burst 1\" }]";
    let front = start("max_body: 1KiB", rules).await;
    let mut sender = connect(&front).await;
    let long = || Full::from(Bytes::from(vec![b'x'; 3_000_000]));
    for expected in [413, 429, 429] {
        let request = Request::post("http://a/echo").body(long()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status().as_u16(), expected);
        response.into_body().collect().await.unwrap();
    }
    assert_eq!(front.behind.count(), 0);
    drop(sender);
    front.end().await;
}

#[tokio::test]
async fn a_host_beside_another_authority_is_refused() {
    let front = start("", PLENTY).await;
    let mut sender = connect(&front).await;
    for (host, expected) in [("a", 200), ("b", 400)] {
        let request = Request::get("http://a/").header("host", host);
        let response = sender
            .send_request(request.body(Empty::<Bytes>::new()).unwrap())
            .await
            .unwrap();
        assert_eq!(response.status().as_u16(), expected, "{host}");
    }
    assert_eq!((front.behind.count(), front.decided().await), (1, 1));
    drop(sender);
    front.end().await;
}

#[tokio::test]
async fn at_the_end_what_is_under_way_ends() {
    let front = start("", PLENTY).await;
    let mut sender = connect(&front).await;
    let request = Request::get("http://a/wait/1500")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let answer = tokio::spawn(async move { sender.send_request(request).await.unwrap().status() });
    front.behind.until(1).await;
    front.end().await;
    assert_eq!(answer.await.unwrap(), StatusCode::OK);
}

/// An HTTP/2 frame as it is written.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// CVE-2023-44487: requests that are taken back as soon as they were made.
#[tokio::test]
async fn a_flood_of_requests_that_are_taken_back_ends_its_own_connection_and_no_other() {
    const FLOOD: u32 = 20_000;
    let front = start("", PLENTY).await;
    let mut other = connect(&front).await;
    let mut attacker = TcpStream::connect(front.address).await.unwrap();
    let mut said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    said.extend(frame(4, 0, 0, &[]));
    for nth in 0..FLOOD {
        // GET / of http at "a", with the end of headers and of the stream.
        let request = [0x82, 0x86, 0x84, 0x41, 1, b'a'];
        said.extend(frame(1, 5, 2 * nth + 1, &request));
        said.extend(frame(3, 0, 2 * nth + 1, &8_u32.to_be_bytes()));
    }
    // It does not get to the end.
    let _ = attacker.write_all(&said).await;
    let ask = || {
        Request::get("http://a/")
            .body(Empty::<Bytes>::new())
            .unwrap()
    };
    assert_eq!(
        other.send_request(ask()).await.unwrap().status(),
        StatusCode::OK
    );
    let mut heard = Vec::new();
    let _ = attacker.read_to_end(&mut heard).await;
    // GOAWAY, with the request to calm down.
    let goaway = heard
        .windows(9)
        .position(|head| head[3] == 7 && head[5..] == [0; 4]);
    let reason = &heard[goaway.expect("the connection is ended with a reason") + 13..][..4];
    assert_eq!(reason, 11_u32.to_be_bytes());
    assert!(
        front.behind.count() < FLOOD as usize / 2,
        "{}",
        front.behind.count()
    );
    assert_eq!(
        other.send_request(ask()).await.unwrap().status(),
        StatusCode::OK
    );
    drop(other);
    front.end().await;
}

/// Frames that cost work and are no part of a request.
#[tokio::test]
async fn a_flood_of_control_frames_ends_its_own_connection() {
    const FLOOD: usize = 20_000;
    let front = start("", PLENTY).await;
    let mut other = connect(&front).await;
    let floods = [
        ("PING", frame(6, 0, 0, &[7; 8])),
        ("SETTINGS", frame(4, 0, 0, &[])),
        ("PRIORITY", frame(2, 0, 1, &[0, 0, 0, 0, 9])),
        ("WINDOW_UPDATE", frame(8, 0, 0, &1_u32.to_be_bytes())),
        ("unknown", frame(0xbe, 0, 0, &[1, 2, 3])),
    ];
    for (nth, (name, repeated)) in (0..).zip(&floods) {
        let mut attacker = TcpStream::connect(front.address).await.unwrap();
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let flood = [preface, frame(4, 0, 0, &[]), repeated.repeat(FLOOD)].concat();
        let (mut reading, mut writing) = attacker.split();
        let mut received = Vec::new();
        // It reads what it gets, so that nothing but the budget ends it.
        let (_, read) = tokio::join!(
            writing.write_all(&flood),
            reading.read_to_end(&mut received)
        );
        drop(read);
        let closed = front.figure(&closed("control_frames"));
        assert_eq!(closed, nth + 1, "{name}");
        let status = other.send_request(ask("/")).await.unwrap().status();
        assert_eq!(status, StatusCode::OK, "{name}");
    }
    drop(other);
    front.end().await;
}

#[tokio::test]
async fn more_fields_than_a_head_may_have_are_refused_before_anything_is_decided() {
    let front = start("max_head: 5KiB", PLENTY).await;
    let mut sender = connect::<Empty<Bytes>>(&front).await;
    let with = |fields: usize, bytes: usize| {
        let mut request = ask("/");
        for nth in 0..fields {
            let name = http::HeaderName::try_from(format!("x-{nth}")).unwrap();
            let value = "x".repeat(bytes).parse().unwrap();
            request.headers_mut().insert(name, value);
        }
        request
    };
    for (fields, bytes, expected) in [
        (5, 900, 200),
        (6, 900, 431),
        (90, 0, 200),
        (100, 0, 200),
        (101, 0, 431),
    ] {
        let response = sender.send_request(with(fields, bytes)).await.unwrap();
        assert_eq!(
            response.status().as_u16(),
            expected,
            "{fields} of {bytes} bytes"
        );
    }
    let mut cookies = with(90, 0);
    for _ in 0..20 {
        cookies
            .headers_mut()
            .append("cookie", "a=1".parse().unwrap());
    }
    let response = sender.send_request(cookies).await.unwrap();
    assert_eq!(response.status(), 200, "which are one field");
    // Far too many cost the connection.
    assert!(sender.send_request(with(40, 900)).await.is_err());
    drop(sender);
    assert_eq!(came_and_decided(&front).await, (4, 4));
    front.end().await;
}

/// How many requests came to the service behind, and how many were decided on, when all connections have ended.
async fn came_and_decided(front: &Front) -> (usize, usize) {
    front
        .until_figure("tollgate_gateway_connections_open", |open| open == 0)
        .await;
    (front.behind.count(), front.decided().await)
}

/// A field as it is written when neither side knows it.
fn field(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0];
    for part in [name, value] {
        field.push(u8::try_from(part.len()).unwrap());
        field.extend(part.as_bytes());
    }
    field
}

/// The first frame that says something of stream 1: its kind and what it carries.
async fn hear_of_one(stream: &mut TcpStream) -> (u8, Vec<u8>) {
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
/// GET / of http at "a", and POST /echo, which is answered when its body has come.
const GET: &[u8] = b"\x82\x86\x84\x41\x01a";
const POST: &[u8] = b"\x83\x86\x44\x05/echo\x41\x01a";

/// Says a request in frames on a connection of its own.
async fn said(front: &Front, frames: &[Vec<u8>]) -> (u8, Vec<u8>) {
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let said = [&[preface, frame(4, 0, 0, &[])], frames].concat().concat();
    stream.write_all(&said).await.unwrap();
    let heard = tokio::time::timeout(crate::gateway::PATIENCE, hear_of_one(&mut stream)).await;
    heard.expect("it is answered")
}

fn refused_as_wrong() -> (u8, Vec<u8>) {
    (RESET, 1_u32.to_be_bytes().to_vec())
}

#[tokio::test]
async fn fields_of_a_connection_are_refused_before_anything_is_decided() {
    let front = start("", PLENTY).await;
    for (name, value) in [
        ("connection", "close"),
        ("connection", "x-secret"),
        ("transfer-encoding", "chunked"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("upgrade", "websocket"),
        ("te", "gzip"),
    ] {
        let head = [GET, &field(name, value)].concat();
        let heard = said(&front, &[frame(1, 5, 1, &head)]).await;
        assert_eq!(heard, refused_as_wrong(), "{name}: {value}");
    }
    // The same without such a field is none of that.
    let head = [GET, &field("te", "trailers")].concat();
    let (kind, payload) = said(&front, &[frame(1, 5, 1, &head)]).await;
    assert_eq!((kind, payload[0]), (HEADERS, 0x88), "200");
    assert_eq!(came_and_decided(&front).await, (1, 1));
    front.end().await;
}

#[tokio::test]
async fn a_length_that_is_not_that_of_the_body_is_refused_and_nothing_undecided_goes_on() {
    let front = start("", PLENTY).await;
    let head = |length: &str| [POST, &field("content-length", length)].concat();
    // There is no body, and what is no length: it is seen before there is a request.
    for length in ["5", "-1", "0x5", "99999999999999999999"] {
        let heard = said(&front, &[frame(1, 5, 1, &head(length))]).await;
        assert_eq!(heard, refused_as_wrong(), "{length}");
    }
    assert_eq!(front.behind.count(), 0);
    // More than was said, and less: it is decided on before we hear that it is wrong.
    for body in ["too long", "no"] {
        let frames = [frame(1, 4, 1, &head("5")), frame(0, 1, 1, body.as_bytes())];
        let heard = said(&front, &frames).await;
        assert_eq!(heard, refused_as_wrong(), "{body}");
    }
    let frames = [frame(1, 4, 1, &head("5")), frame(0, 1, 1, b"world")];
    let (kind, payload) = said(&front, &frames).await;
    assert_eq!((kind, payload[0]), (HEADERS, 0x88), "200");
    let (came, decided) = came_and_decided(&front).await;
    assert!((1..=3).contains(&came), "{came}");
    assert_eq!(came, decided);
    front.end().await;
}
