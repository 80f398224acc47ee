//! Where the time comes from: the system, a function, or a clock that is turned by hand.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Later than this the arithmetic ends (the year 2112): a clock that says more is taken to say this.
const LAST_US: u64 = 1 << 52;

/// The time, in microseconds since the Unix epoch.
///
/// Limits go by [`Clock::system`] unless told otherwise: [`MemoryConfig::clock`](crate::store::MemoryConfig::clock) and
/// [`RedisClock`](crate::store::RedisClock). Tests turn a [`ManualClock`], or take the time from [elsewhere](Self::from_fn).
///
/// ```
/// use tollgate::store::{MemoryConfig, MemoryStore};
/// use tollgate::{Clock, Limiter};
///
/// let config = MemoryConfig::default().clock(Clock::system());
/// let limiter = Limiter::new(MemoryStore::with_config(config));
/// # let _ = limiter;
/// ```
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System(Arc<SystemClock>),
    Other(Arc<Other>),
}

/// A clock of tests and simulations. Behind one pointer, so that the system's clock is reached as fast as without it.
enum Other {
    Manual(ManualClock),
    Function(Box<dyn Fn() -> Duration + Send + Sync>),
}

impl Clock {
    /// The system's clock: read as Unix time once, monotonic from then on.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System(Arc::new(SystemClock::start())))
    }

    /// The clock that this function reads: it returns the time since the Unix epoch. The time may stand still, and where it goes back it
    /// is taken to stand still.
    ///
    /// With tokio's paused time, limits and timers go by one clock, so that a test of an hour takes no time:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::{Instant, sleep};
    /// use tollgate::store::{MemoryConfig, MemoryStore};
    /// use tollgate::{Clock, Limiter};
    ///
    /// #[tokio::main(flavor = "current_thread", start_paused = true)] // or #[tokio::test(start_paused = true)]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let start = Instant::now();
    ///     let clock = Clock::from_fn(move || Duration::from_secs(1_700_000_000) + start.elapsed());
    ///     let limiter = Limiter::new(MemoryStore::with_config(MemoryConfig::default().clock(clock)));
    ///
    ///     let limit = "1/h burst 1".parse()?;
    ///     limiter.check("client-7", &limit, 1).await.into_result()?;
    ///     let denied = limiter.check("client-7", &limit, 1).await;
    ///     sleep(denied.retry_after().expect("it is denied for an hour")).await;
    ///     assert!(limiter.check("client-7", &limit, 1).await.allowed());
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn from_fn(since_epoch: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Source::Other(Arc::new(Other::Function(Box::new(
            since_epoch,
        )))))
    }

    #[must_use]
    #[inline(always)]
    pub(crate) fn now_us(&self) -> u64 {
        match &self.0 {
            Source::System(clock) => clock.now_us(),
            Source::Other(clock) => clock.now_us(),
        }
        .min(LAST_US)
    }

    /// By how many seconds the wall clock was set since this clock began to count: this clock's own time ignores that, and what others
    /// read as Unix time follows it.
    #[inline(always)]
    pub(crate) fn step_s(&self) -> i32 {
        match &self.0 {
            Source::System(clock) => clock.step_s.load(Ordering::Relaxed),
            Source::Other(clock) => clock.step_s(),
        }
    }
}

impl Other {
    #[inline(always)]
    fn now_us(&self) -> u64 {
        match self {
            Self::Manual(clock) => clock.now_us(),
            Self::Function(since_epoch) => read(since_epoch),
        }
    }

    #[inline(always)]
    fn step_s(&self) -> i32 {
        match self {
            Self::Manual(clock) => clock.0.step_s.load(Ordering::Relaxed),
            Self::Function(_) => 0,
        }
    }
}

/// Out of the way of the other clocks.
#[cold]
fn read(since_epoch: &dyn Fn() -> Duration) -> u64 {
    to_us(since_epoch())
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl From<&ManualClock> for Clock {
    fn from(clock: &ManualClock) -> Self {
        Self(Source::Other(Arc::new(Other::Manual(clock.clone()))))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System(_) => "System",
            Self::Other(clock) => match **clock {
                Other::Manual(_) => "Manual",
                Other::Function(_) => "Function",
            },
        })
    }
}

