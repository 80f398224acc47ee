//! HTTP/2 clients: one that behaves, and frames for those that do not.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use http_body::Body;
use http_body_util::Empty;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

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
    let stream = TcpStream::connect(at).await.unwrap();
    handshake(stream, settings).await.unwrap().0
}

/// Begins HTTP/2 over a stream that is connected already. The task ends with the connection.
///
/// # Errors
/// If the connection fails, for example because the server closed it.
pub async fn handshake<S, B>(
    stream: S,
    settings: &Builder<TokioExecutor>,
) -> hyper::Result<(SendRequest<B>, JoinHandle<hyper::Result<()>>)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Unpin
        + Send
        + 'static,
{
    let (sender, connection) = settings.handshake(TokioIo::new(stream)).await?;
    Ok((sender, tokio::spawn(connection)))
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
