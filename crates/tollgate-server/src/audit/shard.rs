//! A part of what is held in memory: the folds of the current second and the one before, behind one lock.
//!
//! Nothing here takes longer than a look into a map: rows are made before, and full seconds are handed over whole.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::database::ViolationRow;

/// How long after its end a second may still be added to.
const GRACE_US: i64 = 250_000;
const SECOND_US: i64 = 1_000_000;

/// Folds by identity, which is a hash already.
pub(super) type Folds = HashMap<u64, Box<ViolationRow>, BuildHasherDefault<AsItIs>>;

/// Takes a hash for a hash.
#[derive(Default)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// What became of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// It is one more of a fold that is there, or it is lost.
    Done,
    /// It needs a fold of its own, and there is room.
    New,
}

#[derive(Default)]
pub(super) struct Shard {
    /// Even seconds and odd ones, so that threads that are a moment apart do not undo each other's.
    slots: [Slot; 2],
    /// Seconds that gave way to later ones before anybody took them.
    sealed: Vec<Folds>,
    held: usize,
    closed: bool,
    pub(super) noted: u64,
    pub(super) folded: u64,
    pub(super) lost: u64,
}

#[derive(Default)]
struct Slot {
    second: i64,
    folds: Folds,
}

impl Shard {
    /// Adds to a fold that is there. `most` is how many there may be.
    pub(super) fn count(&mut self, second: i64, identity: u64, most: usize) -> Noted {
        if let Some(row) = self.slot(second).folds.get_mut(&identity) {
            row.count = row.count.saturating_add(1);
            self.noted += 1;
            self.folded += 1;
            return Noted::Done;
        }
        if self.held >= most || self.closed {
            self.noted += 1;
            self.lost += 1;
            return Noted::Done;
        }
        Noted::New
    }

    /// Adds a fold, unless somebody else did meanwhile or took the last room.
    pub(super) fn insert(
        &mut self,
        second: i64,
        identity: u64,
        row: Box<ViolationRow>,
        most: usize,
    ) {
        if self.count(second, identity, most) == Noted::New {
            self.slot(second).folds.insert(identity, row);
            self.held += 1;
            self.noted += 1;
        }
    }

    /// Hands over the seconds that are over.
    pub(super) fn take_over(&mut self, now_us: i64) -> Vec<Folds> {
        let current = (now_us - GRACE_US).div_euclid(SECOND_US);
        // A clock that was set back leaves seconds that seem to be still to come.
        let is_over = |slot: &Slot| slot.second < current || slot.second > current + 2;
        let mut taken = std::mem::take(&mut self.sealed);
        for slot in self.slots.iter_mut().filter(|slot| is_over(slot)) {
            taken.push(std::mem::take(&mut slot.folds));
        }
        self.let_go(&taken);
        taken
    }

    /// Hands over everything and takes nothing more.
    pub(super) fn take_all(&mut self) -> Vec<Folds> {
        self.closed = true;
        let mut taken = std::mem::take(&mut self.sealed);
        taken.extend(
            self.slots
                .iter_mut()
                .map(|slot| std::mem::take(&mut slot.folds)),
        );
        self.let_go(&taken);
        taken
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }

    fn let_go(&mut self, taken: &[Folds]) {
        let folds: usize = taken.iter().map(HashMap::len).sum();
        self.held -= folds;
    }

    fn slot(&mut self, second: i64) -> &mut Slot {
        let slot = match second.rem_euclid(2) {
            0 => &mut self.slots[0],
            _ => &mut self.slots[1],
        };
        if slot.second < second {
            if !slot.folds.is_empty() {
                self.sealed.push(std::mem::take(&mut slot.folds));
            }
            slot.second = second;
        } else if slot.folds.is_empty() {
            slot.second = second;
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 10;

    fn note(shard: &mut Shard, second: i64, bucket: u64) {
        // As the trail makes them: the second is part of the identity.
        let identity = bucket * 1_000_003 + second.unsigned_abs();
        if shard.count(second, identity, MOST) == Noted::New {
            let row = ViolationRow {
                count: 1,
                at_us: second * SECOND_US,
                ..ViolationRow::default()
            };
            shard.insert(second, identity, Box::new(row), MOST);
        }
    }

    fn counts(taken: &[Folds]) -> i64 {
        let rows = taken.iter().flat_map(HashMap::values);
        rows.map(|row| row.count).sum()
    }

    #[test]
    fn a_second_is_handed_over_when_it_is_over_and_no_sooner() {
        let mut shard = Shard::default();
        for _ in 0..5 {
            note(&mut shard, 100, 1);
        }
        assert_eq!(counts(&shard.take_over(100 * SECOND_US + 900_000)), 0);
        assert_eq!(counts(&shard.take_over(101 * SECOND_US + 200_000)), 0);
        note(&mut shard, 100, 1);
        note(&mut shard, 101, 1);
        assert_eq!(counts(&shard.take_over(101 * SECOND_US + 300_000)), 6);
        assert_eq!(counts(&shard.take_over(102 * SECOND_US + 300_000)), 1);
        assert_eq!(shard.held(), 0);
    }

    #[test]
    fn what_nobody_takes_is_bounded_and_the_rest_is_counted_as_lost() {
        let mut shard = Shard::default();
        for second in 0..100 {
            for bucket in 0..3 {
                note(&mut shard, second, bucket);
            }
        }
        assert_eq!(shard.held(), MOST);
        assert_eq!((shard.noted, shard.lost), (300, 290));
        assert_eq!(counts(&shard.take_all()), 10);
        note(&mut shard, 200, 1);
        assert_eq!((shard.noted, shard.lost, shard.held()), (301, 291, 0));
    }

    #[test]
    fn clocks_that_jump_lose_nothing() {
        let mut shard = Shard::default();
        for second in [1_000, 5, 1_001, 999, 1_000, 6] {
            note(&mut shard, second, 7);
        }
        assert_eq!(
            counts(&shard.take_over(7 * SECOND_US)),
            6,
            "what seems to be in the future goes"
        );
        assert_eq!(shard.noted, 6);
    }
}
