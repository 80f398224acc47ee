//! One server behind a path: where it is, how it does, and how much it has to do. All threads share it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderValue;
use http::uri::{Authority, Scheme};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::sync::Notify;

use super::ProxyError;
use super::health::Health;
use crate::config::{Protocol, Upstream};
use crate::patience::timeout;

pub(super) struct Server {
    /// As it was configured, for the log.
    pub(super) name: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) scheme: Scheme,
    pub(super) authority: HeaderValue,
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    pub(super) upstream: Arc<Upstream>,
    pub(super) health: Health,
    under_way: AtomicUsize,
    waiting: AtomicUsize,
    freed: Notify,
}

impl Server {
    pub(super) fn new(
        name: &str,
        upstream: &Arc<Upstream>,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Self, ProxyError> {
        let wrong = || ProxyError::Address(name.to_owned());
        let (scheme, authority) = name.split_once("://").ok_or_else(wrong)?;
        let parsed: Authority = authority.parse().map_err(|_| wrong())?;
        let host = parsed.host().trim_matches(['[', ']']).to_owned();
        let is_tls = scheme == "https";
        let tls = match (is_tls, tls) {
            (true, Some(config)) => {
                let name = ServerName::try_from(host.clone()).map_err(|_| wrong())?;
                Some((Arc::clone(config), name))
            }
            _ => None,
        };
        Ok(Self {
            name: name.to_owned(),
            port: parsed.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            host,
            scheme: if is_tls { Scheme::HTTPS } else { Scheme::HTTP },
            authority: HeaderValue::from_str(authority).map_err(|_| wrong())?,
            tls,
            health: Health::new(upstream),
            upstream: Arc::clone(upstream),
            under_way: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
        })
    }

    pub(super) fn wants_http2(&self) -> bool {
        self.upstream.protocol == Protocol::Http2
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// A place for one more request, at once.
    pub(super) fn enter_now(self: &Arc<Self>) -> Option<Place> {
        let most = self.upstream.max_connections;
        let one_more = |count| (count < most).then_some(count + 1);
        self.under_way
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more)
            .is_ok()
            .then(|| Place(Arc::clone(self)))
    }

    /// A place, as soon as there is one; `None` if that takes too long.
    pub(super) async fn enter(self: &Arc<Self>, within: Duration) -> Option<Place> {
        if let Some(place) = self.enter_now() {
            return Some(place);
        }
        let _waiting = Waiting::at(self);
        let entered = async {
            loop {
                let mut freed = pin!(self.freed.notified());
                // From here on no word is missed, also if several wait.
                freed.as_mut().enable();
                if let Some(place) = self.enter_now() {
                    return place;
                }
                freed.await;
            }
        };
        timeout(within, entered).await
    }
}

/// A request under way at a server, until it is dropped.
pub(super) struct Place(Arc<Server>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
        if self.0.waiting.load(Ordering::SeqCst) > 0 {
            self.0.freed.notify_one();
        }
    }
}

/// Somebody who waits for a place.
struct Waiting<'a>(&'a Server);

impl<'a> Waiting<'a> {
    fn at(server: &'a Server) -> Self {
        server.waiting.fetch_add(1, Ordering::SeqCst);
        Self(server)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
