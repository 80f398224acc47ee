//! HTTP/2 without TLS, by callers who know that it is spoken; and what they must not do.

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::gateway::{Front, PLENTY, start};

async fn connect<B>(front: &Front) -> SendRequest<B>
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
