//! The five algorithms: pure arithmetic over what was used.
//!
//! Each file holds one algorithm as functions of (state, now, cost). None knows a clock, a lock, a key or a
//! map; times are integer microseconds since the Unix epoch; nothing is rounded in the caller's favour.
//!
//! **State is what was used, and when that was true**, never what is left. So a limit can change under a
//! running bucket: what was used stays used, and from then on it drains at the new rate. When the algorithm
//! itself changes, the amount used moves over into the new form.
//!
//! **Time stands still rather than going back**: a `now` before the state's own mark is taken as the mark.

mod fixed_window;
mod leaky_bucket;
mod level;
mod sliding_counter;
mod sliding_log;
mod token_bucket;

pub(crate) use fixed_window::{FixedWindow, Window};
pub(crate) use leaky_bucket::LeakyBucket;
pub(crate) use level::Level;
pub(crate) use sliding_counter::{Counter, MAX_COUNT, SlidingCounter};
pub(crate) use sliding_log::{Log, SlidingLog};
pub(crate) use token_bucket::TokenBucket;

/// What a limit says about one cost at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It may go.
    Now,
    /// It is let in, and may go at this time (leaky bucket).
    Queued {
        /// When, in microseconds since the Unix epoch.
        go_at_us: u64,
    },
    /// It is denied; alone on its key it passes from exactly this time on.
    Later {
        /// When, in microseconds since the Unix epoch.
        ready_at_us: u64,
    },
    /// It is denied for ever: it costs more than the limit holds.
    Never,
}

impl Fit {
    /// Whether it is let in.
    #[must_use]
    pub fn admits(self) -> bool {
        matches!(self, Self::Now | Self::Queued { .. })
    }
}

/// What one limit says about one charge, and how it stands afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) fit: Fit,
    pub(crate) remaining: u64,
    pub(crate) empty_at_us: u64,
    pub(crate) charged: bool,
}

/// What has been used of one limit, in the form its algorithm keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Token and leaky bucket.
    Level(Level),
    /// Fixed window.
    Window(Window),
    /// Sliding counter.
    Counter(Counter),
    /// Sliding log: boxed, as the other forms are small and moved about a lot.
    Log(Box<Log>),
}

/// What every algorithm can do with its own form of state. `now_us` may lie before the state's mark.
pub(crate) trait Arithmetic {
    type State;

    /// Whole tokens that fit now. A cost up to this is admitted.
    fn remaining(&self, state: &Self::State, now_us: u64) -> u64;

    /// When a cost that does not fit now, but could, fits.
    fn ready_at_us(&self, state: &Self::State, now_us: u64, cost: u64) -> u64;

    /// When an admitted request may go, if not at once.
    fn go_at_us(&self, _state: &Self::State, _now_us: u64) -> Option<u64> {
        None
    }

    /// Adds a cost that fits: from then on, that much less [remains](Self::remaining).
    fn charge(&self, state: &mut Self::State, now_us: u64, cost: u64);

    /// Takes back a cost that was charged at `charged_at_us`, as far as it still counts.
    fn refund(&self, state: &mut Self::State, now_us: u64, charged_at_us: u64, cost: u64);

    /// From when on the state says nothing: the bucket is as good as new.
    fn empty_at_us(&self, state: &Self::State) -> u64;

    /// Whether a cost within the capacity fits, when the algorithm says this much remains.
    fn fit(&self, state: &Self::State, now_us: u64, cost: u64, remaining: u64) -> Fit {
        if cost > remaining {
            let ready_at_us = self.ready_at_us(state, now_us, cost);
            return Fit::Later { ready_at_us };
        }
        match self.go_at_us(state, now_us) {
            None => Fit::Now,
            Some(go_at_us) => Fit::Queued { go_at_us },
        }
    }

    /// All of it in one: whether a cost within the capacity fits, and its charge if it does and `charging`.
    #[inline(always)]
    fn take(&self, state: &mut Self::State, now_us: u64, cost: u64, charging: bool) -> Look {
        let mut remaining = self.remaining(state, now_us);
        let fit = match cost {
            0 => Fit::Now,
            _ => self.fit(state, now_us, cost, remaining),
        };
        let charged = charging && cost > 0 && fit.admits();
        if charged {
            self.charge(state, now_us, cost);
            remaining -= cost;
        }
        Look {
            fit,
            remaining,
            empty_at_us: self.empty_at_us(state),
            charged,
        }
    }
}

impl State {
    /// The time this state was true at.
    pub(crate) fn at_us(&self) -> u64 {
        self.usage().0
    }

    /// Makes a fresh state one of `used` whole tokens at a time.
    pub(crate) fn hold(&mut self, at_us: u64, used: u64) {
        match self {
            Self::Level(level) => *level = Level::holding(used, at_us),
            Self::Window(window) => *window = Window { at_us, used },
            Self::Log(log) => log.push(at_us, used),
            Self::Counter(counter) => *counter = Counter::holding(used, at_us),
        }
    }

    /// The amount used in whole tokens, rounded up, and when that was true.
    pub(crate) fn usage(&self) -> (u64, u64) {
        match self {
            Self::Level(level) => (level.at_us, level.used()),
            Self::Window(window) => (window.at_us, window.used),
            Self::Counter(counter) => (counter.at_us, counter.used()),
            Self::Log(log) => (log.last_us(), log.used()),
        }
    }
}
