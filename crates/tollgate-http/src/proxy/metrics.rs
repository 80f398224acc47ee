//! What is counted of the requests that are forwarded. Handles are made once: to look one up costs more than to count.

use std::time::Duration;

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::failure::Failure;

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// From half a millisecond to half a minute.
const BUCKETS: [f64; 12] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0,
];

#[derive(Clone, Debug, EncodeLabelSet, Hash, PartialEq, Eq)]
struct OfUpstream {
    upstream: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Hash, PartialEq, Eq)]
struct OfStatus {
    upstream: String,
    status: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Hash, PartialEq, Eq)]
struct OfReason {
    upstream: String,
    reason: &'static str,
}

/// The metrics of all upstreams, in a registry.
#[derive(Clone, Debug)]
pub struct ProxyMetrics {
    requests: Family<OfStatus, Counter>,
    failures: Family<OfReason, Counter>,
    retries: Family<OfUpstream, Counter>,
    latency: Family<OfUpstream, Histogram, fn() -> Histogram>,
    connections: Family<OfUpstream, Gauge>,
    healthy: Family<OfUpstream, Gauge>,
    tunnels: Gauge,
    tunnels_idle: Counter,
}

impl ProxyMetrics {
    /// Registers them. An upstream is named by its path, so there are as many as are configured.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            failures: Family::default(),
            retries: Family::default(),
            latency: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            connections: Family::default(),
            healthy: Family::default(),
            tunnels: Gauge::default(),
            tunnels_idle: Counter::default(),
        };
        registry.register(
            "tollgate_upstream_requests",
            "Requests that were forwarded, or were to be, by the class of the status that the caller got",
            metrics.requests.clone(),
        );
        registry.register(
            "tollgate_upstream_failures",
            "Requests that no server answered, or not to the end, by the reason",
            metrics.failures.clone(),
        );
        registry.register(
            "tollgate_upstream_retries",
            "Requests that were sent again, as they had not reached a server",
            metrics.retries.clone(),
        );
        registry.register_with_unit(
            "tollgate_upstream_response",
            "Time from a request to the head of its response",
            Unit::Seconds,
            metrics.latency.clone(),
        );
        registry.register(
            "tollgate_upstream_connections",
            "Open connections to servers, idle ones included",
            metrics.connections.clone(),
        );
        registry.register(
            "tollgate_upstream_servers_healthy",
            "Servers that get requests: neither set aside nor failing their checks",
            metrics.healthy.clone(),
        );
        registry.register(
            "tollgate_upstream_tunnels",
            "Connections that were upgraded (WebSocket) and are open",
            metrics.tunnels.clone(),
        );
        registry.register(
            "tollgate_upstream_tunnels_idle",
            "Connections that were upgraded and ended by us, as neither side had said anything for long",
            metrics.tunnels_idle.clone(),
        );
        metrics
    }

    pub(super) fn tunnels(&self) -> Gauge {
        self.tunnels.clone()
    }

    pub(super) fn tunnels_idle(&self) -> Counter {
        self.tunnels_idle.clone()
    }

    pub(super) fn of(&self, path: &str) -> UpstreamMetrics {
        let upstream = path.to_owned();
        let of_upstream = OfUpstream {
            upstream: upstream.clone(),
        };
        let of_status = |status| {
            let upstream = upstream.clone();
            self.requests
                .get_or_create_owned(&OfStatus { upstream, status })
        };
        let of_reason = |reason| {
            let upstream = upstream.clone();
            self.failures
                .get_or_create_owned(&OfReason { upstream, reason })
        };
        UpstreamMetrics {
            requests: CLASSES.map(of_status),
            failures: Failure::NAMED.map(|(_, reason)| of_reason(reason)),
            cut: of_reason("response_cut"),
            retries: self.retries.get_or_create_owned(&of_upstream),
            latency: self.latency.get_or_create_owned(&of_upstream),
            connections: self.connections.get_or_create_owned(&of_upstream),
            healthy: self.healthy.get_or_create_owned(&of_upstream),
        }
    }
}

/// Those of one upstream.
#[derive(Debug)]
pub(super) struct UpstreamMetrics {
    requests: [Counter; CLASSES.len()],
    failures: [Counter; Failure::NAMED.len()],
    /// Responses that ended before they were complete.
    pub(super) cut: Counter,
    pub(super) retries: Counter,
    latency: Histogram,
    pub(super) connections: Gauge,
    pub(super) healthy: Gauge,
}

impl UpstreamMetrics {
    pub(super) fn answered(&self, status: StatusCode, took: Duration) {
        self.count(status);
        self.latency.observe(took.as_secs_f64());
    }

    pub(super) fn failed(&self, failure: Failure) {
        self.count(failure.status());
        let nth = Failure::NAMED.iter().position(|(one, _)| *one == failure);
        if let Some(counter) = nth.and_then(|nth| self.failures.get(nth)) {
            counter.inc();
        }
    }

    fn count(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(counter) = self.requests.get(class) {
            counter.inc();
        }
    }
}
