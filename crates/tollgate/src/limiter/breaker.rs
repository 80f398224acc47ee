//! Whether to ask the store at all.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// When to stop asking a store that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerConfig {
    /// So many failures one after the other …
    pub failures: u32,
    /// … within this time, and the store is not asked any more …
    pub within: Duration,
    /// … for so long, a year at the most. Then one request asks again, and the others do not wait for what it finds. If it fails, one asks
    /// every half a second, three more in all: the first may only have found that the connection is gone, and the next that making one takes longer than a check
    /// may.
    pub open_for: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failures: 5,
            within: Duration::from_secs(10),
            open_for: Duration::from_secs(30),
        }
    }
}

/// How many ask again after the first question failed, one at a time, before the store is left alone again.
const FURTHER_QUESTIONS: u8 = 3;

/// How long after a failure the next one asks.
const NEXT_QUESTION_AFTER: Duration = Duration::from_millis(500);

/// Longer times do not fit into a clock.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

#[derive(Debug)]
pub(super) struct Breaker {
    config: BreakerConfig,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// How many times it opened.
    opened: u64,
}

#[derive(Debug)]
enum Phase {
    /// The store is asked. These failures came one after the other, the oldest first.
    Closed { failures: Vec<Instant> },
    /// The store is not asked before this time. So many questions have failed since it was last.
    Open { until: Instant, failed: u8 },
    /// One asks. If it never comes back, another may from this time on.
    Probing { until: Instant, failed: u8 },
}

/// What changed, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Opened,
    /// The probe failed.
    OpenedAgain,
    Closed,
}

impl Breaker {
    pub(super) fn new(config: BreakerConfig) -> Self {
        Self {
            config: BreakerConfig {
                open_for: config.open_for.min(LONGEST),
                ..config
            },
            state: Mutex::new(State {
                phase: Phase::Closed {
                    failures: Vec::new(),
                },
                opened: 0,
            }),
        }
    }