/// A clock that stands still until it is moved, for tests and simulations.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, ManualClock};
///
/// use tollgate::LocalLimiter;
/// use tollgate::store::{MemoryConfig, MemoryStore};
///
/// let clock = ManualClock::at(Duration::from_secs(1_700_000_000));
/// let config = MemoryConfig::default().clock(Clock::from(&clock));
/// let limiter = LocalLimiter::with_store(MemoryStore::with_config(config));
///
/// let limit = "4/s burst 1".parse()?;
/// assert!(limiter.check("client-7", &limit, 1).allowed());
/// assert!(!limiter.check("client-7", &limit, 1).allowed());
/// clock.advance(Duration::from_millis(250));
/// assert!(limiter.check("client-7", &limit, 1).allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Hand>);

#[derive(Debug, Default)]
struct Hand {
    us: AtomicU64,
    step_s: AtomicI32,
}

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
        self.0.us.store(to_us(since_epoch), Ordering::SeqCst);
    }

    /// Moves forward.
    pub fn advance(&self, by: Duration) {
        self.0.us.fetch_add(to_us(by), Ordering::SeqCst);
    }

    /// Sets the wall clock ahead of this clock by this many seconds, as an operator or a time service does. Limits do not notice; what is
    /// shown as Unix time follows.
    pub fn step_wall_clock(&self, seconds: i32) {
        self.0.step_s.store(seconds, Ordering::SeqCst);
    }

    fn now_us(&self) -> u64 {
        self.0.us.load(Ordering::SeqCst)
    }
}

/// Unix time that never goes back.
///
/// Reading the system's clock costs 40 ns, a third of a whole check; reading the processor's counter costs 15. So
/// the counter measures time, and the system's monotonic clock corrects it ten times a second. A wall clock that
/// is set while the process runs changes nothing but the step that is noted then.
struct SystemClock {
    counter: quanta::Clock,
    counter_start: u64,
    system_start: Instant,
    /// Unix time at `system_start`.
    unix_start_us: u64,
    correction: Correction,
    /// How far the wall clock is ahead of this one, in whole seconds.
    step_s: AtomicI32,
}

impl SystemClock {
    fn start() -> Self {
        let counter = quanta::Clock::new();
        let (unix_start_us, system_start) = unix_time_and_instant();
        let clock = Self {
            // Read after `system_start`, so that the counter can only be behind.
            counter_start: counter.raw(),
            counter,
            system_start,
            unix_start_us,
            correction: Correction::default(),
            step_s: AtomicI32::new(0),
        };
        // A stall between the two readings above is no sign of a slow counter.
        let (system_us, counted_us) = clock.both_us();
        clock.correction.start(system_us, counted_us);
        clock
    }

    #[inline(always)]
    fn now_us(&self) -> u64 {
        let compared = || {
            let both = self.both_us();
            self.note_step(both.0, unix_us());
            both
        };
        self.unix_start_us + self.correction.apply(self.counted_us(), compared)
    }

    /// Notes how far the wall clock was set since the start.
    fn note_step(&self, system_us: u64, wall_us: u64) {
        let expected_us = self.unix_start_us + system_us;
        let ahead_s = wall_us.saturating_sub(expected_us).saturating_add(500_000) / 1_000_000;
        let behind_s = expected_us.saturating_sub(wall_us).saturating_add(500_000) / 1_000_000;
        let seconds = |us: u64| i32::try_from(us).unwrap_or(i32::MAX);
        let step_s = seconds(ahead_s) - seconds(behind_s);
        self.step_s.store(step_s, Ordering::Relaxed);
    }

    /// Microseconds since the start, as the counter measures them.
    #[inline(always)]
    fn counted_us(&self) -> u64 {
        let counted_us = self
            .counter
            .delta_as_nanos(self.counter_start, self.counter.raw())
            / 1_000;
        counted_us - (counted_us >> SLOW_SHIFT)
    }

    /// Both clocks, the system's first: a stall between the two makes the counter look less behind than it is,
    /// never more.
    fn both_us(&self) -> (u64, u64) {
        (to_us(self.system_start.elapsed()), self.counted_us())
    }
}

