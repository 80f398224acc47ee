//! Whether the store is asked at all: a pure state machine, told what becomes of calls and what time it is.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// When a store that fails is no longer asked, and how often it is probed.
///
/// The breaker judges the store by calls, each of which carries many checks. One call in time is enough to start counting afresh. A
/// check that misses its deadline is decided without the store; by itself it opens nothing.
///
/// ```
/// use std::time::Duration;
/// use tollgate::BreakerConfig;
///
/// let config = BreakerConfig::default().failures(3).within(Duration::from_secs(5));
/// assert_eq!(config.failures, 3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a configuration does nothing until a limiter has it"]
#[non_exhaustive]
pub struct BreakerConfig {
    /// Number of consecutive failed calls that open the breaker; 5 by default.
    pub failures: u32,
    /// Time window in which they must occur; 10 s by default.
    pub within: Duration,
    /// How long the store must have been silent if the failures are timeouts, 500 ms by default: a shorter stall opens nothing. An
    /// error that proves a failure (refused, reset, `LOADING`, `READONLY`, …) counts at once.
    pub min_silence: Duration,
    /// The longest pause between two probes while the breaker is open, 30 s by default and a year at most. The first probe is sent
    /// after 100 ms; later pauses are 3 % of the time since the breaker opened.
    pub open_for: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failures: 5,
            within: Duration::from_secs(10),
            min_silence: Duration::from_millis(500),
            open_for: Duration::from_secs(30),
        }
    }
}

impl BreakerConfig {
    /// Sets [`failures`](Self::failures).
    pub fn failures(mut self, failures: u32) -> Self {
        self.failures = failures;
        self
    }

    /// Sets [`within`](Self::within).
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// Sets [`min_silence`](Self::min_silence).
    pub fn min_silence(mut self, min_silence: Duration) -> Self {
        self.min_silence = min_silence;
        self
    }

    /// Sets [`open_for`](Self::open_for).
    pub fn open_for(mut self, open_for: Duration) -> Self {
        self.open_for = open_for;
        self
    }
}

/// The pause before the first probe.
const FIRST_PROBE: Duration = Duration::from_millis(100);

/// Later pauses in percent of the outage so far: a store that was away for half a minute is back within a second.
const PERCENT_OF_OUTAGE: u32 = 3;

/// How often the first pause doubles for a store that fails again as soon as it is asked: up to 0.8 s. Longer pauses would leave a
/// store that stalls every few seconds unused between its stalls.
const MAX_DOUBLINGS: u32 = 3;

/// Longer times do not fit into a clock.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

#[derive(Debug)]
pub(super) struct Breaker {
    config: BreakerConfig,
    /// Copies of the state for readers, which are every check and every call.
    is_open: AtomicBool,
    has_failures: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// How many times it opened.
    openings: u64,
    /// When it closed last.
    closed_at: Option<Instant>,
    /// How often it opened again soon after it had closed.
    relapses: u32,
}

#[derive(Debug)]
enum Phase {
    Closed(Failures),
    Open {
        since: Instant,
        /// Where the call failed that opened it, in a cluster.
        slot: Option<u16>,
        next_probe: Instant,
    },
}

/// The failed calls since the last one that was answered.
#[derive(Debug, Default)]
struct Failures {
    recent: VecDeque<FailedCall>,
    /// Since when the store has been silent.
    since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct FailedCall {
    at: Instant,
    kind: FailureKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureKind {
    /// An error that proves a failure.
    Proven,
    /// No reply so far.
    Timeout,
    /// Timeouts of one stall of the store, which has replied since.
    Stall,
}

/// A call that failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    pub(super) since: Instant,
    pub(super) timed_out: bool,
    pub(super) slot: Option<u16>,
}

/// Where to probe, and after which pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextProbe {
    pub(super) pause: Duration,
    /// Whether a sign of life may end the pause early: not for a store that keeps failing as soon as it is asked.
    pub(super) may_be_early: bool,
    pub(super) slot: Option<u16>,
}

