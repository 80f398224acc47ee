//! Runs arrivals against a limit, on a simulated clock. This is the only place that uses the engine.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use tollgate::store::{MemoryConfig, MemoryStore};
use tollgate::{Clock, Limit, LocalLimiter, ManualClock};

use super::text::{grouped, to_us};
use super::traffic::Arrival;

/// An admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admission {
    pub(super) arrived_us: u64,
    /// When it was forwarded: later than it arrived only with a leaky bucket.
    pub(super) forwarded_us: u64,
    pub(super) cost: u64,
}

/// The requests that `limit` admits, sorted by time.
pub(super) fn admissions(
    limit: &Limit,
    arrivals: &[Arrival],
    progress: &mut Progress,
) -> Vec<Admission> {
    let clock = ManualClock::default();
    // One key is one shard, which keeps every entry of even the largest sliding log.
    let config = MemoryConfig::default()
        .max_keys(1)
        .max_log_entries(4_000_000)
        .clock(Clock::from(&clock));
    let limiter = LocalLimiter::with_store(MemoryStore::with_config(config));
    let mut admissions = Vec::new();
    for &Arrival { at_us, cost } in arrivals {
        clock.set(Duration::from_micros(at_us));
        let decision = limiter.check("everyone", limit, cost);
        if decision.allowed() {
            admissions.push(Admission {
                arrived_us: at_us,
                forwarded_us: at_us + to_us(decision.delay()),
                cost,
            });
        }
        progress.step();
    }
    admissions
}

/// Shorter runs show no progress.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reading the clock costs as much as a decision, so it is read rarely.
const STEPS_PER_LOOK: u64 = 1 << 15;

/// A progress line on stderr, if that is a terminal.
pub(super) struct Progress {
    done: u64,
    total: u64,
    started: Instant,
    is_terminal: bool,
    is_shown: bool,
}

impl Progress {
    pub(super) fn of(total: usize) -> Self {
        Self {
            done: 0,
            total: total as u64,
            started: Instant::now(),
            is_terminal: io::stderr().is_terminal(),
            is_shown: false,
        }
    }

    fn step(&mut self) {
        self.done += 1;
        let is_time = self.is_terminal && self.done.is_multiple_of(STEPS_PER_LOOK);
        if is_time && self.started.elapsed() > PATIENCE {
            self.is_shown = true;
            // The next line replaces this one. A closed stderr is no reason to stop.
            let (done, total) = (grouped(self.done), grouped(self.total));
            let _ = write!(io::stderr(), "\r{done} of {total} decisions");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}
