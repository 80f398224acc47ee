//! Where `now` comes from: the system, or a hand that turns it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Later than this the arithmetic ends (the year 2112): a clock that says more is taken to say this.
const LAST_US: u64 = 1 << 52;

/// The time, in microseconds since the Unix epoch.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System(Arc<SystemClock>),
    Manual(ManualClock),
}

impl Clock {
    /// The system's clock: read as Unix time once, monotonic from then on.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System(Arc::new(SystemClock::start())))
    }

    #[must_use]
    #[inline(always)]
    pub(crate) fn now_us(&self) -> u64 {
        match &self.0 {
            Source::System(clock) => clock.now_us(),
            Source::Manual(clock) => clock.now_us(),
        }
        .min(LAST_US)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl From<&ManualClock> for Clock {
    fn from(clock: &ManualClock) -> Self {
        Self(Source::Manual(clock.clone()))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System(_) => "System",
            Self::Manual(_) => "Manual",
        })
    }
}

/// A clock that stands still until it is moved, for tests and simulations.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, ManualClock};
///
/// let hand = ManualClock::at(Duration::from_secs(1_700_000_000));
/// let clock = Clock::from(&hand); // give this to a limiter …
/// hand.advance(Duration::from_millis(250)); // … and turn the hand
/// # let _ = clock;
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that stands at this time since the Unix epoch.
    #[must_use]
    pub fn at(since_epoch: Duration) -> Self {
        let clock = Self::default();
        clock.set(since_epoch);
        clock
    }

    /// Moves to this time since the Unix epoch; it may lie in the past.
    pub fn set(&self, since_epoch: Duration) {
        self.0.store(to_us(since_epoch), Ordering::SeqCst);
    }

    /// Moves forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(to_us(by), Ordering::SeqCst);
    }

    fn now_us(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Unix time that never goes back.
///
/// Asking the system costs 40 ns, a third of a whole check; reading the processor's counter costs 15. So the
/// counter tells the time, and ten times a second the system's monotonic clock sets it right. The counter is made
/// to run a touch slow, so that it is only ever set forward, by a few microseconds. A wall clock that is set
/// while we run changes nothing.
struct SystemClock {
    counter: quanta::Clock,
    counter_start: u64,
    system_start: Instant,
    /// Unix time at `system_start`.
    unix_start_us: u64,
    /// How far the counter has fallen behind.
    behind_us: AtomicU64,
    /// When, by the counter, to compare again.
    compare_at_us: AtomicU64,
}

const COMPARE_EVERY_US: u64 = 100_000;

/// 244 microseconds a second: more than any counter is off.
const SLOW_SHIFT: u32 = 12;

impl SystemClock {
    fn start() -> Self {
        let counter = quanta::Clock::new();
        // Before the counter's start, so that the counter can only be behind.
        let system_start = Instant::now();
        Self {
            counter_start: counter.raw(),
            counter,
            system_start,
            unix_start_us: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, to_us),
            behind_us: AtomicU64::new(0),
            compare_at_us: AtomicU64::new(COMPARE_EVERY_US),
        }
    }

    #[inline(always)]
    fn now_us(&self) -> u64 {
        let counted_us = self
            .counter
            .delta_as_nanos(self.counter_start, self.counter.raw())
            / 1_000;
        let counted_us = counted_us - (counted_us >> SLOW_SHIFT);
        if counted_us >= self.compare_at_us.load(Ordering::Relaxed) {
            self.compare(counted_us);
        }
        self.unix_start_us + counted_us + self.behind_us.load(Ordering::Relaxed)
    }

    /// Two threads may do this at once: both are right, and the later time stays.
    #[cold]
    fn compare(&self, counted_us: u64) {
        self.compare_at_us
            .store(counted_us + COMPARE_EVERY_US, Ordering::Relaxed);
        let system_us = to_us(self.system_start.elapsed());
        self.behind_us
            .fetch_max(system_us.saturating_sub(counted_us), Ordering::Relaxed);
    }
}

fn to_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_says_unix_time() {
        let clock = Clock::system();
        let unix_us = || to_us(SystemTime::now().duration_since(UNIX_EPOCH).unwrap());
        let (before, now, after) = (unix_us(), clock.now_us(), unix_us());
        // Between the two, but for the microseconds the counter may be off.
        assert!(before.saturating_sub(1_000) <= now && now <= after + 1_000);
    }

    #[test]
    fn a_counter_that_falls_behind_is_set_right_and_never_back() {
        let clock = SystemClock::start();
        let mut last_us = 0;
        while last_us < clock.unix_start_us + 3 * COMPARE_EVERY_US {
            let (before, now_us) = (to_us(clock.system_start.elapsed()), clock.now_us());
            assert!(now_us >= last_us, "{now_us} is before {last_us}");
            // What it may have lost since the last comparison, and what quanta itself may be off.
            let behind_us = (clock.unix_start_us + before).saturating_sub(now_us);
            assert!(behind_us < 1_000, "{behind_us} µs behind");
            last_us = now_us;
        }
        assert!(clock.behind_us.load(Ordering::Relaxed) > 0);
    }

    #[test]
    fn a_manual_clock_stands_until_moved() {
        let hand = ManualClock::at(Duration::from_secs(10));
        let clock = Clock::from(&hand);
        assert_eq!(clock.now_us(), 10_000_000);
        hand.advance(Duration::from_micros(5));
        assert_eq!(clock.now_us(), 10_000_005);
    }

    #[test]
    fn time_stands_still_at_the_end_of_the_arithmetic() {
        let days = LAST_US / 86_400_000_000;
        assert_eq!(1970 + days * 400 / 146_097, 2112);
        let hand = ManualClock::at(Duration::MAX);
        assert_eq!(Clock::from(&hand).now_us(), LAST_US);
    }
}
