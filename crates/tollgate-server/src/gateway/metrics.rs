//! What is counted of requests at the gateway.

use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::listen::{ListenMetrics, RefusedHead};

type Labels = [(&'static str, &'static str); 1];

/// The figures of the gateway's front. A clone counts for the same.
#[derive(Clone, Debug)]
pub struct GatewayMetrics {
    pub(crate) listen: ListenMetrics,
    /// By the first digit of the status; 0 for those whose callers left before there was one.
    statuses: [Counter; 6],
    seconds: Histogram,
    pub(crate) lines_lost: Counter,
    malformed_heads: Counter,
    long_heads: Counter,
}

const CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

impl GatewayMetrics {
    /// Figures that are read with the others of this registry, each of them beginning with `gateway_`.
    pub fn new(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("gateway");
        let requests = Family::<Labels, Counter>::default();
        let statuses = CLASSES.map(|class| requests.get_or_create(&[("status", class)]).clone());
        // From half a millisecond to half a minute.
        let seconds = Histogram::new(exponential_buckets(0.000_5, 2.0, 17));
        let lines_lost = Counter::default();
        registry.register(
            "requests",
            "Requests that were answered, by the class of the status; none: the caller left before",
            requests,
        );
        registry.register_with_unit(
            "request_duration",
            "From the head of a request to the end of its answer",
            Unit::Seconds,
            seconds.clone(),
        );
        registry.register(
            "access_log_lines_lost",
            "Lines of the access log that were not written, as the writer could not keep up",
            lines_lost.clone(),
        );
        let heads = Family::<Labels, Counter>::default();
        let of_heads = |head: RefusedHead| {
            let reason = [("reason", head.name())];
            heads.get_or_create(&reason).clone()
        };
        let malformed_heads = of_heads(RefusedHead::Malformed);
        let long_heads = of_heads(RefusedHead::TooLong);
        registry.register(
            "heads_refused",
            "Heads that were refused before they were a request, by the reason; they are not among the requests",
            heads,
        );
        Self {
            listen: ListenMetrics::new(registry),
            statuses,
            seconds,
            lines_lost,
            malformed_heads,
            long_heads,
        }
    }

    pub(super) fn refused_head(&self, head: RefusedHead) {
        match head {
            RefusedHead::Malformed => self.malformed_heads.inc(),
            RefusedHead::TooLong | RefusedHead::TargetTooLong => self.long_heads.inc(),
        };
    }

    pub(super) fn count(&self, status: Option<StatusCode>, seconds: f64) {
        let class = status.map_or(0, |status| usize::from(status.as_u16() / 100));
        if let Some(counter) = self.statuses.get(class) {
            counter.inc();
        }
        self.seconds.observe(seconds);
    }
}