impl Breaker {
    pub(super) fn new(config: BreakerConfig) -> Self {
        Self {
            config: BreakerConfig {
                open_for: config.open_for.min(LONGEST),
                ..config
            },
            is_open: AtomicBool::new(false),
            has_failures: AtomicBool::new(false),
            state: Mutex::new(State {
                phase: Phase::Closed(Failures::default()),
                openings: 0,
                closed_at: None,
                relapses: 0,
            }),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    pub(super) fn openings(&self) -> u64 {
        self.state.lock().openings
    }

    /// A call was answered in time. It does not close the breaker: it was sent before that opened.
    pub(super) fn answered(&self) {
        if !self.has_failures.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state.lock();
        if let Phase::Closed(failures) = &mut state.phase {
            *failures = Failures::default();
            self.has_failures.store(false, Ordering::Release);
        }
    }

    /// A call was answered after it had failed: the timeouts since the last reply were one stall, which counts as one failure.
    pub(super) fn answered_late(&self) {
        if !self.has_failures.load(Ordering::Acquire) {
            return;
        }
        if let Phase::Closed(failures) = &mut self.state.lock().phase {
            failures.end_stall();
        }
    }

    /// A call failed. Returns whether that opened the breaker.
    pub(super) fn failed(&self, failure: Failure, now: Instant) -> bool {
        let mut state = self.state.lock();
        let Phase::Closed(failures) = &mut state.phase else {
            return false;
        };
        failures.add(failure, now, &self.config);
        self.has_failures.store(true, Ordering::Release);
        if !failures.are_enough(now, &self.config) {
            return false;
        }
        let is_relapse = (state.closed_at)
            .is_some_and(|closed| now.saturating_duration_since(closed) < self.config.within);
        state.relapses = match is_relapse {
            true => MAX_DOUBLINGS.min(state.relapses + 1),
            false => 0,
        };
        state.openings += 1;
        state.phase = Phase::Open {
            since: now,
            slot: failure.slot,
            next_probe: now,
        };
        self.is_open.store(true, Ordering::Release);
        true
    }

    /// When to probe next; `None` if it is closed. A store that `replies`, although too late, is probed after the first pause again.
    /// `jitter` between 0 and 1 spreads the probes of many instances.
    pub(super) fn next_probe(&self, now: Instant, replies: bool, jitter: f64) -> Option<NextProbe> {
        let mut state = self.state.lock();
        let relapses = state.relapses;
        let Phase::Open {
            since,
            slot,
            next_probe,
        } = &mut state.phase
        else {
            return None;
        };
        let first = FIRST_PROBE * 2_u32.pow(relapses);
        let grown = match replies {
            true => Duration::ZERO,
            false => now.saturating_duration_since(*since) / 100 * PERCENT_OF_OUTAGE,
        };
        let pause = first.max(grown).min(self.config.open_for);
        let pause = pause.mul_f64(1.0 - 0.1 * jitter.clamp(0.0, 1.0));
        *next_probe = now + pause;
        Some(NextProbe {
            pause,
            may_be_early: relapses == 0,
            slot: *slot,
        })
    }

    /// A probe was answered in time: closes the breaker. Returns for how long it was open.
    pub(super) fn close(&self, now: Instant) -> Option<Duration> {
        let mut state = self.state.lock();
        let Phase::Open { since, .. } = state.phase else {
            return None;
        };
        state.phase = Phase::Closed(Failures::default());
        state.closed_at = Some(now);
        self.has_failures.store(false, Ordering::Release);
        self.is_open.store(false, Ordering::Release);
        Some(now.saturating_duration_since(since))
    }

    /// How long ago a probe should have been sent. If that is more than a moment, the task that sends it does not get to run, which
    /// happens in a runtime of one thread that runs only while a check is awaited.
    pub(super) fn probe_is_late_by(&self, now: Instant) -> Duration {
        let Some(state) = self.state.try_lock() else {
            return Duration::ZERO;
        };
        match state.phase {
            Phase::Open { next_probe, .. } => now.saturating_duration_since(next_probe),
            Phase::Closed(_) => Duration::ZERO,
        }
    }

    /// Takes the place of a probe that is this late, as its task will not run again. Only one of those who notice it may do so.
    pub(super) fn retry_lost_probe(&self, now: Instant, late_by: Duration) -> bool {
        let mut state = self.state.lock();
        match &mut state.phase {
            Phase::Open { next_probe, .. }
                if now.saturating_duration_since(*next_probe) >= late_by =>
            {
                *next_probe = now;
                true
            }
            _ => false,
        }
    }
}

impl Failures {
    fn add(&mut self, failure: Failure, now: Instant, config: &BreakerConfig) {
        let is_old = |call: &FailedCall| now.saturating_duration_since(call.at) >= config.within;
        while self.recent.front().is_some_and(is_old) {
            self.recent.pop_front();
        }
        if self.recent.is_empty() {
            self.since = None;
        }
        // One broken connection fails all calls on it at once: those that were in flight with the last one count as one failure.
        let failed_with =
            |last: &FailedCall| last.kind == FailureKind::Proven && failure.since < last.at;
        if !failure.timed_out && self.recent.back().is_some_and(failed_with) {
            return;
        }
        if self.recent.len() >= config.failures.max(1) as usize {
            self.recent.pop_front();
        }
        let kind = match failure.timed_out {
            true => FailureKind::Timeout,
            false => FailureKind::Proven,
        };
        self.recent.push_back(FailedCall { at: now, kind });
        let since = self.since.get_or_insert(failure.since);
        *since = failure.since.min(*since);
    }

    /// Makes one failure of all timeouts since the last stall.
    fn end_stall(&mut self) {
        let is_timeout = |call: &FailedCall| call.kind == FailureKind::Timeout;
        let Some(last) = self.recent.iter().rposition(is_timeout) else {
            return;
        };
        self.recent[last].kind = FailureKind::Stall;
        self.recent.retain(|call| !is_timeout(call));
    }

    fn are_enough(&self, now: Instant, config: &BreakerConfig) -> bool {
        let silence = self
            .since
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let mut kinds = self.recent.iter().map(|call| call.kind);
        self.recent.len() >= config.failures as usize
            && (silence >= config.min_silence || kinds.all(|kind| kind == FailureKind::Proven))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MS: Duration = Duration::from_millis(1);

    fn breaker() -> (Breaker, Instant) {
        (Breaker::new(BreakerConfig::default()), Instant::now())
    }

    /// Sent at this time.
    fn error(since: Instant) -> Failure {
        Failure {
            since,
            timed_out: false,
            slot: None,
        }
    }

    fn timeout(since: Instant) -> Failure {
        Failure {
            timed_out: true,
            ..error(since)
        }
    }

    fn open(breaker: &Breaker, now: Instant) {
        while !breaker.failed(error(now), now) {}
    }

    #[test]
    fn one_of_many_takes_the_place_of_a_lost_probe() {
        let (breaker, now) = breaker();
        open(&breaker, now);
        let later = now + 10 * SECOND;
        let late_by = breaker.probe_is_late_by(later);
        assert_eq!(late_by, 10 * SECOND);
        assert!(breaker.retry_lost_probe(later, late_by));
        assert!(!breaker.retry_lost_probe(later, late_by));
        assert_eq!(breaker.probe_is_late_by(later), Duration::ZERO);
        breaker.close(later);
        assert!(!breaker.retry_lost_probe(later, late_by));
    }

    #[test]
    fn five_errors_open_it_and_a_reply_starts_the_count_afresh() {
        let (breaker, now) = breaker();
        for _ in 0..4 {
            assert!(!breaker.failed(error(now), now));
        }
        breaker.answered();
        for _ in 0..4 {
            assert!(!breaker.failed(error(now), now));
        }
        assert!(!breaker.is_open());
        assert!(breaker.failed(error(now), now));
        assert!(breaker.is_open());
        assert_eq!(breaker.openings(), 1);
    }

    #[test]
    fn any_number_of_timeouts_in_one_stall_opens_nothing() {
        let (breaker, now) = breaker();
        for call in 0..1_000 {
            let at = now + call * 499 * MS / 1_000;
            assert!(!breaker.failed(timeout(now), at), "{call}");
        }
        assert!(!breaker.is_open());
    }

    #[test]
    fn timeouts_open_it_once_the_store_was_silent_for_long_enough() {
        let (breaker, now) = breaker();
        for call in 0..10 {
            let sent = now + call * 50 * MS;
            assert!(!breaker.failed(timeout(sent), sent + 49 * MS), "{call}");
        }
        assert!(breaker.failed(timeout(now + 450 * MS), now + 500 * MS));
    }

    /// Five calls time out in a stall of 300 ms, whose replies come late. Nothing is asked for three seconds, and then one call meets
    /// another stall.
    #[test]
    fn two_stalls_with_a_pause_between_open_nothing() {
        let (breaker, now) = breaker();
        for _ in 0..5 {
            assert!(!breaker.failed(timeout(now), now + 50 * MS));
        }
        breaker.answered_late();
        let next = now + 3 * SECOND;
        assert!(!breaker.failed(timeout(next), next + 50 * MS));
        breaker.answered_late();
        assert!(!breaker.is_open());
    }

    #[test]
    fn a_store_that_always_replies_late_opens_it() {
        let (breaker, now) = breaker();
        for call in 1..5 {
            let at = now + call * 300 * MS;
            assert!(!breaker.failed(timeout(at), at + 50 * MS), "{call}");
            breaker.answered_late();
        }
        assert!(breaker.failed(timeout(now + 1_500 * MS), now + 1_550 * MS));
    }

    #[test]
    fn a_store_that_replies_late_is_probed_again_soon() {
        let (breaker, now) = breaker();
        open(&breaker, now);
        let later = now + 300 * SECOND;
        assert_eq!(
            breaker.next_probe(later, true, 0.0).unwrap().pause,
            100 * MS
        );
        assert_eq!(
            breaker.next_probe(later, false, 0.0).unwrap().pause,
            9 * SECOND
        );
    }

    #[test]
    fn a_long_silence_alone_does_not_open_it() {
        let (breaker, now) = breaker();
        for call in 1..5 {
            assert!(!breaker.failed(timeout(now), now + call * SECOND));
        }
        assert!(breaker.failed(timeout(now), now + 5 * SECOND));
    }

    #[test]
    fn timeouts_among_errors_need_the_silence_too() {
        let (breaker, now) = breaker();
        assert!(!breaker.failed(timeout(now), now + MS));
        for call in 2..6 {
            assert!(!breaker.failed(error(now + call * MS), now + call * MS));
        }
        // Five proven failures have pushed the timeout aside.
        assert!(breaker.failed(error(now + 6 * MS), now + 6 * MS));
    }

    #[test]
    fn calls_that_fail_together_with_their_connection_are_one_failure() {
        let (breaker, now) = breaker();
        for _ in 0..100 {
            assert!(!breaker.failed(error(now), now + MS));
        }
        for call in 1..4 {
            let sent = now + call * 10 * MS;
            assert!(!breaker.failed(error(sent), sent + MS));
        }
        assert!(breaker.failed(error(now + 40 * MS), now + 41 * MS));
    }

    #[test]
    fn failures_long_past_do_not_count() {
        let (breaker, now) = breaker();
        for i in 0..20 {
            let at = now + 3 * i * SECOND;
            assert!(!breaker.failed(error(at), at), "{i}");
        }
    }

    #[test]
    fn only_a_probe_closes_it() {
        let (breaker, now) = breaker();
        assert_eq!(breaker.next_probe(now, false, 0.0), None);
        open(&breaker, now);
        breaker.answered();
        assert!(breaker.is_open());
        assert_eq!(breaker.close(now + SECOND), Some(SECOND));
        assert!(!breaker.is_open());
        assert_eq!(breaker.close(now + SECOND), None);
    }

    #[test]
    fn pauses_grow_with_the_outage_up_to_their_limit() {
        let (breaker, now) = breaker();
        open(&breaker, now);
        let pause = |after| breaker.next_probe(now + after, false, 0.0).unwrap().pause;
        assert_eq!(pause(Duration::ZERO), 100 * MS);
        assert_eq!(pause(3 * SECOND), 100 * MS);
        assert_eq!(pause(10 * SECOND), 300 * MS);
        assert_eq!(pause(100 * SECOND), 3 * SECOND);
        assert_eq!(pause(3_600 * SECOND), 30 * SECOND);
        let early = breaker.next_probe(now, false, 1.0).unwrap().pause;
        assert_eq!(early, 90 * MS);
    }

    #[test]
    fn a_store_that_fails_again_at_once_is_probed_less_often() {
        let (breaker, now) = breaker();
        let pause = |at| breaker.next_probe(at, false, 0.0).unwrap().pause;
        open(&breaker, now);
        breaker.close(now);
        open(&breaker, now + SECOND);
        assert_eq!(pause(now + SECOND), 200 * MS);
        breaker.close(now + SECOND);
        open(&breaker, now + 2 * SECOND);
        assert_eq!(pause(now + 2 * SECOND), 400 * MS);
        breaker.close(now + 2 * SECOND);
        open(&breaker, now + 12 * SECOND);
        assert_eq!(pause(now + 12 * SECOND), 100 * MS);
    }

    #[test]
    fn a_probe_that_does_not_get_to_run_is_noticed() {
        let (breaker, now) = breaker();
        assert_eq!(breaker.probe_is_late_by(now + SECOND), Duration::ZERO);
        open(&breaker, now);
        breaker.next_probe(now, false, 0.0);
        assert_eq!(breaker.probe_is_late_by(now + 100 * MS), Duration::ZERO);
        assert_eq!(breaker.probe_is_late_by(now + SECOND), 900 * MS);
    }

    #[test]
    fn its_longest_pause_may_be_for_ever() {
        let config = BreakerConfig {
            failures: 1,
            open_for: Duration::MAX,
            ..BreakerConfig::default()
        };
        let (breaker, now) = (Breaker::new(config), Instant::now());
        assert!(breaker.failed(error(now), now));
        assert!(breaker.next_probe(now + 80 * SECOND, false, 0.0).is_some());
    }
}
