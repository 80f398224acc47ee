//! The audit trail: who was denied what, when, and how often.
//!
//! [`Trail::note`] is called for every denial and must cost next to nothing: it neither waits nor fails. Violations of
//! one bucket in one second are folded into one row with a count. Everything is bounded, and what does not fit is lost
//! and counted: at every moment, what was noted is what was written, lost, or is still held. It knows nothing of
//! requests or limiters, and of SQL only that rows can be written.

mod backlog;
mod fold;
mod shard;
mod trail;
mod writer;

pub use fold::Violation;
pub use trail::{Trail, TrailStats};
