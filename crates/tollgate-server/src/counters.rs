//! Counters of decisions, by rule and by client. Each decision is counted where it is taken, without a lock (`make bench-metrics`).

mod decisions;
mod top;

pub use decisions::Decisions;
pub(crate) use decisions::{Counted, OTHER, OUTCOMES, RuleCounts};
pub use top::{Denied, Top, TopClients};
