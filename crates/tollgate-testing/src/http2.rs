//! HTTP/2 clients: one that behaves, and frames for those that do not.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use http_body::Body;
use http_body_util::Empty;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// What a client sends first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Connects with prior knowledge.
pub async fn connect<B>(at: SocketAddr) -> SendRequest<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Unpin
        + Send
        + 'static,
{
    connect_with(at, &Builder::new(TokioExecutor::new())).await
}

/// Connects with prior knowledge and settings of the test's own.
pub async fn connect_with<B>(at: SocketAddr, settings: &Builder<TokioExecutor>) -> SendRequest<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Unpin
        + Send
        + 'static,
{
    let stream = TokioIo::new(TcpStream::connect(at).await.unwrap());
    let (sender, connection) = settings.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// A GET request.
#[must_use]
pub fn get(path: &str) -> Request<Empty<Bytes>> {
    let request = Request::get(format!("http://a{path}"));
    request.body(Empty::new()).unwrap()
}

/// A frame as it is sent.
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}