fn unix_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, to_us)
}

/// Reads both clocks, again if the process was stopped between the two readings.
fn unix_time_and_instant() -> (u64, Instant) {
    let mut closest: Option<(Duration, u64, Instant)> = None;
    for _ in 0..8 {
        let before = Instant::now();
        let unix_us = unix_us();
        let gap = before.elapsed();
        if closest.is_none_or(|(smallest, ..)| gap < smallest) {
            closest = Some((gap, unix_us, before));
        }
        if gap < Duration::from_micros(20) {
            break;
        }
    }
    closest.map_or((0, Instant::now()), |(_, unix_us, at)| (unix_us, at))
}

/// The counter is made to run slow by 244 µs a second, more than a well calibrated one is off, so that
/// corrections only ever move it forward.
const SLOW_SHIFT: u32 = 12;

const COMPARE_EVERY_US: u64 = 100_000;

/// A counter that gained more than this, or lost more than this and 1/256 of the time, is not used any more.
const MAX_DRIFT_US: u64 = 1_000;

/// Corrects the counter by the system's clock.
///
/// The counter is calibrated when the process starts, in a few milliseconds. A stall at the wrong moment of these
/// leaves it fast or slow by any factor, for good. Such a counter is abandoned at the first comparison, and the
/// system's clock is read instead.
#[derive(Default)]
struct Correction {
    /// How far the counter has fallen behind.
    behind_us: AtomicU64,
    /// When, by the counter, to compare again; 0 once the counter is abandoned.
    compare_at_us: AtomicU64,
    /// When both were compared last, by the system's clock.
    compared_us: AtomicU64,
    /// The earliest time to return once the counter is abandoned.
    earliest_us: AtomicU64,
}

impl Correction {
    fn start(&self, system_us: u64, counted_us: u64) {
        self.behind_us
            .store(system_us.saturating_sub(counted_us), Ordering::Relaxed);
        self.compare_at_us
            .store(counted_us + COMPARE_EVERY_US, Ordering::Relaxed);
        self.compared_us.store(system_us, Ordering::Relaxed);
    }

    /// Returns the time since the start. `both_us` reads the system's clock and then the counter.
    #[inline(always)]
    fn apply(&self, counted_us: u64, both_us: impl FnOnce() -> (u64, u64)) -> u64 {
        if counted_us >= self.compare_at_us.load(Ordering::Relaxed) {
            return self.compare(counted_us, both_us());
        }
        counted_us + self.behind_us.load(Ordering::Relaxed)
    }

