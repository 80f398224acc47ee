//! Idle connections to one server, and new ones: DNS, TCP, TLS, and the beginning of HTTP. Each worker has pools of its own, so
//! that a connection stays with the thread that made it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::connection::UpstreamConnection;
use super::error::ForwardError;
use super::stream::{Stream, Transport};
use super::upstream::Server;
use crate::body::LimitedBody;
use crate::descriptors;
use crate::timeout::timeout;

/// Maximum time between two sweeps of idle connections.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

pub(super) struct ConnectionPool {
    pub(super) server: Arc<Server>,
    /// The one that was used last is at the back.
    idle: Mutex<VecDeque<Box<UpstreamConnection>>>,
    /// The HTTP/2 connection, which all requests share. It is locked while it is made.
    shared: tokio::sync::Mutex<Option<http2::SendRequest<LimitedBody>>>,
    open: Gauge,
    is_swept: AtomicBool,
}

impl ConnectionPool {
    pub(super) fn new(server: Arc<Server>, open: Gauge) -> Self {
        Self {
            server,
            idle: Mutex::default(),
            shared: tokio::sync::Mutex::default(),
            open,
            is_swept: AtomicBool::new(false),
        }
    }

    /// An idle connection that can still be used, if there is one.
    pub(super) fn take(&self, now: Instant) -> Option<Box<UpstreamConnection>> {
        loop {
            let mut connection = self.idle.lock().pop_back()?;
            if !self.is_stale(&connection, now) && connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose response has ended, if it can be used again.
    pub(super) fn put(&self, mut connection: Box<UpstreamConnection>, now: Instant) {
        if !connection.become_idle(now) {
            return;
        }
        let mut idle = self.idle.lock();
        idle.push_back(connection);
        let is_surplus = idle.len() > self.server.config.keepalive;
        let surplus = is_surplus.then(|| idle.pop_front());
        drop(idle);
        // It is closed outside the lock.
        drop(surplus);
    }

    /// The open HTTP/2 connection, if there is one.
    pub(super) fn shared(&self) -> Option<http2::SendRequest<LimitedBody>> {
        let shared = self.shared.try_lock().ok()?;
        shared.clone().filter(|sender| !sender.is_closed())
    }

    /// A new connection, or an HTTP/2 connection that another request has just made.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<Connected, ConnectError> {
        let within = self.server.config.connect_timeout;
        let made = match self.server.wants_http2() {
            false => timeout(within, connect(&self.server, &self.open)).await,
            true => timeout(within, self.connect_shared()).await,
        };
        self.sweep_from_now_on();
        made.unwrap_or(Err(ConnectError::TimedOut))
    }

    async fn connect_shared(&self) -> Result<Connected, ConnectError> {
        let mut shared = self.shared.lock().await;
        if let Some(sender) = shared.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(Connected::Http2(sender.clone()));
        }
        let made = connect(&self.server, &self.open).await?;
        if let Connected::Http2(sender) = &made {
            *shared = Some(sender.clone());
        }
        Ok(made)
    }

    fn is_stale(&self, connection: &UpstreamConnection, now: Instant) -> bool {
        now.saturating_duration_since(connection.idle_since) >= self.server.config.keepalive_timeout
    }

    /// Removes connections that their server has closed, or that were idle for too long: idle ones are not polled.
    fn sweep_from_now_on(self: &Arc<Self>) {
        if self.is_swept.swap(true, Ordering::Relaxed) {
            return;
        }
        let every = SWEEP_EVERY.min(self.server.config.keepalive_timeout);
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                let Some(pool) = pool.upgrade() else { return };
                let now = Instant::now();
                let mut idle = std::mem::take(&mut *pool.idle.lock());
                idle.retain_mut(|idle| !pool.is_stale(idle, now) && idle.is_usable());
                // Connections that were returned meanwhile were used last.
                let mut returned = pool.idle.lock();
                idle.append(&mut returned);
                *returned = idle;
            }
        });
    }
}

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
