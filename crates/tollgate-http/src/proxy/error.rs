//! Why there is no proxy, or no response from an upstream. The response names no server; the log has the details.
//! And the metrics of both, responses and failures. Handles are made once: looking one up costs more than counting.

use std::time::Duration;

use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::tls::TlsError;

/// Why there can be no proxy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// This is not the address of a server.
    #[error("{0:?} is not the address of a server; expected http://host:port")]
    Address(String),
    /// Certificates that cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Why a request got no response from an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForwardError {
    /// No upstream serves the path.
    NoUpstream,
    /// `CONNECT` is not forwarded.
    Connect,
    /// The host is malformed.
    BadHost,
    /// All servers fail their checks.
    NoneHealthy,
    /// All slots of the servers are in use.
    Busy,
    /// This process has no file descriptors left.
    NoDescriptors,
    /// No connection could be made.
    Unreachable,
    /// No connection could be made in time.
    ConnectTimeout,
    /// The server has no certificate that can be verified.
    Tls,
    /// The connection ended before a response came.
    Closed,
    /// The response is not HTTP.
    Garbled,
    /// The head of the response has too many headers or bytes.
    LongHead,
    /// No response came in time.
    ResponseTimeout,
    /// The client stopped sending the request body.
    ClientBodySlow,
    /// The request body is malformed.
    ClientBody,
    /// The request body is too large.
    ClientBodyTooLarge,
}

impl ForwardError {
    /// Those that can happen once an upstream is found, by their labels in metrics and logs.
    pub(super) const LABELS: [(Self, &'static str); 14] = [
        (Self::BadHost, "bad_host"),
        (Self::NoneHealthy, "none_healthy"),
        (Self::Busy, "busy"),
        (Self::NoDescriptors, "no_descriptors"),
        (Self::Unreachable, "unreachable"),
        (Self::ConnectTimeout, "connect_timeout"),
        (Self::Tls, "tls"),
        (Self::Closed, "closed"),
        (Self::Garbled, "garbled"),
        (Self::LongHead, "long_head"),
        (Self::ResponseTimeout, "response_timeout"),
        (Self::ClientBodySlow, "caller_slow"),
        (Self::ClientBody, "caller_body"),
        (Self::ClientBodyTooLarge, "caller_body_too_large"),
    ];

    pub(super) fn label(self) -> &'static str {
        let label = Self::LABELS.iter().find(|(error, _)| *error == self);
        label.map_or("", |(_, label)| label)
    }

    /// The status to respond with.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::NoUpstream => StatusCode::NOT_FOUND,
            Self::Connect => StatusCode::NOT_IMPLEMENTED,
            Self::NoneHealthy | Self::Busy | Self::NoDescriptors => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unreachable | Self::Tls | Self::Closed | Self::Garbled | Self::LongHead => {
                StatusCode::BAD_GATEWAY
            }
            Self::ConnectTimeout | Self::ResponseTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::ClientBodySlow => StatusCode::REQUEST_TIMEOUT,
            Self::BadHost | Self::ClientBody => StatusCode::BAD_REQUEST,
            Self::ClientBodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        }
    }

    /// Whether it counts as a failure of the server.
    pub(super) fn is_of_server(self) -> bool {
        let is_bad_or_late = matches!(self.status().as_u16(), 502 | 504);
        is_bad_or_late && self != Self::LongHead
    }

    /// The detail of the response.
    #[must_use]
    pub fn detail(self) -> &'static str {
        match self {
            Self::NoUpstream => "nothing is served at this path",
            Self::Connect => "CONNECT is not forwarded",
            Self::BadHost => "the request has no valid host",
            Self::NoneHealthy => "no server for this path is healthy",
            Self::Busy => "all servers for this path have reached their maximum of requests",
            Self::NoDescriptors => "the gateway has too many connections",
            Self::Unreachable => "the server for this path could not be reached",
            Self::ConnectTimeout => "the server for this path could not be reached in time",
            Self::Tls => "no trusted connection to the server for this path could be made",
            Self::Closed => "the server for this path closed the connection without a response",
            Self::Garbled => "the response of the server for this path is not HTTP",
            Self::LongHead => "the response has more than 256 headers, or too many bytes of them",
            Self::ResponseTimeout => "the server for this path did not respond in time",
            Self::ClientBodySlow => "the request body did not arrive in time",
            Self::ClientBody => "the request body could not be read",
            Self::ClientBodyTooLarge => "the request body is too large",
        }
    }
}

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
