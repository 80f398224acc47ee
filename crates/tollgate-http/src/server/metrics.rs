//! Metrics of connections.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

type ByReason = Family<[(&'static str, &'static str); 1], Counter>;

/// All reasons, so that each is exported from the beginning.
const REFUSED: &str = "full address";
const CLOSED: &str =
    "malformed handshake control_frames head_timeout idle_timeout send_timeout age shed drain";

/// Metrics of one listener. They are not exported until they are registered.
#[derive(Clone, Debug)]
pub struct ServerMetrics {
    pub(super) open: Gauge,
    pub(super) accepted: Counter,
    refused: ByReason,
    closed: ByReason,
}

impl Default for ServerMetrics {
    fn default() -> Self {
        let all = |reasons: &'static str| {
            let family = ByReason::default();
            for reason in reasons.split(' ') {
                drop(family.get_or_create(&[("reason", reason)]));
            }
            family
        };
        Self {
            open: Gauge::default(),
            accepted: Counter::default(),
            refused: all(REFUSED),
            closed: all(CLOSED),
        }
    }
}

impl ServerMetrics {
    /// Metrics that are exported by this registry.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.register(registry);
        metrics
    }

    /// Exports them by this registry.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Open connections";
        registry.register("connections_open", help, self.open.clone());
        let help = "Accepted connections";
        registry.register("connections_accepted", help, self.accepted.clone());
        let help = "Connections closed at once because of a maximum, of all or of their address";
        registry.register("connections_refused", help, self.refused.clone());
        let help = "Connections closed for what they sent, for being slow, or to make room";
        registry.register("connections_closed_early", help, self.closed.clone());
    }

    /// Counts a connection that was closed at once.
    pub(super) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts a connection that the server closes.
    pub(super) fn closed(&self, reason: &'static str) {
        self.closed.get_or_create(&[("reason", reason)]).inc();
    }
}
