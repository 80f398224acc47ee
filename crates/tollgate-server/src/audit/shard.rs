//! What the threads of one lane noted: the folds of the current second and the one before, behind one lock.
//!
//! Nothing here takes longer than a look into a map: rows are made before, and full seconds are handed over whole. A
//! bucket that several threads denied for has a fold in each of their lanes; they become one when they are collected.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::fold::{Fold, Violation};

/// How long after its end a second may still be added to.
const GRACE_US: i64 = 250_000;
const SECOND_US: i64 = 1_000_000;

/// Folds by identity, which is a hash already.
pub(super) type Folds = HashMap<u64, Box<Fold>, BuildHasherDefault<AsItIs>>;

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

/// How many folds there may be in all shards together.
#[derive(Debug, Default)]
pub(super) struct Room {
    most: usize,
    taken: AtomicUsize,
}

impl Room {
    pub(super) fn for_at_most(most: usize) -> Self {
        Self {
            most,
            taken: AtomicUsize::new(0),
        }
    }

    fn is_left(&self) -> bool {
        self.taken.load(Relaxed) < self.most
    }

    fn take(&self) -> bool {
        // Looked at first: who finds it full leaves the memory alone that others look at.
        if !self.is_left() {
            return false;
        }
        let is_ours = self.taken.fetch_add(1, Relaxed) < self.most;
        if !is_ours {
            self.give_back(1);
        }
        is_ours
    }

    fn give_back(&self, folds: usize) {
        self.taken.fetch_sub(folds, Relaxed);
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Relaxed).min(self.most)
    }
}

#[derive(Default)]
pub(super) struct Shard {
    /// Even seconds and odd ones, so that threads that are a moment apart do not undo each other's.
    slots: [Slot; 2],
    /// Seconds that gave way to later ones before anybody took them.
    sealed: Vec<Folds>,
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
    /// Adds to a fold that is there.
    pub(super) fn count(
        &mut self,
        second: i64,
        identity: u64,
        violation: &Violation<'_>,
        room: &Room,
    ) -> Noted {
        if let Some(fold) = self.slot(second).folds.get_mut(&identity) {
            fold.add(violation);
            self.noted += 1;
            self.folded += 1;
            return Noted::Done;
        }
        if self.closed || !room.is_left() {
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
        violation: &Violation<'_>,
        fold: Box<Fold>,
        room: &Room,
    ) {
        if self.count(second, identity, violation, room) == Noted::Done {
            return;
        }
        self.noted += 1;
        match room.take() {
            true => drop(self.slot(second).folds.insert(identity, fold)),
            false => self.lost += 1,
        }
    }

    /// Hands over the seconds that are over.
    pub(super) fn take_over(&mut self, now_us: i64, room: &Room) -> Vec<Folds> {
        let current = (now_us - GRACE_US).div_euclid(SECOND_US);
        // A clock that was set back leaves seconds that seem to be still to come.
        let is_over = |slot: &Slot| slot.second < current || slot.second > current + 2;
        let mut taken = std::mem::take(&mut self.sealed);
        for slot in self.slots.iter_mut().filter(|slot| is_over(slot)) {
            taken.push(std::mem::take(&mut slot.folds));
        }
        room.give_back(taken.iter().map(HashMap::len).sum());
        taken
    }

    /// Hands over everything and takes nothing more.
    pub(super) fn take_all(&mut self, room: &Room) -> Vec<Folds> {
        self.closed = true;
        let mut taken = std::mem::take(&mut self.sealed);
        taken.extend(
            self.slots
                .iter_mut()
                .map(|slot| std::mem::take(&mut slot.folds)),
        );
        room.give_back(taken.iter().map(HashMap::len).sum());
        taken
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
    use std::time::{Duration, SystemTime};

    use tollgate::Source;

    use super::*;

    fn note(shard: &mut Shard, second: i64, bucket: u64, room: &Room) {
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
        if shard.count(second, identity, &violation, room) == Noted::New {
            let fold = Box::new(Fold::of(&violation));
            shard.insert(second, identity, &violation, fold, room);
        }
    }

    fn counts(taken: &[Folds]) -> i64 {
        let folds = taken.iter().flat_map(HashMap::values);
        folds.map(|fold| fold.count()).sum()
    }

    #[test]
    fn a_second_is_handed_over_when_it_is_over_and_no_sooner() {
        let (mut shard, room) = (Shard::default(), Room::for_at_most(10));
        for _ in 0..5 {
            note(&mut shard, 100, 1, &room);
        }
        assert_eq!(
            counts(&shard.take_over(100 * SECOND_US + 900_000, &room)),
            0
        );
        assert_eq!(
            counts(&shard.take_over(101 * SECOND_US + 200_000, &room)),
            0
        );
        note(&mut shard, 100, 1, &room);
        note(&mut shard, 101, 1, &room);
        assert_eq!(
            counts(&shard.take_over(101 * SECOND_US + 300_000, &room)),
            6
        );
        assert_eq!(
            counts(&shard.take_over(102 * SECOND_US + 300_000, &room)),
            1
        );
        assert_eq!(room.taken(), 0);
    }

    #[test]
    fn what_nobody_takes_is_bounded_and_the_rest_is_counted_as_lost() {
        let (mut shard, room) = (Shard::default(), Room::for_at_most(10));
        for second in 0..100 {
            for bucket in 0..3 {
                note(&mut shard, second, bucket, &room);
            }
        }
        assert_eq!(room.taken(), 10);
        assert_eq!((shard.noted, shard.lost), (300, 290));
        assert_eq!(counts(&shard.take_all(&room)), 10);
        note(&mut shard, 200, 1, &room);
        assert_eq!((shard.noted, shard.lost, room.taken()), (301, 291, 0));
    }

    #[test]
    fn clocks_that_jump_lose_nothing() {
        let (mut shard, room) = (Shard::default(), Room::for_at_most(10));
        for second in [1_000, 5, 1_001, 999, 1_000, 6] {
            note(&mut shard, second, 7, &room);
        }
        assert_eq!(
            counts(&shard.take_over(7 * SECOND_US, &room)),
            6,
            "what seems to be in the future goes"
        );
        assert_eq!(shard.noted, 6);
    }
}
