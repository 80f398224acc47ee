//! Idle connections to one server. Each worker has pools of its own, so that a connection stays with the thread that made it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::client::conn::http2;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use super::connect::{ConnectError, Connected, connect};
use super::connection::UpstreamConnection;
use super::upstream::Server;
use crate::body::LimitedBody;
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
