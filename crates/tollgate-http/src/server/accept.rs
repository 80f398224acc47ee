//! Accepting connections as far as there is room for them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::connection_limits::{ConnectionLimits, ConnectionPermit, Full};
use super::{ExemptAddresses, ServerConfig, ServerMetrics};
use crate::descriptors;

/// Accepts connections.
#[derive(Debug)]
pub(super) struct Acceptor {
    listener: TcpListener,
    limits: Arc<ConnectionLimits>,
    exempt: ExemptAddresses,
    metrics: ServerMetrics,
    /// When to stop accepting, once the shutdown has begun.
    last_call: Option<Instant>,
}

/// How long a new connection waits for others to make room. If none does, all have requests in flight.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// How many connections without a request are closed if there is no file descriptor for a new one.
const ROOM_FOR_DESCRIPTORS: usize = 16;

/// Pause after the system could not accept a connection.
const RETRY_ACCEPT: Duration = Duration::from_millis(100);

/// How long connections that the system has already made are accepted at shutdown.
const LAST_CALL: Duration = Duration::from_millis(500);

impl Acceptor {
    pub(super) fn new(
        listener: TcpListener,
        config: &ServerConfig,
        limits: Arc<ConnectionLimits>,
    ) -> Self {
        Self {
            listener,
            limits,
            exempt: config.exempt.clone(),
            metrics: config.metrics.clone(),
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
            match accepted {
                Ok((socket, peer)) => {
                    self.metrics.accepted.inc();
                    self.wait_for_room(&make_room).await;
                    match self.limits.take(peer.ip(), self.exempt.contains(peer.ip())) {
                        Ok(permit) => return Some((socket, peer, permit)),
                        Err(Full::All) => _ = self.metrics.full.inc(),
                        Err(Full::Address) => _ = self.metrics.address_full.inc(),
                    }
                }
                // The client's own fault, or it has left already.
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) if descriptors::are_exhausted(&error) => {
                    descriptors::report_exhausted("accepting a connection");
                    make_room(ROOM_FOR_DESCRIPTORS);
                    tokio::time::sleep(RETRY_ACCEPT).await;
                }
                Err(error) => {
                    tracing::error!(%error, "failed to accept a connection");
                    tokio::time::sleep(RETRY_ACCEPT).await;
                }
            }
        }
    }

    /// Connections that are closed to make room take a moment to go.
    async fn wait_for_room(&self, make_room: &impl Fn(usize)) {
        let deadline = Instant::now() + ROOM_WAIT;
        loop {
            let surplus = self.limits.surplus();
            if surplus > 0 {
                make_room(surplus);
            }
            if !self.limits.is_full() || Instant::now() > deadline {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}
