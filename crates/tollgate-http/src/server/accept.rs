//! Accepting connections as far as there is room for them.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::ServerConfig;
use super::connection_limiter::{ConnectionLimiter, ConnectionPermit};
use crate::descriptors;

/// How long a new connection waits for others to make room. If none does, all have requests in flight.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// How many connections without a request are closed if there is no file descriptor for a new one.
const ROOM_FOR_DESCRIPTORS: usize = 16;

/// Pause after the system could not accept a connection.
const RETRY_ACCEPT: Duration = Duration::from_millis(100);

/// How long connections that the system has already made are accepted at shutdown.
const LAST_CALL: Duration = Duration::from_millis(500);

pub(super) struct Acceptor {
    listener: TcpListener,
    limiter: Arc<ConnectionLimiter>,
    config: Arc<ServerConfig>,
    /// When to stop accepting, once the shutdown has begun.
    last_call: Option<Instant>,
}

impl Acceptor {
    pub(super) fn new(
        listener: TcpListener,
        config: Arc<ServerConfig>,
        limiter: Arc<ConnectionLimiter>,
    ) -> Self {
        Self {
            listener,
            limiter,
            config,
            last_call: None,
        }
    }

    /// The next connection, with its permit. At shutdown those that the system has already made, and then `None`.
    /// `make_room` closes that many others.
    pub(super) async fn next(
        &mut self,
        stop: &CancellationToken,
        make_room: impl Fn(usize),
    ) -> Option<(TcpStream, SocketAddr, ConnectionPermit)> {
        loop {
            if stop.is_cancelled() {
                let last_call = *self.last_call.get_or_insert(Instant::now() + LAST_CALL);
                if Instant::now() > last_call {
                    return None;
                }
            }
            // A connection that the system has already made is ready at once, so it comes before the shutdown.
            let accepted = tokio::select! {
                biased;
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => return None,
            };
            let error = match accepted {
                Ok((socket, peer)) => {
                    self.config.metrics.accepted.inc();
                    self.wait_for_room(&make_room).await;
                    let is_exempt = (self.config.exempt)(peer.ip());
                    match self.limiter.take(peer.ip(), is_exempt) {
                        Ok(permit) => return Some((socket, peer, permit)),
                        Err(reason) => self.config.metrics.refused(reason),
                    }
                    continue;
                }
                Err(error) => error,
            };
            match error.kind() {
                // The client has already disconnected.
                ErrorKind::ConnectionRefused
                | ErrorKind::ConnectionAborted
                | ErrorKind::ConnectionReset => continue,
                _ if descriptors::are_exhausted(&error) => {
                    descriptors::report_exhausted("accepting a connection");
                    make_room(ROOM_FOR_DESCRIPTORS);
                }
                _ => tracing::error!(%error, "failed to accept a connection"),
            }
            tokio::time::sleep(RETRY_ACCEPT).await;
        }
    }

    /// Connections that are closed to make room take a moment to end.
    async fn wait_for_room(&self, make_room: &impl Fn(usize)) {
        let deadline = Instant::now() + ROOM_WAIT;
        loop {
            let surplus = self.limiter.surplus();
            if surplus > 0 {
                make_room(surplus);
            }
            if !self.limiter.is_full() || Instant::now() > deadline {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
