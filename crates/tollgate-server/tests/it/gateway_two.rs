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

/// A frame as it is written.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
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
