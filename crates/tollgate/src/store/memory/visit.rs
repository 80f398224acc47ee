//! The walk of a request through the memory store: lock, look, charge all or none.

use parking_lot::MutexGuard;
use smallvec::{SmallVec, smallvec};
use std::sync::atomic::Ordering;

use super::MemoryStore;
use super::shard::{Ask, Shard};
use crate::algorithm::{Fit, Look};
use crate::store::{Charge, Outcome, Taken};

/// Slots to look at every 64 takes: each is seen again after eight times as many takes as there are slots.
const SLOTS_PER_CLEANING: usize = 8;

/// A charge at its bucket. A request with several stops at one after the other, in the order of the shards.
struct Stop {
    /// Which of the charges.
    charge: usize,
    shard: usize,
    fingerprint: u64,
    /// Where in its shard; `None` for a key never seen.
    index: Option<usize>,
    /// Whether the bucket stands for many keys, as the store is full.
    shared: bool,
    /// Whether it was charged at the first look.
    charged: bool,
}

/// A shard that is locked, and the time that was read once it was.
struct Locked<'a> {
    number: usize,
    shard: MutexGuard<'a, Shard>,
    now_us: u64,
}

impl MemoryStore {
    /// Looks at the buckets of a request, and charges them if `charging` and all that decide have room.
    pub(super) fn visit(&self, charges: &[Charge<'_>], charging: bool) -> Taken {
        match charges {
            [charge] => {
                let (outcome, at_us) = self.visit_one(charge, charging);
                Taken {
                    admitted: charge.shadow || outcome.fit.admits(),
                    at_us,
                    outcomes: smallvec![outcome],
                }
            }
            _ => self.visit_all(charges, charging),
        }
    }

    /// [`take`](crate::store::Store::take) from one bucket, for those who need no future to wait on. Also says when.
    pub(crate) fn take_one(&self, charge: &Charge<'_>) -> (Outcome, u64) {
        self.visit_one(charge, true)
    }

    /// One bucket behind one lock: most of all checks.
    fn visit_one(&self, charge: &Charge<'_>, charging: bool) -> (Outcome, u64) {
        let (number, fingerprint) = self.address(&charge.bucket);
        let mut shard = self.shards[number].0.lock();
        let index = shard.find(fingerprint);
        // Read under the lock, so that the times on a bucket come in order.
        let now_us = self.clock.now_us();
        let ask = ask(charge, now_us, charging);
        let (look, shared) = match index {
            Some(index) => (shard.take(index, &ask), false),
            None => self.visit_new(charge, fingerprint, &mut shard, &ask),
        };
        let is_time_to_clean = shard.count_take();
        drop(shard);
        if is_time_to_clean {
            self.clean(now_us);
        }
        (outcome(&look, shared, now_us), now_us)
    }

    /// A key that is not here. Also says whether it had to share.
    #[cold]
    fn visit_new(
        &self,
        charge: &Charge<'_>,
        own: u64,
        shard: &mut Shard,
        ask: &Ask<'_>,
    ) -> (Look, bool) {
        if ask.charging {
            self.room.give_back(shard.make_room(1, ask.now_us));
        }
        let (fingerprint, shared) = self.place_for_new(charge, own, shard, ask.charging);
        let look = match shard.find(fingerprint) {
            Some(index) => shard.take(index, ask),
            None => shard.look_at_nothing(ask),
        };
        self.settle(fingerprint, look.charged, shard);
        (look, shared)
    }

    /// Several buckets: lock and look at one shard after the other, then charge all or none.
    ///
    /// The bucket that comes last is everybody's, if there is one, and what all threads wait for. When all before it
    /// have room it decides alone, so it is looked at and charged in one go, and its lock is released at once.
    fn visit_all(&self, charges: &[Charge<'_>], charging: bool) -> Taken {
        let mut stops = self.stops(charges);
        let stops = stops.as_mut_slice();
        let mut locked: SmallVec<[Locked<'_>; 2]> = SmallVec::new();
        let mut outcomes: SmallVec<[Outcome; 4]> = smallvec![NO_OUTCOME; charges.len()];
        let (mut admitted, mut any_new) = (true, false);
        for i in 0..stops.len() {
            if locked
                .last()
                .is_none_or(|here| here.number != stops[i].shard)
            {
                let mut here = self.lock(stops[i].shard);
                any_new |= self.find_all(charges, &mut stops[i..], &mut here, charging);
                locked.push(here);
            }
            let Some(here) = locked.last_mut() else {
                continue;
            };
            let charge = &charges[stops[i].charge];
            let before = cost_before(charges, &stops[..=i]);
            let decides = admitted && before == 0 && i + 1 == stops.len();
            let mut ask = ask(charge, here.now_us, charging && decides);
            // Those before it on the same bucket must fit as well.
            ask.cost = ask.cost.saturating_add(before);
            let look = stops[i].take(&mut here.shard, &ask);
            admitted &= charge.shadow || look.fit.admits();
            outcomes[stops[i].charge] = outcome(&look, stops[i].shared, here.now_us);
            stops[i].charged = look.charged;
        }
        let at_us = locked
            .last()
            .map_or_else(|| self.clock.now_us(), |last| last.now_us);
        let mut is_time_to_clean = false;
        while let Some(mut here) = locked.pop() {
            for stop in stops.iter_mut().filter(|stop| stop.shard == here.number) {
                let outcome = &mut outcomes[stop.charge];
                // A shadow that has no room is left alone.
                if charging && admitted && !stop.charged && outcome.fit.admits() {
                    let ask = ask(&charges[stop.charge], here.now_us, true);
                    let look = stop.take(&mut here.shard, &ask);
                    outcome.remaining = look.remaining;
                    outcome.full_at_us = look.empty_at_us.max(here.now_us);
                    outcome.charged = look.charged;
                    stop.charged = look.charged;
                }
            }
            if any_new {
                // Only now: freeing a slot moves others.
                for stop in stops.iter().filter(|stop| stop.shard == here.number) {
                    self.settle(stop.fingerprint, stop.charged, &mut here.shard);
                }
            }
            is_time_to_clean |= here.shard.count_take();
        }
        if is_time_to_clean {
            self.clean(at_us);
        }
        Taken {
            admitted,
            at_us,
            outcomes,
        }
    }

    /// Where the charges of a request lie, in ascending order of the shards: all requests lock in the same order.
    fn stops(&self, charges: &[Charge<'_>]) -> SmallVec<[Stop; 4]> {
        let mut stops: SmallVec<[Stop; 4]> = SmallVec::new();
        for (i, charge) in charges.iter().enumerate() {
            let (shard, fingerprint) = self.address(&charge.bucket);
            stops.push(Stop {
                charge: i,
                shard,
                fingerprint,
                index: None,
                shared: false,
                charged: false,
            });
        }
        // Tiers are mostly in order already: the subject's first, everybody's last.
        if !stops.is_sorted_by_key(|stop| stop.shard) {
            stops.sort_unstable_by_key(|stop| (stop.shard, stop.charge));
        }
        stops
    }

    fn lock(&self, number: usize) -> Locked<'_> {
        let shard = self.shards[number].0.lock();
        Locked {
            number,
            shard,
            // Read under the lock, so that the times on a bucket come in order.
            now_us: self.clock.now_us(),
        }
    }

    /// Finds the buckets of a shard that was just locked; says whether any of them is new.
    fn find_all(
        &self,
        charges: &[Charge<'_>],
        stops: &mut [Stop],
        here: &mut Locked<'_>,
        charging: bool,
    ) -> bool {
        let end = stops.partition_point(|stop| stop.shard == here.number);
        let stops = &mut stops[..end];
        // Two look-ups one after the other would wait for memory twice.
        here.shard.touch(stops.iter().map(|stop| stop.fingerprint));
        let mut any_new = false;
        for stop in stops.iter_mut() {
            stop.index = here.shard.find(stop.fingerprint);
            any_new |= stop.index.is_none();
        }
        if any_new {
            self.place_new(charges, stops, here, charging);
        }
        any_new
    }

    /// Gives every key that is not here its place. Moves slots, so all of the shard are found anew.
    #[cold]
    fn place_new(
        &self,
        charges: &[Charge<'_>],
        stops: &mut [Stop],
        here: &mut Locked<'_>,
        charging: bool,
    ) {
        let shard = &mut here.shard;
        if charging {
            self.room
                .give_back(shard.make_room(stops.len(), here.now_us));
        }
        for stop in stops.iter_mut() {
            if shard.find(stop.fingerprint).is_none() {
                let charge = &charges[stop.charge];
                (stop.fingerprint, stop.shared) =
                    self.place_for_new(charge, stop.fingerprint, shard, charging);
            }
        }
        for stop in stops.iter_mut() {
            stop.index = shard.find(stop.fingerprint);
        }
    }

    /// Where a key goes that is not here: into a slot of its own, or into one that is shared where there is no room.
    /// What is everybody's always has its own: there is one per rule. Without charging, nothing is added.
    fn place_for_new(
        &self,
        charge: &Charge<'_>,
        own: u64,
        shard: &mut Shard,
        charging: bool,
    ) -> (u64, bool) {
        let Charge { bucket, limit, .. } = charge;
        if !charging {
            return match self.room.is_full() && !bucket.is_everybodys() {
                true => (self.shared_fingerprint(bucket.rule(), limit), true),
                false => (own, false),
            };
        }
        if bucket.is_everybodys() {
            self.room.take_anyway();
            shard.insert_blank(own);
            return (own, false);
        }
        if self.room.take() {
            shard.insert_blank(own);
            return (own, false);
        }
        self.shared.fetch_add(1, Ordering::Relaxed);
        let shared = self.shared_fingerprint(bucket.rule(), limit);
        if shard.find(shared).is_none() {
            self.room.take_anyway();
            shard.insert_blank(shared);
        }
        (shared, true)
    }

    /// Frees the slot of a new key that was not used after all. Moves slots: nothing may be looked at afterwards.
    fn settle(&self, fingerprint: u64, charged: bool, shard: &mut Shard) {
        if !charged && shard.remove_blank(fingerprint) {
            self.room.give_back(1);
        }
    }

    /// Clears a few slots that say nothing any more, in one shard after the other, so that those nobody asks for are
    /// cleaned as well. Never waits for a lock.
    #[cold]
    fn clean(&self, now_us: u64) {
        let number = self.next_to_clean.0.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        if let Some(mut shard) = self.shards[number].0.try_lock() {
            self.room.give_back(shard.sweep(SLOTS_PER_CLEANING, now_us));
        }
    }
}

impl Stop {
    /// Looks at the bucket, and charges it if that is asked and fits.
    fn take(&self, shard: &mut Shard, ask: &Ask<'_>) -> Look {
        match self.index {
            Some(index) => shard.take(index, ask),
            None => shard.look_at_nothing(ask),
        }
    }
}

fn ask<'a>(charge: &Charge<'a>, now_us: u64, charging: bool) -> Ask<'a> {
    Ask {
        limit: charge.limit,
        now_us,
        cost: charge.cost,
        charging,
    }
}

const NO_OUTCOME: Outcome = Outcome {
    fit: Fit::Now,
    remaining: 0,
    full_at_us: 0,
    at_us: 0,
    charged: false,
    shared: false,
};

#[inline]
fn outcome(look: &Look, shared: bool, now_us: u64) -> Outcome {
    Outcome {
        fit: look.fit,
        remaining: look.remaining,
        full_at_us: look.empty_at_us.max(now_us),
        at_us: now_us,
        charged: look.charged,
        shared,
    }
}

/// What the stops before the last one want of the same bucket; nothing matters to a charge that costs nothing.
fn cost_before(charges: &[Charge<'_>], stops: &[Stop]) -> u64 {
    match stops {
        [before @ .., last] if charges[last.charge].cost > 0 => before
            .iter()
            .filter(|stop| (stop.shard, stop.fingerprint) == (last.shard, last.fingerprint))
            // A shadow never stands in the way of what decides.
            .filter(|stop| charges[last.charge].shadow || !charges[stop.charge].shadow)
            .fold(0, |sum, stop| sum.saturating_add(charges[stop.charge].cost)),
        _ => 0,
    }
}
