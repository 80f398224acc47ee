//! What the program counts, as Prometheus reads it.
//!
//! Decisions are counted where they are taken ([`Decisions`]), without a lock (`make bench-metrics`). Everything else is counted by whoever does it, and
//! asked for when somebody looks. Labels are rules, which are configured and bounded; of clients, only those that are denied most
//! often at the moment ([`Top`]).

mod decisions;
mod format;
mod state;
mod top;

pub use decisions::Decisions;
pub use format::Format;
pub use top::{Denied, Top, TopClients};

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::door::Door;
pub(crate) use state::Page;
use state::State;

/// What can be said of a door, and room for what others count, who begin their names with `tollgate_`.
#[must_use]
pub fn registry(door: &Door) -> Registry {
    let mut registry = Registry::default();
    let own = registry.sub_registry_with_prefix("tollgate");
    own.register_collector(Box::new(State::of(door.clone())));
    registry
}

/// Everything as text.
#[must_use]
pub fn text(registry: &Registry, format: Format) -> String {
    let mut text = String::new();
    // Into a string, which takes everything.
    let _ = encode(&mut text, registry);
    match format {
        Format::OpenMetrics => text,
        Format::Text => format::plain_text(&text),
    }
}
