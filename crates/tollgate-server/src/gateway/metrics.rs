//! Metrics of requests at the gateway.

use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use tollgate_http::server::{RejectedHead, ServerMetrics};

type Labels = [(&'static str, &'static str); 1];

/// Metrics of the gateway. A clone counts toward the same.
#[derive(Clone, Debug)]
pub(super) struct GatewayMetrics {
    pub(super) server: ServerMetrics,
    /// By the first digit of the status; 0 if the client disconnected before the response.
    statuses: [Counter; 6],
    seconds: Histogram,
    pub(super) lines_lost: Counter,
    malformed_heads: Counter,
    long_heads: Counter,
}

const CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

impl GatewayMetrics {
    /// Metrics that are exported by this registry. Their names begin with `gateway_`.
    pub(super) fn new(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("gateway");
        let requests = Family::<Labels, Counter>::default();
        let statuses = CLASSES.map(|class| requests.get_or_create(&[("status", class)]).clone());
        // From half a millisecond to half a minute.
        let seconds = Histogram::new(exponential_buckets(0.000_5, 2.0, 17));
        let lines_lost = Counter::default();
        let help = "Requests by the class of their status; none: the client disconnected before the response";
        registry.register("requests", help, requests);
        let (help, unit) = (
            "Time from the head of a request to the end of its response",
            Unit::Seconds,
        );
        registry.register_with_unit("request_duration", help, unit, seconds.clone());
        let help = "Lines of the access log that were dropped because the writer could not keep up";
        registry.register("access_log_lines_lost", help, lines_lost.clone());
        let heads = Family::<Labels, Counter>::default();
        let of_heads = |head: RejectedHead| {
            let reason = [("reason", head.name())];
            heads.get_or_create(&reason).clone()
        };
        let malformed_heads = of_heads(RejectedHead::Malformed);
        let long_heads = of_heads(RejectedHead::TooLong);
        let help = "Malformed or too long heads that were rejected, by reason; they are not counted as requests";
        registry.register("heads_refused", help, heads);
        Self {
            server: ServerMetrics::new(registry),
            statuses,
            seconds,
            lines_lost,
            malformed_heads,
            long_heads,
        }
    }

    pub(super) fn rejected_head(&self, head: RejectedHead) {
        match head {
            RejectedHead::Malformed => self.malformed_heads.inc(),
            RejectedHead::TooLong | RejectedHead::TargetTooLong => self.long_heads.inc(),
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
