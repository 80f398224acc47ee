//! Metrics in the formats of Prometheus and OpenMetrics.
//!
//! Decisions are counted where they are taken ([`counters`](crate::counters)); everything else is collected when the metrics are
//! read. Labels are rules, which are configured and bounded, and those clients that are denied most often at the moment.

mod format;
mod state;

pub use format::Format;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::decider::Decider;
pub(crate) use state::Page;
use state::State;

/// The metrics of a decider, and a registry for those of others, whose names begin with `tollgate_`.
#[must_use]
pub fn registry(decider: &Decider) -> Registry {
    let mut registry = Registry::default();
    let own = registry.sub_registry_with_prefix("tollgate");
    own.register_collector(Box::new(State::of(decider.clone())));
    registry
}

/// Everything as text.
#[must_use]
pub fn text(registry: &Registry, format: Format) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, registry);
    match format {
        Format::OpenMetrics => text,
        Format::Text => format::plain_text(&text),
    }
}
