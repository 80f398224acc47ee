//! One connection, from its first byte to its last.

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tollgate_tower::layer::PeerAddr;

use super::preface::{Version, version};
use super::{ListenConfig, Served};

/// Who was let in just before the end may be about to speak, and nobody else hears it.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub(super) async fn serve<S, B>(
    stream: TcpStream,
    peer: SocketAddr,
    config: &ListenConfig,
    stop: CancellationToken,
    service: S,
) where
    S: Served<B>,
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    // Answers are small and whole; who waits for more of them waits in vain.
    let _ = stream.set_nodelay(true);
    let Some(tls) = &config.tls else {
        let begin = timeout(config.head_timeout, version(&stream));
        let late = async {
            stop.cancelled().await;
            tokio::time::sleep(LAST_WORDS).await;
        };
        let begun = tokio::select! {
            begun = begin => begun,
            () = late => return,
        };
        if let Ok(Ok(version)) = begun {
            speak(stream, version, peer, config, stop.clone(), service).await;
        }
        return;
    };
    let handshake = timeout(
        config.head_timeout,
        TlsAcceptor::from(std::sync::Arc::clone(tls)).accept(stream),
    );
    match handshake.await {
        Ok(Ok(stream)) => {
            let version = match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => Version::Two,
                _ => Version::One,
            };
            speak(stream, version, peer, config, stop, service).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a handshake of TLS failed"),
        Err(_) => tracing::debug!("a handshake of TLS took too long"),
    }
}

async fn speak<T, S, B>(
    stream: T,
    version: Version,
    peer: SocketAddr,
    config: &ListenConfig,
    stop: CancellationToken,
    service: S,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Served<B>,
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let stream = TokioIo::new(stream);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(PeerAddr(peer));
        service.clone().call(request)
    });
    let ended = match version {
        Version::One => {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(config.head_timeout)
                .max_buf_size(config.most_head_bytes.max(8_192))
                .max_headers(config.most_fields)
                .serve_connection(stream, service)
                .with_upgrades();
            let mut connection = pin!(connection);
            tokio::select! {
                // In this order: a connection that has not read anything yet closes when it is asked to finish, whatever waits in it.
                biased;
                ended = connection.as_mut() => ended,
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        }
        Version::Two => {
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_header_list_size(u32::try_from(config.most_head_bytes).unwrap_or(u32::MAX))
                .keep_alive_interval(config.head_timeout)
                .serve_connection(stream, service);
            let mut connection = pin!(connection);
            tokio::select! {
                // In this order: a connection that has not read anything yet closes when it is asked to finish, whatever waits in it.
                biased;
                ended = connection.as_mut() => ended,
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
