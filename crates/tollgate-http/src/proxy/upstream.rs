//! The servers behind one path, and which of them gets the next request.
//!
//! Of two that are picked at random, the one with fewer requests under way. Those that are set aside, or fail their checks, are left
//! out. If all are set aside, the one whose time is over first is asked all the same, as it may well be back; if all fail
//! their checks, none is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::time::Instant;

use super::ProxyError;
use super::config::{Protocol, UpstreamConfig};
use super::health::Verdict;
use super::metrics::{ProxyMetrics, UpstreamMetrics};
use super::server::Server;
use crate::tls::client_config;

pub(super) struct Upstream {
    pub(super) config: Arc<UpstreamConfig>,
    pub(super) servers: Vec<Arc<Server>>,
    pub(super) metrics: UpstreamMetrics,
    /// How many are not well. Mostly none, and then nobody has to look at each.
    unwell: AtomicUsize,
    turn: AtomicU64,
}

impl Upstream {
    pub(super) fn new(
        config: &UpstreamConfig,
        metrics: &ProxyMetrics,
        fast_path: bool,
    ) -> Result<Self, ProxyError> {
        let config = Arc::new(config.clone());
        let wants_tls = config
            .to
            .iter()
            .any(|server| server.starts_with("https://"));
        let tls = match wants_tls {
            true => Some(client_config(
                config.ca.as_deref(),
                config.protocol == Protocol::Http2,
            )?),
            false => None,
        };
        let mut servers = Vec::new();
        for name in &config.to {
            servers.push(Arc::new(Server::new(
                name,
                &config,
                tls.as_ref(),
                fast_path,
            )?));
        }
        let upstream = Self {
            metrics: metrics.of(&config.path),
            config,
            servers,
            unwell: AtomicUsize::new(0),
            turn: AtomicU64::new(0),
        };
        upstream.count_unwell();
        Ok(upstream)
    }

    /// Whether a server shares its slots out by client now.
    pub(super) fn is_contended(&self) -> bool {
        self.servers.iter().any(|server| server.slots.are_scarce())
    }

    /// The place in the list of the server to ask, but for those that were tried already.
    pub(super) fn choose(&self, tried: u64) -> Option<usize> {
        if tried == 0 && self.unwell.load(Ordering::Relaxed) == 0 {
            return self.less_busy(self.servers.len(), |nth| nth);
        }
        self.choose_with_care(tried, Instant::now())
    }

    fn choose_with_care(&self, tried: u64, now: Instant) -> Option<usize> {
        let most = self.config.failures;
        let candidates: Vec<usize> = (self.servers.iter().enumerate())
            .filter(|(nth, server)| tried & (1 << nth) == 0 && server.health.passes_checks(most))
            .map(|(nth, _)| nth)
            .collect();
        let of = |nth: usize| self.servers.get(nth);
        let is_to_be_tried =
            |nth: &&usize| of(**nth).is_some_and(|server| server.health.is_to_be_tried(now));
        if let Some(nth) = candidates.iter().find(is_to_be_tried) {
            return Some(*nth);
        }
        let aside = |nth: usize| of(nth).and_then(|server| server.health.aside_until());
        let (well, set_aside): (Vec<usize>, Vec<usize>) =
            candidates.iter().partition(|nth| aside(**nth).is_none());
        let well = self.less_busy(well.len(), |nth| well.get(nth).copied().unwrap_or(0));
        well.or_else(|| set_aside.into_iter().min_by_key(|nth| aside(*nth)))
    }

    /// Of two among so many, the one with less to do.
    fn less_busy(&self, count: usize, at: impl Fn(usize) -> usize) -> Option<usize> {
        match count {
            0 => None,
            1 => Some(at(0)),
            _ => {
                let (one, other) = self.two_of(count);
                let busy = |nth: usize| self.servers.get(nth).map(|server| server.slots.in_use());
                let (one, other) = (at(one), at(other));
                Some(if busy(other) < busy(one) { other } else { one })
            }
        }
    }

    /// Two different numbers below `count`, which is 2 or more.
    fn two_of(&self, count: usize) -> (usize, usize) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        // A Weyl sequence and two rounds of mixing: random enough to spread.
        let mixed = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = mixed ^ (mixed >> 32);
        let below = |bits: u64, end: usize| {
            let end = u64::try_from(end).unwrap_or(u64::MAX);
            usize::try_from(bits.checked_rem(end).unwrap_or(0)).unwrap_or(0)
        };
        let one = below(mixed >> 32, count);
        let step = 1 + below(mixed & 0xffff_ffff, count - 1);
        (one, (one + step) % count)
    }

    /// A server did not answer, or said that it cannot.
    pub(super) fn failed(&self, server: &Server, failure: &str, error: &str) {
        let verdict = server.health.failed(Instant::now());
        let (upstream, name) = (&*self.config.path, &*server.name);
        match verdict {
            Verdict::Doubted => {
                tracing::warn!(upstream, server = name, failure, error, "a server failed");
            }
            Verdict::SetAside(time) => {
                let time = time.as_secs_f64();
                tracing::warn!(
                    upstream,
                    server = name,
                    failure,
                    error,
                    seconds = time,
                    "a server is set aside"
                );
                self.count_unwell();
            }
            Verdict::AsBefore => {
                tracing::debug!(upstream, server = name, failure, error, "a server failed");
            }
        }
    }

    pub(super) fn succeeded(&self, server: &Server) {
        let Some(is_news) = server.health.succeeded() else {
            return;
        };
        self.count_unwell();
        if is_news {
            let (upstream, name) = (&*self.config.path, &*server.name);
            tracing::info!(upstream, server = name, "a server answers again");
        }
    }

    pub(super) fn count_unwell(&self) {
        let most = self.config.failures;
        let is_unwell = |server: &&Arc<Server>| {
            server.health.aside_until().is_some() || !server.health.passes_checks(most)
        };
        let unwell = self.servers.iter().filter(is_unwell).count();
        self.unwell.store(unwell, Ordering::Relaxed);
        let well = self.servers.len() - unwell;
        self.metrics
            .healthy
            .set(i64::try_from(well).unwrap_or(i64::MAX));
    }
}
