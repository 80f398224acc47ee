//! Metrics of the service. All handles are made once, because looking one up costs more than a decision.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Clone, Copy, Debug)]
pub(super) enum Endpoint {
    Check,
    Explain,
    Inspect,
    Reset,
    ForwardAuth,
    AuthRequest,
    Rls,
}

const ENDPOINTS: [&str; 7] = [
    "check",
    "explain",
    "inspect",
    "reset",
    "forward_auth",
    "auth_request",
    "rls",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Allowed,
    Denied,
    /// The store was unavailable, and a rule denies everything then.
    Closed,
    /// The call was malformed, or the request it is about.
    Invalid,
    Unauthorized,
}

const OUTCOMES: [&str; 5] = ["allowed", "denied", "closed", "invalid", "unauthorized"];

impl Outcome {
    /// The outcome with this status of the response, or of the request that it is about.
    pub(super) fn of_status(status: u16) -> Self {
        match status {
            200..300 => Self::Allowed,
            429 => Self::Denied,
            503 => Self::Closed,
            401 | 403 => Self::Unauthorized,
            _ => Self::Invalid,
        }
    }
}

/// The metrics of the service. Clones count toward the same.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: [[Counter; OUTCOMES.len()]; ENDPOINTS.len()],
    durations: [Histogram; ENDPOINTS.len()],
    pub(super) ignored_overrides: Counter,
}

impl Metrics {
    /// Registers the metrics.
    pub fn new(registry: &mut Registry) -> Self {
        let requests = Family::<[(&'static str, &'static str); 2], Counter>::default();
        let durations =
            Family::<[(&'static str, &'static str); 1], Histogram>::new_with_constructor(
                // From 50 µs; the last are beyond Envoy's timeout.
                || {
                    Histogram::new([
                        50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 20e-3, 50e-3,
                        0.25, 1.0,
                    ])
                },
            );
        let ignored_overrides = Counter::default();
        let help = "Calls of the service, by endpoint and outcome";
        registry.register("tollgate_service_requests", help, requests.clone());
        let name = "tollgate_service_request_duration_seconds";
        let help = "Duration of calls of the service, including waits in queues";
        registry.register(name, help, durations.clone());
        let help = "Limits of descriptors that were ignored";
        let name = "tollgate_service_ignored_overrides";
        registry.register(name, help, ignored_overrides.clone());
        let counters = |endpoint| {
            OUTCOMES.map(|outcome| {
                let labels = [("endpoint", endpoint), ("outcome", outcome)];
                requests.get_or_create_owned(&labels)
            })
        };
        Self {
            requests: ENDPOINTS.map(counters),
            durations: ENDPOINTS
                .map(|endpoint| durations.get_or_create_owned(&[("endpoint", endpoint)])),
            ignored_overrides,
        }
    }

    pub(super) fn count(&self, endpoint: Endpoint, outcome: Outcome) {
        self.requests[endpoint as usize][outcome as usize].inc();
    }

    pub(super) fn took(&self, endpoint: Endpoint, time: Duration) {
        self.durations[endpoint as usize].observe(time.as_secs_f64());
    }
}
