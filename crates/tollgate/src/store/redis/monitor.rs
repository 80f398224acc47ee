//! What becomes of calls to the server: how long each took, how many checks shared it, how many failed, and who is notified of the
//! outcome. It is counted once per call, not per check.

use std::fmt;
use std::sync::Weak;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::deadline::Stalls;
use super::error::RedisError;

/// Notified once per call, however many checks it carried.
pub(crate) trait CallObserver: Send + Sync {
    /// A reply arrived in time.
    fn answered(&self);

    /// A reply arrived after all its checks had been decided without it.
    fn answered_late(&self);

    /// A call failed, or was not answered in time.
    fn failed(&self, failure: &CallFailure);
}

/// A call that failed.
#[derive(Clone, Debug)]
pub(crate) struct CallFailure {
    /// When its first check began to wait for the server.
    pub(crate) since: std::time::Instant,
    /// The slot it was for, in a cluster.
    pub(crate) slot: Option<u16>,
    pub(crate) error: RedisError,
    /// Whether nothing was heard from the server, rather than an error that proves a failure.
    pub(crate) timed_out: bool,
}

/// Shared by all calls of a store.
#[derive(Default)]
pub(super) struct Monitor {
    pub(super) meter: Meter,
    pub(super) stalls: Stalls,
    observers: Mutex<Vec<Weak<dyn CallObserver>>>,
}

impl Monitor {
    pub(super) fn add(&self, observer: Weak<dyn CallObserver>) {
        let mut observers = self.observers.lock();
        observers.retain(|known| known.strong_count() > 0);
        observers.push(observer);
    }

    /// Notifies the observers of a call that has ended in time, one way or the other.
    pub(super) fn ended<T>(
        &self,
        result: &Result<T, RedisError>,
        since: Instant,
        slot: Option<u16>,
    ) {
        match result {
            Ok(_) => self.notify(|observer| observer.answered()),
            // A slot is being moved: the server is well, and so are all other slots.
            Err(error) if error.is_of_several_keys() => {}
            Err(error) => self.failed(error.clone(), false, since, slot),
        }
    }

    /// Notifies the observers of a call whose checks have all given up.
    pub(super) fn overdue(&self, error: RedisError, since: Instant, slot: Option<u16>) {
        self.failed(error, true, since, slot);
    }

    pub(super) fn answered_late(&self) {
        self.notify(|observer| observer.answered_late());
    }

    fn failed(&self, error: RedisError, timed_out: bool, since: Instant, slot: Option<u16>) {
        let failure = CallFailure {
            since: since.into_std(),
            slot,
            timed_out: timed_out || matches!(error, RedisError::TooLate | RedisError::NotSent),
            error,
        };
        self.notify(|observer| observer.failed(&failure));
    }

    fn notify(&self, event: impl Fn(&dyn CallObserver)) {
        let observers: smallvec::SmallVec<[_; 2]> = self
            .observers
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        observers.iter().for_each(|observer| event(&**observer));
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}

/// Microseconds: from a server next door to one that has missed every deadline.
const TIMES_US: [u64; 12] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000,
];
/// Requests: up to the most that go together.
const SIZES: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The calls of a [`RedisStore`](super::RedisStore) so far that carried checks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreCalls {
    /// How long they took, in microseconds, those that failed included.
    pub times_us: Spread,
    /// How many checks each carried.
    pub sizes: Spread,
    /// How many failed.
    pub failed: u64,
}

/// How often values were how large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The largest value of each bucket; the last one has no bound and is not among them.
    pub bounds: &'static [u64],
    /// How many values lie in each bucket and in no smaller one: one more than there are bounds.
    pub counts: Vec<u64>,
    /// All values together.
    pub sum: u64,
}

#[derive(Debug, Default)]
pub(super) struct Meter {
    times_us: Counts<{ TIMES_US.len() + 1 }>,
    sizes: Counts<{ SIZES.len() + 1 }>,
    failed: AtomicU64,
}

#[derive(Debug)]
struct Counts<const N: usize> {
    counts: [AtomicU64; N],
    sum: AtomicU64,
}

impl Meter {
    /// A call with so many requests took so long.
    pub(super) fn called(&self, size: usize, took: Duration, succeeded: bool) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.times_us.add(&TIMES_US, took_us);
        self.sizes.add(&SIZES, size as u64);
        self.failed.fetch_add(u64::from(!succeeded), Relaxed);
    }

    pub(super) fn calls(&self) -> StoreCalls {
        StoreCalls {
            times_us: self.times_us.spread(&TIMES_US),
            sizes: self.sizes.spread(&SIZES),
            failed: self.failed.load(Relaxed),
        }
    }
}

impl<const N: usize> Counts<N> {
    fn add(&self, bounds: &[u64], value: u64) {
        let bucket = bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    fn spread(&self, bounds: &'static [u64]) -> Spread {
        Spread {
            bounds,
            counts: (self.counts.iter().map(|count| count.load(Relaxed))).collect(),
            sum: self.sum.load(Relaxed),
        }
    }
}

impl<const N: usize> Default for Counts<N> {
    fn default() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; N],
            sum: AtomicU64::new(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_in_the_first_bucket_that_holds_it() {
        let meter = Meter::default();
        meter.called(1, Duration::from_micros(100), true);
        meter.called(64, Duration::from_micros(101), true);
        meter.called(65, Duration::from_secs(7), false);
        let calls = meter.calls();
        assert_eq!(
            calls.times_us.counts,
            [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
        );
        assert_eq!(calls.times_us.sum, 7_000_201);
        assert_eq!(calls.sizes.counts, [1, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!((calls.sizes.sum, calls.failed), (130, 1));
    }
}
