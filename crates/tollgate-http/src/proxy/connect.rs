//! A new connection to a server: its name looked up, TCP, TLS, and the beginning of HTTP.

use std::fmt;
use std::io;
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use super::connection::Connection;
use super::failure::Failure;
use super::request_body::RequestBody;
use super::server::Server;
use super::stream::Stream;
use crate::descriptors;
use crate::patience::timeout;

/// How often a server that is silent over HTTP/2 is asked whether it is there.
const PING: Duration = Duration::from_secs(20);

/// So many bytes of a response over HTTP/2 are read ahead at most while the client takes its time.
const STREAM_WINDOW: u32 = 256 * 1_024;

/// The largest window of HTTP/2.
const MAX_WINDOW: u32 = (1 << 31) - 1;

pub(super) enum Connected {
    One(Box<Connection>),
    Two(http2::SendRequest<RequestBody>),
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum Unconnected {
    Tcp(io::Error),
    Tls(io::Error),
    Http(hyper::Error),
    TimedOut,
}

impl Unconnected {
    pub(super) fn failure(&self) -> Failure {
        match self {
            Self::Tcp(error) if descriptors::are_exhausted(error) => {
                descriptors::report_exhausted("connecting to an upstream");
                Failure::NoDescriptors
            }
            Self::Tcp(_) | Self::Http(_) => Failure::Unreachable,
            Self::Tls(_) => Failure::Tls,
            Self::TimedOut => Failure::ConnectTimeout,
        }
    }
}

impl fmt::Display for Unconnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(error) => write!(f, "{error}"),
            Self::Tls(error) => write!(f, "TLS: {error}"),
            Self::Http(error) => write!(f, "HTTP: {error}"),
            Self::TimedOut => f.write_str("no connection in time"),
        }
    }
}

/// Connects. How long that may take is the caller's to say.
pub(super) async fn connect(server: &Server, open: &Gauge) -> Result<Connected, Unconnected> {
    let stream = dial(server).await.map_err(Unconnected::Tcp)?;
    let Some((config, name)) = &server.tls else {
        let stream = Stream::plain(stream, open.clone());
        return begin(stream, server.wants_http2(), server).await;
    };
    let connector = TlsConnector::from(std::sync::Arc::clone(config));
    let stream = connector
        .connect(name.clone(), stream)
        .await
        .map_err(Unconnected::Tls)?;
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = Stream::tls(stream, open.clone());
    begin(stream, is_http2, server).await
}

/// A window for a connection with so many streams, so that slow ones never use up what the others need.
fn connection_window(max_streams: usize) -> u32 {
    let max_streams = u32::try_from(max_streams).unwrap_or(u32::MAX);
    STREAM_WINDOW
        .saturating_mul(max_streams.saturating_add(1))
        .min(MAX_WINDOW)
}

async fn begin(stream: Stream, is_http2: bool, server: &Server) -> Result<Connected, Unconnected> {
    if !is_http2 {
        return Ok(Connected::One(Box::new(Connection::over(
            stream,
            server.fast_path,
        ))));
    }
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(connection_window(server.config.max_connections))
        .keep_alive_interval(PING)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(Unconnected::Http)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a server ended early");
        }
    });
    Ok(Connected::Two(sender))
}

/// The addresses of a name are asked for anew with every connection, and tried in their order. Each gets its share of the time, so
/// that one that does not answer leaves some for the next.
async fn dial(server: &Server) -> io::Result<TcpStream> {
    let addresses: Vec<_> = lookup_host((&*server.host, server.port)).await?.collect();
    let share = u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let share = server.config.connect_timeout / share;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Some(Ok(stream)) => {
                // Requests are small and whole; who waits for more of them waits in vain.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Some(Err(error)) => last = error,
            None => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}
