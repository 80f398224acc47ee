//! Sliding counter: this window's count, plus the last one's as far as it is still covered.
//!
//! Two numbers per key. It takes the last window's requests as spread evenly over it; where they were not,
//! the true count in some window can be off: docs/guarantees.md states by how much.

use super::Arithmetic;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlidingCounter {
    limit: u64,
    window_us: u64,
}

/// What was used in the aligned window in which `at_us` lies, and in the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) at_us: u64,
    pub(crate) current: u32,
    pub(crate) previous: u32,
}

impl Counter {
    pub(super) fn holding(used: u64, at_us: u64) -> Self {
        Self {
            at_us,
            current: to_count(used),
            previous: 0,
        }
    }

    pub(super) fn used(&self) -> u64 {
        u64::from(self.current) + u64::from(self.previous)
    }
}

impl SlidingCounter {
    pub(crate) const fn new(limit: u64, window_us: u64) -> Self {
        Self { limit, window_us }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn window_us(&self) -> u64 {
        self.window_us
    }

    fn start_us(&self, at_us: u64) -> u64 {
        at_us - at_us % self.window_us
    }

    /// The two counts as of `now_us`.
    fn standing(&self, counter: &Counter, now_us: u64) -> Counter {
        let at_us = now_us.max(counter.at_us);
        let passed = self.start_us(at_us) - self.start_us(counter.at_us);
        let (current, previous) = if passed == 0 {
            (counter.current, counter.previous)
        } else if passed == self.window_us {
            (0, counter.current)
        } else {
            (0, 0)
        };
        Counter {
            at_us,
            current,
            previous,
        }
    }

    /// What counts: the current window, and the still covered share of the previous one, rounded up.
    fn weighed(&self, standing: &Counter) -> u64 {
        let covered_us = self.window_us - standing.at_us % self.window_us;
        let previous = u128::from(standing.previous) * u128::from(covered_us);
        u64::from(standing.current) + at_most_count(previous.div_ceil(u128::from(self.window_us)))
    }

    /// How long before the end of a window `count` requests of the window before weigh no more than `room`.
    fn covered_us(&self, count: u32, room: u64) -> u64 {
        if count == 0 {
            return self.window_us;
        }
        let covered_us = u128::from(room) * u128::from(self.window_us) / u128::from(count);
        u64::try_from(covered_us).map_or(self.window_us, |us| us.min(self.window_us))
    }
}

impl Arithmetic for SlidingCounter {
    type State = Counter;

    fn ready_at_us(&self, counter: &Counter, now_us: u64, cost: u64) -> u64 {
        let standing = self.standing(counter, now_us);
        let end_us = self.start_us(standing.at_us) + self.window_us;
        match self.limit.checked_sub(u64::from(standing.current) + cost) {
            // Room beside this window's own count: wait until enough of the previous window is past.
            Some(room) => end_us - self.covered_us(standing.previous, room),
            // Only the next window can hold it, once enough of this one is past.
            None => end_us + self.window_us - self.covered_us(standing.current, self.limit - cost),
        }
    }

    fn charge(&self, counter: &mut Counter, now_us: u64, cost: u64) {
        *counter = self.standing(counter, now_us);
        counter.current = to_count(u64::from(counter.current) + cost);
    }

    fn refund(&self, counter: &mut Counter, now_us: u64, charged_at_us: u64, cost: u64) {
        let now = self.standing(counter, now_us);
        // The state keeps its own mark; only counts that still matter at `now` are worth correcting.
        if self.start_us(now.at_us) - self.start_us(counter.at_us) > self.window_us {
            return;
        }
        let start_us = self.start_us(counter.at_us);
        if self.start_us(charged_at_us) == start_us {
            counter.current = counter.current.saturating_sub(to_count(cost));
        } else if self.start_us(charged_at_us) + self.window_us == start_us {
            counter.previous = counter.previous.saturating_sub(to_count(cost));
        }
    }

    fn remaining(&self, counter: &Counter, now_us: u64) -> u64 {
        let standing = self.standing(counter, now_us);
        self.limit.saturating_sub(self.weighed(&standing))
    }

    fn empty_at_us(&self, counter: &Counter) -> u64 {
        let windows = match (counter.current, counter.previous) {
            (0, 0) => 0,
            (0, _) => 1,
            _ => 2,
        };
        self.start_us(counter.at_us) + windows * self.window_us
    }
}

/// No limit is higher, so whatever is beyond it counts as full.
pub(crate) const MAX_COUNT: u32 = 4_000_000_000;

fn to_count(n: u64) -> u32 {
    u32::try_from(n).map_or(MAX_COUNT, |n| n.min(MAX_COUNT))
}

fn at_most_count(n: u128) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
