//! How decisions were made in the last minute.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Seconds that are looked back on.
const WINDOW: u64 = 60;
/// One second each, with some room so that the one being written is never among those being read.
const SLOTS: usize = 64;

/// Counts decisions by the second. Counts may be off by a few where two threads enter a new second at once.
#[derive(Debug)]
pub(super) struct Recent {
    started: Instant,
    slots: [Slot; SLOTS],
}

#[derive(Debug, Default)]
struct Slot {
    second: AtomicU64,
    by_store: AtomicU64,
    without: AtomicU64,
}

impl Recent {
    pub(super) fn new(started: Instant) -> Self {
        Self {
            started,
            slots: std::array::from_fn(|_| Slot::default()),
        }
    }

    pub(super) fn count(&self, now: Instant, by_store: bool) {
        // From 1 on: 0 is a slot that was never used.
        let second = self.second(now);
        let slot = &self.slots[usize::try_from(second).unwrap_or(0) % SLOTS];
        if slot.second.load(Relaxed) != second {
            slot.second.store(second, Relaxed);
            slot.by_store.store(0, Relaxed);
            slot.without.store(0, Relaxed);
        }
        match by_store {
            true => slot.by_store.fetch_add(1, Relaxed),
            false => slot.without.fetch_add(1, Relaxed),
        };
    }

    /// Decisions in the last minute: by the store, and without it.
    pub(super) fn totals(&self, now: Instant) -> (u64, u64) {
        let second = self.second(now);
        let recent = (self.slots.iter()).filter(|slot| {
            let counted = slot.second.load(Relaxed);
            counted > 0 && counted <= second && second - counted < WINDOW
        });
        recent.fold((0, 0), |(by_store, without), slot| {
            (
                by_store + slot.by_store.load(Relaxed),
                without + slot.without.load(Relaxed),
            )
        })
    }

    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.started).as_secs() + 1
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_the_last_minute_counts() {
        let start = Instant::now();
        let recent = Recent::new(start);
        let at = |seconds| start + Duration::from_secs(seconds);
        recent.count(at(0), false);
        for second in 1..=200 {
            recent.count(at(second), true);
            recent.count(at(second), true);
        }
        recent.count(at(200), false);
        assert_eq!(recent.totals(at(200)), (120, 1));
        assert_eq!(recent.totals(at(230)), (60, 1));
        assert_eq!(recent.totals(at(300)), (0, 0));
        assert_eq!(recent.totals(at(0)), (0, 0), "a clock that goes back");
    }
}
