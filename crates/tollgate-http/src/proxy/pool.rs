//! Connections to one server that wait for their next request. Each thread that serves has pools of its own, so that a connection
//! stays with the thread that made it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::client::conn::http2;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use super::connect::{Connected, Unconnected, connect};
use super::connection::Connection;
use super::request_body::RequestBody;
use super::server::Server;
use crate::patience::timeout;

/// How often idle connections are looked at, at the least.
const SWEEP: Duration = Duration::from_secs(5);

pub(super) struct Pool {
    pub(super) server: Arc<Server>,
    /// The one that was used last is at the back.
    idle: Mutex<VecDeque<Box<Connection>>>,
    /// The one connection of HTTP/2. Who makes it makes it for all.
    shared: tokio::sync::Mutex<Option<http2::SendRequest<RequestBody>>>,
    open: Gauge,
    is_swept: AtomicBool,
}

impl Pool {
    pub(super) fn new(server: Arc<Server>, open: Gauge) -> Self {
        Self {
            server,
            idle: Mutex::default(),
            shared: tokio::sync::Mutex::default(),
            open,
            is_swept: AtomicBool::new(false),
        }
    }

    /// An idle connection, if there is one that is still good.
    pub(super) fn take(&self, now: Instant) -> Option<Box<Connection>> {
        loop {
            let mut connection = self.idle.lock().pop_back()?;
            if !self.is_stale(&connection, now) && connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose response has ended, if it is good for another.
    pub(super) fn put(&self, mut connection: Box<Connection>, now: Instant) {
        if !connection.rest() {
            return;
        }
        connection.idle_since = now;
        let mut idle = self.idle.lock();
        idle.push_back(connection);
        let surplus = match idle.len() > self.server.config.keepalive {
            true => idle.pop_front(),
            false => None,
        };
        drop(idle);
        // It is closed outside the lock.
        drop(surplus);
    }

    /// The connection of HTTP/2 that is there.
    pub(super) fn shared(&self) -> Option<http2::SendRequest<RequestBody>> {
        let shared = self.shared.try_lock().ok()?;
        shared
            .as_ref()
            .filter(|sender| !sender.is_closed())
            .cloned()
    }

    /// A new connection, or one of HTTP/2 that somebody else has just made.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<Connected, Unconnected> {
        let within = self.server.config.connect_timeout;
        let made = match self.server.wants_http2() {
            false => timeout(within, connect(&self.server, &self.open)).await,
            true => timeout(within, self.connect_shared()).await,
        };
        self.sweep_from_now_on();
        made.unwrap_or(Err(Unconnected::TimedOut))
    }

    async fn connect_shared(&self) -> Result<Connected, Unconnected> {
        let mut shared = self.shared.lock().await;
        if let Some(sender) = shared.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(Connected::Two(sender.clone()));
        }
        let made = connect(&self.server, &self.open).await?;
        if let Connected::Two(sender) = &made {
            *shared = Some(sender.clone());
        }
        Ok(made)
    }

    fn is_stale(&self, connection: &Connection, now: Instant) -> bool {
        now.saturating_duration_since(connection.idle_since) >= self.server.config.keepalive_timeout
    }

    /// Nobody moves on what is idle; so what its server has closed, or what was idle for too long, is looked for now and then.
    fn sweep_from_now_on(self: &Arc<Self>) {
        if self.is_swept.swap(true, Ordering::Relaxed) {
            return;
        }
        let every = SWEEP.min(self.server.config.keepalive_timeout);
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                let Some(pool) = pool.upgrade() else { return };
                pool.sweep();
            }
        });
    }

    fn sweep(&self) {
        let now = Instant::now();
        let mut idle = std::mem::take(&mut *self.idle.lock());
        idle.retain_mut(|connection| !self.is_stale(connection, now) && connection.is_usable());
        // Those that came meanwhile were used last.
        let mut held = self.idle.lock();
        idle.append(&mut held);
        *held = idle;
    }
}
