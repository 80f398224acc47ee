//! Counters of decisions by rule, and of denials by client. Decisions are counted where they are made, without a lock
//! (`make bench-metrics`).

mod decisions;
mod top;

pub(crate) use decisions::{Counted, Decisions, OTHER, OUTCOMES};
pub(crate) use top::TopDenied;
