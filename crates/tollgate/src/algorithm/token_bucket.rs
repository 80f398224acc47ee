//! Token bucket: bursts up to the capacity, then the sustained rate, with no window boundary.
//!
//! Promise: over any interval, at most `capacity + rate × length` is admitted.

use super::level::Standing;
use super::{Arithmetic, Fit, Level, Look};
use crate::rate::{Rate, UTOK};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenBucket {
    rate: Rate,
    capacity: u64,
    /// The level of a full bucket: computed once, as every check needs it.
    full_utok: u64,
}

impl TokenBucket {
    pub(crate) fn new(rate: Rate, capacity: u64) -> Self {
        Self {
            rate,
            capacity,
            full_utok: capacity * UTOK + rate.most_part_utok(),
        }
    }

    pub(crate) fn rate(&self) -> &Rate {
        &self.rate
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }
}

impl TokenBucket {
    #[inline]
    fn standing(&self, level: &Level, now_us: u64) -> Standing {
        level.capped(self.full_utok).standing(&self.rate, now_us)
    }
}

impl Arithmetic for TokenBucket {
    type State = Level;

    /// As for every algorithm, but the level is drained once: this one is most of all checks.
    #[inline(always)]
    fn take(&self, level: &mut Level, now_us: u64, cost: u64, charging: bool) -> Look {
        let standing = self.standing(level, now_us);
        let remaining = standing.remaining(self.capacity);
        if cost > remaining {
            return Look {
                fit: Fit::Later {
                    ready_at_us: standing.ready_at_us(&self.rate, self.capacity, cost),
                },
                remaining,
                empty_at_us: self.empty_at_us(level),
                charged: false,
            };
        }
        let charged = charging && cost > 0;
        if charged {
            *level = standing.charged(cost);
        }
        Look {
            fit: Fit::Now,
            remaining: if charged { remaining - cost } else { remaining },
            empty_at_us: self.empty_at_us(level),
            charged,
        }
    }

    #[inline(always)]
    fn ready_at_us(&self, level: &Level, now_us: u64, cost: u64) -> u64 {
        self.standing(level, now_us)
            .ready_at_us(&self.rate, self.capacity, cost)
    }

    #[inline(always)]
    fn charge(&self, level: &mut Level, now_us: u64, cost: u64) {
        *level = self.standing(level, now_us).charged(cost);
    }

    fn refund(&self, level: &mut Level, now_us: u64, charged_at_us: u64, cost: u64) {
        level.refund(&self.rate, now_us, charged_at_us, cost);
    }

    #[inline(always)]
    fn remaining(&self, level: &Level, now_us: u64) -> u64 {
        self.standing(level, now_us).remaining(self.capacity)
    }

    #[inline(always)]
    fn empty_at_us(&self, level: &Level) -> u64 {
        level.capped(self.full_utok).falls_to_at_us(&self.rate, 0)
    }
}
