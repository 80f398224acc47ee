//! The five limits that follow from one, and what they admit: runs arrivals against a limit, on a simulated clock. This is the
//! only place that uses the engine.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use tollgate::store::{MemoryConfig, MemoryStore};
use tollgate::{Clock, Limit, LimitError, LocalLimiter, ManualClock, Rate};

use super::scenario::Arrival;
use super::text::{grouped, to_us};

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

/// The limits that are compared, and what they have in common.
#[derive(Debug)]
pub(super) struct Limits {
    /// The one that the others are derived from.
    pub(super) original: Limit,
    pub(super) count: u64,
    /// The period of the count, and the window in which forwarded requests are counted.
    pub(super) period: Duration,
    /// One per algorithm, in the order of [`tollgate::Algorithm::ALL`].
    pub(super) all: [Limit; 5],
}

impl Limits {
    /// Buckets with the rate and the capacity of a limit, and windows with its rate.
    ///
    /// # Errors
    /// When a figure is valid for the original, but not for another: a sliding log holds less than a bucket.
    pub(super) fn derived_from(original: Limit) -> Result<Self, LimitError> {
        let rate = match original.rate() {
            Some(rate) => rate,
            None => Rate::new(original.capacity(), original.window())?,
        };
        let (count, period, capacity) = (rate.count(), rate.period(), original.capacity());
        Ok(Self {
            original,
            count,
            period,
            all: [
                Limit::token_bucket(rate, capacity)?,
                Limit::leaky_bucket(rate, capacity)?,
                Limit::fixed_window(count, period)?,
                Limit::sliding_log(count, period)?,
                Limit::sliding_counter(count, period)?,
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use tollgate::Algorithm;

    fn texts(limit: &str) -> Vec<String> {
        let limits = Limits::derived_from(limit.parse().unwrap()).unwrap();
        limits.all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_bucket_gives_its_rate_to_the_windows() {
        assert_eq!(
            texts("100/s burst 200"),
            [
                "100/s burst 200",
                "100/s queue 200",
                "100 per 1s fixed_window",
                "100 per 1s sliding_log",
                "100 per 1s sliding_counter",
            ]
        );
        assert_eq!(texts("3000/s queue 5000"), texts("3000/s burst 5000"));
    }

    #[test]
    fn a_window_gives_its_limit_to_the_buckets() {
        assert_eq!(texts("200/min sliding_log"), texts("200/min burst 200"));
    }

    #[test]
    fn the_limits_have_the_order_of_the_algorithms() {
        let limits = Limits::derived_from("5/s".parse().unwrap()).unwrap();
        let algorithms: Vec<Algorithm> = limits.all.iter().map(Limit::algorithm).collect();
        assert_eq!(algorithms, Algorithm::ALL);
    }

    #[test]
    fn a_figure_too_large_for_one_of_them_is_rejected() {
        let error = Limits::derived_from("2000000/s".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("at most 1,000,000"), "{error}");
    }
}
