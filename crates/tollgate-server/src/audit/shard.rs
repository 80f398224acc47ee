//! The violations of the threads of one shard: the folds of the current second and the one before, behind one lock.
//!
//! Holding the lock never takes longer than a lookup in a map: rows are made before, and complete seconds are moved as a whole. A
//! bucket that several threads denied has a fold in each of their shards. They are merged when they are collected.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use foldhash::fast::FixedState;

use super::TrailStats;
use super::fold::{Fold, Violation};

/// How long after its end a second may still be added to.
const GRACE_US: i64 = 250_000;
const SECOND_US: i64 = 1_000_000;

/// Folds by identity, which is a keyed hash.
pub(super) type Folds = HashMap<u64, Box<Fold>, FixedState>;

/// The maximum number of folds in all shards together.
#[derive(Debug)]
pub(super) struct FoldLimit {
    max: usize,
    held: AtomicUsize,
}

impl FoldLimit {
    pub(super) fn new(max: usize) -> Self {
        let held = AtomicUsize::new(0);
        Self { max, held }
    }

    fn is_reached(&self) -> bool {
        self.held.load(Relaxed) >= self.max
    }

    fn take(&self) -> bool {
        // Read first: a thread that finds it full does not write to memory that others read.
        if self.is_reached() {
            return false;
        }
        let is_taken = self.held.fetch_add(1, Relaxed) < self.max;
        if !is_taken {
            self.give_back(1);
        }
        is_taken
    }

    fn give_back(&self, folds: usize) {
        self.held.fetch_sub(folds, Relaxed);
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Relaxed).min(self.max)
    }
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Even seconds and odd ones, so that threads that are a moment apart use different slots.
    slots: [Slot; 2],
    /// Seconds that were replaced by later ones before they were collected.
    sealed: Vec<Folds>,
    closed: bool,
    pub(super) stats: TrailStats,
}

#[derive(Debug, Default)]
struct Slot {
    second: i64,
    folds: Folds,
}

impl Shard {
    /// Counts a violation in its fold, or as lost if there is no room for a new one. Returns whether it was counted.
    pub(super) fn count(
        &mut self,
        second: i64,
        identity: u64,
        violation: &Violation<'_>,
        limit: &FoldLimit,
    ) -> bool {
        if let Some(fold) = self.slot(second).folds.get_mut(&identity) {
            fold.add(violation);
            self.stats.folded += 1;
        } else if self.closed || limit.is_reached() {
            self.stats.lost += 1;
        } else {
            return false;
        }
        self.stats.recorded += 1;
        true
    }

    /// Adds a fold, unless another thread has added it meanwhile or taken the last room.
    pub(super) fn insert(
        &mut self,
        second: i64,
        identity: u64,
        violation: &Violation<'_>,
        fold: Box<Fold>,
        limit: &FoldLimit,
    ) {
        if self.count(second, identity, violation, limit) {
            return;
        }
        self.stats.recorded += 1;
        match limit.take() {
            true => drop(self.slot(second).folds.insert(identity, fold)),
            false => self.stats.lost += 1,
        }
    }

    /// Removes the seconds that are complete.
    pub(super) fn take_complete(&mut self, now_us: i64, limit: &FoldLimit) -> Vec<Folds> {
        let current = (now_us - GRACE_US).div_euclid(SECOND_US);
        // A clock that was set back leaves seconds that seem to be in the future.
        self.take(limit, |second| second < current || second > current + 2)
    }

    /// Removes everything, and accepts nothing more.
    pub(super) fn take_all(&mut self, limit: &FoldLimit) -> Vec<Folds> {
        self.closed = true;
        self.take(limit, |_| true)
    }

    fn take(&mut self, limit: &FoldLimit, is_complete: impl Fn(i64) -> bool) -> Vec<Folds> {
        let mut taken = std::mem::take(&mut self.sealed);
        let slots = self.slots.iter_mut();
        for slot in slots.filter(|slot| is_complete(slot.second)) {
            taken.push(std::mem::take(&mut slot.folds));
        }
        limit.give_back(taken.iter().map(HashMap::len).sum());
        taken
    }

    fn slot(&mut self, second: i64) -> &mut Slot {
        let [even, odd] = &mut self.slots;
        let slot = if second % 2 == 0 { even } else { odd };
        if slot.second < second && !slot.folds.is_empty() {
            self.sealed.push(std::mem::take(&mut slot.folds));
        }
        if slot.folds.is_empty() {
            slot.second = second;
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use tollgate::Source;

    use super::*;

    fn record(shard: &mut Shard, second: i64, bucket: u64, limit: &FoldLimit) {
        // As the trail makes them: the second is part of the identity.
        let identity = bucket * 1_000_003 + second.unsigned_abs();
        let violation = Violation {
            rule: "a",
            per: &[],
            plan: None,
            client: None,
            ip: None,
            method: None,
            route: None,
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(second.unsigned_abs()),
            remaining: 0,
            cost: 1,
            source: Source::Store,
            generation: 1,
        };
        if !shard.count(second, identity, &violation, limit) {
            let fold = Box::new(Fold::new(&violation));
            shard.insert(second, identity, &violation, fold, limit);
        }
    }

    fn counts(taken: &[Folds]) -> i64 {
        let folds = taken.iter().flat_map(HashMap::values);
        folds.map(|fold| fold.count()).sum()
    }

    #[test]
    fn a_second_is_taken_when_it_is_complete() {
        let (mut shard, limit) = (Shard::default(), FoldLimit::new(10));
        for _ in 0..5 {
            record(&mut shard, 100, 1, &limit);
        }
        assert_eq!(
            counts(&shard.take_complete(100 * SECOND_US + 900_000, &limit)),
            0
        );
        assert_eq!(
            counts(&shard.take_complete(101 * SECOND_US + 200_000, &limit)),
            0
        );
        record(&mut shard, 100, 1, &limit);
        record(&mut shard, 101, 1, &limit);
        assert_eq!(
            counts(&shard.take_complete(101 * SECOND_US + 300_000, &limit)),
            6
        );
        assert_eq!(
            counts(&shard.take_complete(102 * SECOND_US + 300_000, &limit)),
            1
        );
        assert_eq!(limit.held(), 0);
    }

    #[test]
    fn violations_beyond_the_limit_are_counted_as_lost() {
        let (mut shard, limit) = (Shard::default(), FoldLimit::new(10));
        for second in 0..100 {
            for bucket in 0..3 {
                record(&mut shard, second, bucket, &limit);
            }
        }
        assert_eq!(limit.held(), 10);
        assert_eq!((shard.stats.recorded, shard.stats.lost), (300, 290));
        assert_eq!(counts(&shard.take_all(&limit)), 10);
        record(&mut shard, 200, 1, &limit);
        assert_eq!(
            (shard.stats.recorded, shard.stats.lost, limit.held()),
            (301, 291, 0)
        );
    }

    #[test]
    fn a_clock_that_jumps_loses_nothing() {
        let (mut shard, limit) = (Shard::default(), FoldLimit::new(10));
        for second in [1_000, 5, 1_001, 999, 1_000, 6] {
            record(&mut shard, second, 7, &limit);
        }
        assert_eq!(
            counts(&shard.take_complete(7 * SECOND_US, &limit)),
            6,
            "a second that seems to be in the future is taken"
        );
        assert_eq!(shard.stats.recorded, 6);
    }
}
