//! Metrics of connections.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

type Labels = [(&'static str, &'static str); 1];

/// Metrics of one listener. By default they are not exported.
#[derive(Clone, Debug)]
pub struct ServerMetrics {
    refused: Family<Labels, Counter>,
    closed: Family<Labels, Counter>,
    pub(super) open: Gauge,
    pub(super) accepted: Counter,
    pub(super) full: Counter,
    pub(super) address_full: Counter,
    pub(super) malformed: Counter,
    pub(super) handshake: Counter,
    pub(super) control_frames: Counter,
    pub(super) head_timeout: Counter,
    pub(super) idle_timeout: Counter,
    pub(super) send_timeout: Counter,
    pub(super) age: Counter,
    pub(super) shed: Counter,
    pub(super) drain: Counter,
}

impl Default for ServerMetrics {
    fn default() -> Self {
        let refused = Family::<Labels, Counter>::default();
        let closed = Family::<Labels, Counter>::default();
        let of = |family: &Family<Labels, Counter>, reason| {
            family.get_or_create(&[("reason", reason)]).clone()
        };
        Self {
            open: Gauge::default(),
            accepted: Counter::default(),
            full: of(&refused, "full"),
            address_full: of(&refused, "address"),
            malformed: of(&closed, "malformed"),
            handshake: of(&closed, "handshake"),
            control_frames: of(&closed, "control_frames"),
            head_timeout: of(&closed, "head_timeout"),
            idle_timeout: of(&closed, "idle_timeout"),
            send_timeout: of(&closed, "send_timeout"),
            age: of(&closed, "age"),
            shed: of(&closed, "shed"),
            drain: of(&closed, "drain"),
            refused,
            closed,
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
        registry.register(
            "connections_open",
            "Connections that are open",
            self.open.clone(),
        );
        registry.register(
            "connections_accepted",
            "Connections that were accepted",
            self.accepted.clone(),
        );
        registry.register(
            "connections_refused",
            "Connections that were closed at once because a maximum was reached, in all or of their address",
            self.refused.clone(),
        );
        registry.register(
            "connections_closed_early",
            "Connections that the server closed: because of what they sent, because they took too long, or to make room",
            self.closed.clone(),
        );
    }
}
