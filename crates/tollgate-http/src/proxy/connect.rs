//! New connections to a server: DNS, TCP, TLS, and the beginning of HTTP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use super::connection::UpstreamConnection;
use super::error::ForwardError;
use super::stream::{Stream, Transport};
use super::upstream::Server;
use crate::body::LimitedBody;
use crate::descriptors;
use crate::timeout::timeout;

/// How often a silent HTTP/2 server has to answer a ping.
const PING_EVERY: Duration = Duration::from_secs(20);

/// Maximum number of bytes of a response over HTTP/2 that are read ahead while the client is slow.
const STREAM_WINDOW: u32 = 256 * 1_024;

const MAX_WINDOW: u32 = (1 << 31) - 1;

pub(super) enum Connected {
    Http1(Box<UpstreamConnection>),
    Http2(http2::SendRequest<LimitedBody>),
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Tcp(io::Error),
    #[error("TLS: {0}")]
    Tls(io::Error),
    #[error("HTTP: {0}")]
    Http(hyper::Error),
    #[error("no connection in time")]
    TimedOut,
}

impl ConnectError {
    pub(super) fn forward_error(&self) -> ForwardError {
        match self {
            Self::Tcp(error) if descriptors::are_exhausted(error) => {
                descriptors::report_exhausted("connecting to an upstream");
                ForwardError::NoDescriptors
            }
            Self::Tcp(_) | Self::Http(_) => ForwardError::Unreachable,
            Self::Tls(_) => ForwardError::Tls,
            Self::TimedOut => ForwardError::ConnectTimeout,
        }
    }
}

/// Connects. The caller bounds the time.
pub(super) async fn connect(server: &Server, open: &Gauge) -> Result<Connected, ConnectError> {
    let stream = dial(server).await.map_err(ConnectError::Tcp)?;
    let (transport, is_http2) = match &server.tls {
        None => (Transport::Left(stream), server.wants_http2()),
        Some((config, name)) => {
            let connector = TlsConnector::from(Arc::clone(config));
            let stream = connector.connect(name.clone(), stream).await;
            let stream = Box::new(stream.map_err(ConnectError::Tls)?);
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            (Transport::Right(stream), is_http2)
        }
    };
    let stream = Stream::new(transport, open.clone());
    if !is_http2 {
        let connection = UpstreamConnection::new(stream, server.fast_path);
        return Ok(Connected::Http1(Box::new(connection)));
    }
    // For all streams together, so that slow ones never use up what the others need.
    let max_streams = u32::try_from(server.config.max_connections).unwrap_or(u32::MAX);
    let window = STREAM_WINDOW.saturating_mul(max_streams.saturating_add(1));
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(window.min(MAX_WINDOW))
        .keep_alive_interval(PING_EVERY)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(ConnectError::Http)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to a server ended early");
        }
    });
    Ok(Connected::Http2(sender))
}

/// Resolves the server's name for every connection, and tries its addresses in their order. Each gets its share of the time, so
/// that one that does not answer leaves some for the next.
async fn dial(server: &Server) -> io::Result<TcpStream> {
    let addresses: Vec<_> = lookup_host((&*server.host, server.port)).await?.collect();
    let share = u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let share = server.config.connect_timeout / share;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Some(Ok(stream)) => {
                // Requests are written whole, so there is nothing to wait for.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Some(Err(error)) => last = error,
            None => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}
