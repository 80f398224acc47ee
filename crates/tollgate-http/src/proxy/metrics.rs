//! Metrics of forwarded requests. Handles are made once: looking one up costs more than counting.

use std::time::Duration;

use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::error::ForwardError;

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

const BUCKETS: [f64; 12] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0,
];

type Labels<const N: usize> = [(&'static str, String); N];

/// The metrics of all upstreams, in a registry.
#[derive(Clone, Debug)]
pub struct ProxyMetrics {
    requests: Family<Labels<2>, Counter>,
    failures: Family<Labels<2>, Counter>,
    retries: Family<Labels<1>, Counter>,
    latency: Family<Labels<1>, Histogram, fn() -> Histogram>,
    connections: Family<Labels<1>, Gauge>,
    healthy: Family<Labels<1>, Gauge>,
    pub(super) tunnels: Gauge,
    pub(super) idle_tunnels: Counter,
}

impl ProxyMetrics {
    /// Registers them. An upstream is named by its path, so there are as many as are configured.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("tollgate_upstream");
        let latency: Family<_, _, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(BUCKETS));
        let help = "Time from a request to the head of its response";
        registry.register_with_unit("response", help, Unit::Seconds, latency.clone());
        Self {
            requests: add(registry, "requests", "Requests by class of response status"),
            failures: add(registry, "failures", "Requests without a whole response"),
            retries: add(registry, "retries", "Requests that were sent again"),
            latency,
            connections: add(registry, "connections", "Open connections, busy or idle"),
            healthy: add(registry, "servers_healthy", "Servers that get requests"),
            tunnels: add(registry, "tunnels", "Open WebSockets"),
            idle_tunnels: add(registry, "tunnels_idle", "WebSockets closed when silent"),
        }
    }

    pub(super) fn of(&self, path: &str) -> UpstreamMetrics {
        let upstream = [("upstream", path.to_owned())];
        let with = |name, value: &str| {
            let [upstream] = upstream.clone();
            [upstream, (name, value.to_owned())]
        };
        let of_reason = |reason| self.failures.get_or_create_owned(&with("reason", reason));
        let of_class = |class| self.requests.get_or_create_owned(&with("status", class));
        UpstreamMetrics {
            requests: CLASSES.map(of_class),
            failures: ForwardError::LABELS.map(|(error, label)| (error, of_reason(label))),
            cut: of_reason("response_cut"),
            retries: self.retries.get_or_create_owned(&upstream),
            latency: self.latency.get_or_create_owned(&upstream),
            connections: self.connections.get_or_create_owned(&upstream),
            healthy: self.healthy.get_or_create_owned(&upstream),
        }
    }
}

fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

pub(super) struct UpstreamMetrics {
    requests: [Counter; CLASSES.len()],
    failures: [(ForwardError, Counter); ForwardError::LABELS.len()],
    /// Responses that ended before they were complete.
    pub(super) cut: Counter,
    pub(super) retries: Counter,
    latency: Histogram,
    pub(super) connections: Gauge,
    pub(super) healthy: Gauge,
}

impl UpstreamMetrics {
    /// Counts a response with this status, or why there is none.
    pub(super) fn count(&self, result: Result<StatusCode, ForwardError>, took: Duration) {
        let status = match result {
            Ok(status) => {
                self.latency.observe(took.as_secs_f64());
                status
            }
            Err(error) => {
                let counted = self.failures.iter().find(|(other, _)| *other == error);
                counted.inspect(|(_, counter)| _ = counter.inc());
                error.status()
            }
        };
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(counter) = self.requests.get(class) {
            counter.inc();
        }
    }
}
