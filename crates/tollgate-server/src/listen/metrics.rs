//! What is counted of connections.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

type Labels = [(&'static str, &'static str); 1];

/// The figures of one door. By default nobody reads them.
#[derive(Clone, Debug)]
pub struct ListenMetrics {
    refused: Family<Labels, Counter>,
    closed: Family<Labels, Counter>,
    pub(crate) open: Gauge,
    pub(crate) accepted: Counter,
    pub(crate) full: Counter,
    pub(crate) address_full: Counter,
    pub(crate) malformed: Counter,
    pub(crate) handshake: Counter,
    pub(crate) control_frames: Counter,
    pub(crate) head_timeout: Counter,
    pub(crate) idle_timeout: Counter,
    pub(crate) send_timeout: Counter,
    pub(crate) age: Counter,
    pub(crate) shed: Counter,
    pub(crate) drain: Counter,
}

impl Default for ListenMetrics {
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

impl ListenMetrics {
    /// Figures that are read with the others of this registry.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.register(registry);
        metrics
    }

    /// Has them read with the others of this registry.
    pub(crate) fn register(&self, registry: &mut Registry) {
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
            "Connections that were closed as soon as they were accepted, as there was no room: in all, or for their address",
            self.refused.clone(),
        );
        registry.register(
            "connections_closed_early",
            "Connections that we closed: for what they said, or as they took too long, or to make room for others",
            self.closed.clone(),
        );
    }
}
