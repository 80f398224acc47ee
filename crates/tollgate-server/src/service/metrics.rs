//! What the service counts. All handles are made once, as looking one up costs more than a decision.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// What was asked.
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

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Allowed,
    Denied,
    /// The store could not be asked, and a rule lets nothing pass then.
    Closed,
    /// The question could not be understood, or the path be read.
    Invalid,
    Unauthorised,
}

const OUTCOMES: [&str; 5] = ["allowed", "denied", "closed", "invalid", "unauthorized"];

impl Outcome {
    /// What a request is to be answered with says what came of it.
    pub(super) fn of_status(status: u16) -> Self {
        match status {
            200..300 => Self::Allowed,
            429 => Self::Denied,
            503 => Self::Closed,
            401 | 403 => Self::Unauthorised,
            _ => Self::Invalid,
        }
    }
}

/// The service's figures for Prometheus.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: [[Counter; OUTCOMES.len()]; ENDPOINTS.len()],
    durations: [Histogram; ENDPOINTS.len()],
    pub(super) ignored_overrides: Counter,
}

impl Metrics {
    /// Figures that this registry shows.
    pub fn new(registry: &mut Registry) -> Self {
        let requests = Family::<[(&'static str, &'static str); 2], Counter>::default();
        let durations =
            Family::<[(&'static str, &'static str); 1], Histogram>::new_with_constructor(
                // From 50 µs on; the last are beyond what Envoy waits.
                || {
                    Histogram::new([
                        50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 20e-3, 50e-3,
                        0.25, 1.0,
                    ])
                },
            );
        let ignored_overrides = Counter::default();
        registry.register(
            "tollgate_service_requests",
            "Decisions asked of the service, by endpoint and outcome",
            requests.clone(),
        );
        registry.register(
            "tollgate_service_request_duration_seconds",
            "How long the service took to answer, waits in queues included",
            durations.clone(),
        );
        registry.register(
            "tollgate_service_ignored_overrides",
            "Limits that descriptors brought and that are not allowed to",
            ignored_overrides.clone(),
        );
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