    /// Whether this request may ask. If so, it must say what came of it.
    pub(super) fn may_ask(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Closed { .. } => true,
            Phase::Open { until, .. } | Phase::Probing { until, .. } if now < until => false,
            Phase::Open { failed, .. } | Phase::Probing { failed, .. } => {
                state.phase = Phase::Probing {
                    until: now + self.config.open_for,
                    failed,
                };
                true
            }
        }
    }

    /// Who was to say what came of it has gone. It may have been the probe, so another may ask at once.
    pub(super) fn given_up(&self, now: Instant) {
        let mut state = self.state.lock();
        if let Phase::Probing { failed, .. } = state.phase {
            let until = now;
            state.phase = Phase::Open { until, failed };
        }
    }

    /// The store answered.
    pub(super) fn succeeded(&self) -> Option<Change> {
        let mut state = self.state.lock();
        match &mut state.phase {
            Phase::Closed { failures } => {
                failures.clear();
                None
            }
            // To what was asked before it opened. If that closed it, a store that answers some would be asked by all again and again.
            Phase::Open { .. } => None,
            Phase::Probing { .. } => {
                state.phase = Phase::Closed {
                    failures: Vec::new(),
                };
                Some(Change::Closed)
            }
        }
    }

    /// The store did not answer, or not as it should.
    pub(super) fn failed(&self, now: Instant) -> Option<Change> {
        let mut state = self.state.lock();
        let change = match &mut state.phase {
            Phase::Closed { failures } => {
                failures.retain(|at| now.duration_since(*at) < self.config.within);
                failures.push(now);
                if failures.len() < self.config.failures as usize {
                    return None;
                }
                Change::Opened
            }
            // What was asked before it opened.
            Phase::Open { .. } => return None,
            Phase::Probing { failed, .. } if *failed < FURTHER_QUESTIONS => {
                state.phase = Phase::Open {
                    until: now + NEXT_QUESTION_AFTER.min(self.config.open_for),
                    failed: *failed + 1,
                };
                return None;
            }
            Phase::Probing { .. } => Change::OpenedAgain,
        };
        state.opened += u64::from(change == Change::Opened);
        state.phase = Phase::Open {
            until: now + self.config.open_for,
            failed: 0,
        };
        Some(change)
    }

    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state.lock().phase, Phase::Closed { .. })
    }

    pub(super) fn opened(&self) -> u64 {
        self.state.lock().opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn five_failures_one_after_the_other_open_it() {
        let (breaker, now) = (Breaker::new(BreakerConfig::default()), Instant::now());
        for _ in 0..4 {
            assert_eq!(breaker.failed(now), None);
        }
        assert_eq!(breaker.succeeded(), None);
        for _ in 0..4 {
            assert_eq!(breaker.failed(now), None);
        }
        assert!(breaker.may_ask(now));
        assert_eq!(breaker.failed(now), Some(Change::Opened));
        assert!(!breaker.may_ask(now) && breaker.is_open());
    }

    #[test]
    fn an_answer_to_what_was_asked_before_does_not_close_it() {
        let (breaker, now) = (Breaker::new(BreakerConfig::default()), Instant::now());
        for _ in 0..5 {
            breaker.failed(now);
        }
        assert_eq!(breaker.succeeded(), None);
        assert!(breaker.is_open() && !breaker.may_ask(now));
    }

    #[test]
    fn failures_long_past_do_not_count() {
        let (breaker, now) = (Breaker::new(BreakerConfig::default()), Instant::now());
        for i in 0..20 {
            assert_eq!(breaker.failed(now + 3 * i * SECOND), None, "{i}");
        }
    }

    #[test]
    fn after_a_while_one_asks_and_its_answer_decides() {
        let (breaker, now) = (Breaker::new(BreakerConfig::default()), Instant::now());
        for _ in 0..5 {
            breaker.failed(now);
        }
        let later = now + 30 * SECOND;
        assert!(!breaker.may_ask(later - Duration::from_millis(1)));
        assert!(breaker.may_ask(later));
        assert!(!breaker.may_ask(later), "one probe");
        // It may only have found that the connection is gone, and the next ones that a new one takes its time.
        let mut soon = later;
        for _ in 0..3 {
            assert_eq!(breaker.failed(soon), None);
            soon += SECOND / 2;
            assert!(!breaker.may_ask(soon - Duration::from_millis(1)));
            assert!(breaker.may_ask(soon) && !breaker.may_ask(soon));
        }
        assert_eq!(breaker.failed(soon), Some(Change::OpenedAgain));
        assert!(!breaker.may_ask(soon + 29 * SECOND));
        assert!(breaker.may_ask(soon + 30 * SECOND));
        assert_eq!(breaker.succeeded(), Some(Change::Closed));
        assert!(breaker.may_ask(soon + 30 * SECOND));
        assert_eq!(breaker.opened(), 1);
    }

    #[test]
    fn after_a_probe_that_was_given_up_another_asks() {
        let (breaker, now) = (Breaker::new(BreakerConfig::default()), Instant::now());
        breaker.given_up(now);
        assert!(!breaker.is_open());
        for _ in 0..5 {
            breaker.failed(now);
        }
        breaker.given_up(now);
        assert!(!breaker.may_ask(now), "that was no probe");
        let later = now + 30 * SECOND;
        assert!(breaker.may_ask(later));
        breaker.given_up(later);
        assert!(breaker.may_ask(later) && !breaker.may_ask(later));
    }

    #[test]
    fn it_may_be_told_to_stay_open_for_ever() {
        let config = BreakerConfig {
            failures: 1,
            open_for: Duration::MAX,
            ..BreakerConfig::default()
        };
        let (breaker, now) = (Breaker::new(config), Instant::now());
        assert_eq!(breaker.failed(now), Some(Change::Opened));
        assert!(!breaker.may_ask(now + 86_400 * SECOND));
    }

    #[test]
    fn a_probe_that_never_comes_back_does_not_keep_it_open() {
        let (breaker, now) = (Breaker::new(BreakerConfig::default()), Instant::now());
        for _ in 0..5 {
            breaker.failed(now);
        }
        assert!(breaker.may_ask(now + 30 * SECOND));
        assert!(breaker.may_ask(now + 60 * SECOND));
    }
}
