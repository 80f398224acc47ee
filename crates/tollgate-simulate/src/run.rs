//! Plays arrivals against a limit, on a clock that is turned by hand.
//!
//! This is the only place that asks the engine. What the answers amount to is counted elsewhere.

use std::time::Duration;

use tollgate::store::MemoryConfig;
use tollgate::{Clock, Limit, Limiter, ManualClock};

use super::progress::Progress;
use super::text::to_us;
use super::traffic::Arrival;

/// A request that was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Passage {
    /// When it came.
    pub(super) arrived_us: u64,
    /// When it went: later than it came only behind a leaky bucket.
    pub(super) left_us: u64,
    /// What it cost.
    pub(super) cost: u64,
}

/// What `limit` lets through of these arrivals, in the order of time.
pub(super) async fn play(
    limit: &Limit,
    arrivals: &[Arrival],
    progress: &mut Progress,
) -> Vec<Passage> {
    let clock = ManualClock::default();
    // One key, all of it in one shard: so that even the largest sliding log keeps every entry.
    let limiter = Limiter::in_memory_with(MemoryConfig {
        max_keys: 1,
        max_log_entries: 4_000_000,
        clock: Clock::from(&clock),
    });
    let mut passages = Vec::new();
    for arrival in arrivals {
        clock.set(Duration::from_micros(arrival.at_us));
        let decision = limiter.check("everyone", limit, arrival.cost).await;
        if decision.allowed() {
            passages.push(Passage {
                arrived_us: arrival.at_us,
                left_us: arrival.at_us + to_us(decision.delay()),
                cost: arrival.cost,
            });
        }
        progress.step();
    }
    passages
}