    /// Several threads may do this at once: each of them is right, and the latest time stays.
    #[cold]
    fn compare(&self, counted_before_us: u64, (system_us, counted_us): (u64, u64)) -> u64 {
        if self.compare_at_us.load(Ordering::Relaxed) == 0 {
            return system_us.max(self.earliest_us.load(Ordering::Relaxed));
        }
        let elapsed_us =
            system_us.saturating_sub(self.compared_us.fetch_max(system_us, Ordering::Relaxed));
        let behind_us = system_us.saturating_sub(counted_us);
        let behind_before_us = self.behind_us.fetch_max(behind_us, Ordering::Relaxed);
        let time_us = counted_us + behind_us.max(behind_before_us);
        let lost_us = behind_us.saturating_sub(behind_before_us);
        let is_slow = lost_us > MAX_DRIFT_US + elapsed_us / 256;
        // The counter was read before the system's clock here, so a stall between the two hides no time.
        let is_fast = counted_before_us + behind_before_us > system_us + MAX_DRIFT_US;
        let compare_at_us = if is_slow || is_fast {
            self.earliest_us.fetch_max(time_us, Ordering::Relaxed);
            0
        } else {
            counted_us + COMPARE_EVERY_US
        };
        self.compare_at_us.store(compare_at_us, Ordering::Relaxed);
        time_us
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
    fn the_system_clock_never_goes_back() {
        let clock = SystemClock::start();
        let mut last_us = 0;
        while last_us < clock.unix_start_us + 3 * COMPARE_EVERY_US {
            let now_us = clock.now_us();
            assert!(now_us >= last_us, "{now_us} is before {last_us}");
            last_us = now_us;
        }
    }

    /// Reads the clock every 100 µs for ten seconds, with a counter that measures `counted` of each `elapsed`, and
    /// returns how far it was ahead and behind at most.
    fn drift_us(counted: u64, elapsed: u64) -> (u64, u64) {
        let correction = Correction::default();
        correction.start(0, 0);
        let (mut ahead_us, mut behind_us, mut last_us) = (0, 0, 0);
        for system_us in (0..10_000_000).step_by(100) {
            let counted_us = system_us * counted / elapsed;
            let time_us = correction.apply(counted_us, || (system_us, counted_us));
            assert!(time_us >= last_us, "{time_us} is before {last_us}");
            last_us = time_us;
            ahead_us = ahead_us.max(time_us.saturating_sub(system_us));
            behind_us = behind_us.max(system_us.saturating_sub(time_us));
        }
        (ahead_us, behind_us)
    }

    #[test]
    fn a_counter_that_falls_behind_is_corrected() {
        assert_eq!(drift_us(1_000_000, 1_000_000), (0, 0));
        // Twice as slow as it is made to be, 49 µs in each tenth of a second.
        let (ahead_us, behind_us) = drift_us(2_047, 2_048);
        assert_eq!(ahead_us, 0);
        assert!((1..=50).contains(&behind_us), "{behind_us} µs behind");
    }

    #[test]
    fn a_counter_with_a_wrong_rate_is_abandoned() {
        for (counted, elapsed) in [(10_001, 10_000), (101, 100), (11, 10), (3, 1)] {
            let (ahead_us, _) = drift_us(counted, elapsed);
            // Found at the first comparison once it is ahead by more than the tolerance.
            let gained_us = COMPARE_EVERY_US * (counted - elapsed) / elapsed;
            assert!(
                ahead_us <= MAX_DRIFT_US + gained_us + 200,
                "{counted}/{elapsed}: {ahead_us} µs ahead"
            );
        }
        for (counted, elapsed) in [(98, 100), (9, 10), (1, 3)] {
            let (ahead_us, behind_us) = drift_us(counted, elapsed);
            assert_eq!(ahead_us, 0);
            // Only until the first comparison.
            let lost_us = COMPARE_EVERY_US * (elapsed - counted) / counted;
            assert!(behind_us <= lost_us + 200, "{behind_us} µs behind");
        }
    }

    #[test]
    fn a_stall_while_both_clocks_are_read_moves_nothing() {
        let correction = Correction::default();
        correction.start(0, 0);
        // Stopped for 30 ms before the system's clock is read, and for 30 ms before the counter is.
        let time_us = correction.apply(100_000, || (130_000, 160_000));
        assert_eq!(time_us, 160_000);
        assert_eq!(correction.apply(170_000, || unreachable!()), 170_000);
    }

    #[test]
    fn a_step_of_the_wall_clock_is_noted_and_moves_no_time() {
        let clock = SystemClock::start();
        let start_us = clock.unix_start_us;
        for (wall_us, step_s) in [
            (start_us + 1_000_000, 0),
            (start_us + 1_400_000, 0),
            (start_us + 3_601_000_000, 3_600),
            (start_us + 1_000_000 - 3_600_000_000, -3_600),
            (start_us + 700_000, 0),
        ] {
            clock.note_step(1_000_000, wall_us);
            assert_eq!(clock.step_s.load(Ordering::Relaxed), step_s, "{wall_us}");
            assert!(clock.now_us() < start_us + 60_000_000);
        }
    }

    #[test]
    fn a_function_is_read_as_often_as_the_time_is() {
        let us = Arc::new(AtomicU64::new(7));
        let read = Arc::clone(&us);
        let clock = Clock::from_fn(move || Duration::from_micros(read.load(Ordering::SeqCst)));
        assert_eq!((clock.now_us(), clock.step_s()), (7, 0));
        us.store(u64::MAX, Ordering::SeqCst);
        assert_eq!(clock.now_us(), LAST_US);
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
