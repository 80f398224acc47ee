//! Usage in this process: sharded by subject, bounded, cleaned as it goes.
//!
//! A key is known by a seeded 64-bit fingerprint of all its parts; the text itself is not kept. The shard is
//! chosen by the subject, so that the tiers of one client mostly lie behind one lock; the buckets that are
//! everybody's have a shard of their own, locked last and therefore held for the shortest time. A request locks
//! all shards it needs in ascending order, so two requests never wait for each other in a circle.

mod logs;
mod room;
mod shard;
mod slot;
mod table;

use std::convert::Infallible;
use std::hash::{BuildHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use parking_lot::{Mutex, MutexGuard};
use smallvec::{SmallVec, smallvec};

use super::{Charge, Fit, Outcome, Store, Taken};
use crate::algorithm::Look;
use crate::bucket::Bucket;
use crate::clock::Clock;
use crate::name::Name;
use room::Room;
use shard::{Ask, Shard};

/// How a [`MemoryStore`] is set up.
#[derive(Clone, Debug)]
pub struct MemoryConfig {
    /// The most keys to keep; 1,000,000 by default, which takes 30 to 60 MB. When there are more *live* keys, new
    /// ones share a few buckets per rule, and [`MemoryStats::shared`] counts it; no bucket in use is ever forgotten.
    pub max_keys: usize,
    /// The most entries in all sliding logs together, 16 bytes each; 4,000,000 by default. Beyond it entries are
    /// merged: a log then denies a little longer, and never admits more.
    pub max_log_entries: usize,
    /// Where the time comes from.
    pub clock: Clock,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            max_keys: 1_000_000,
            max_log_entries: 4_000_000,
            clock: Clock::system(),
        }
    }
}

/// What a [`MemoryStore`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Keys kept, including those that say nothing any more and have not been cleaned away yet.
    pub keys: usize,
    /// Keys that still say something.
    pub live_keys: usize,
    /// Entries in sliding logs.
    pub log_entries: usize,
    /// Slots allocated, 24 bytes each.
    pub slots: usize,
    /// How many times a key had to share a bucket because the store was full.
    pub shared: u64,
}

/// Keeps usage in this process.
#[derive(Debug)]
pub struct MemoryStore {
    /// A power of two of shards for subjects, and a last one for everybody's buckets.
    shards: Box<[Line<Mutex<Shard>>]>,
    room: Room,
    /// In each shard.
    max_log_entries: usize,
    seed: Seed,
    clock: Clock,
    shared: AtomicU64,
    /// Written now and then, so apart from what is read all the time.
    next_to_clean: Line<AtomicUsize>,
}

/// Slots to look at every 64 takes: each is seen again after eight times as many takes as there are slots.
const SLOTS_PER_CLEANING: usize = 8;

/// On a cache line of its own: neighbours' locks do not slow each other.
#[derive(Debug)]
#[repr(align(64))]
struct Line<T>(T);

type Locked<'a> = SmallVec<[(usize, MutexGuard<'a, Shard>); 2]>;
type Stops = SmallVec<[Stop; 4]>;

/// A charge at its bucket. A request with several stops at one after the other, in the order of the shards.
struct Stop {
    /// Which of the charges.
    charge: usize,
    shard: usize,
    fingerprint: u64,
    /// Which of the locked shards.
    lock: usize,
    /// Where in it; `None` for a key never seen.
    index: Option<usize>,
    /// Whether the bucket stands for many keys, as the store is full.
    shared: bool,
}

impl MemoryStore {
    /// A store with the default configuration.
    #[must_use]
    pub fn new() -> Self {
        Self::with(MemoryConfig::default())
    }

    /// A store with this configuration.
    #[must_use]
    pub fn with(config: MemoryConfig) -> Self {
        // Enough that threads seldom meet; for a small store fewer, so that its shards are not all slack.
        let shards = (config.max_keys / 64).clamp(1, 256).next_power_of_two();
        Self {
            shards: (0..=shards)
                .map(|_| Line(Mutex::new(Shard::new())))
                .collect(),
            room: Room::new(config.max_keys),
            max_log_entries: config.max_log_entries.div_ceil(shards),
            seed: Seed::random(),
            clock: config.clock,
            shared: AtomicU64::new(0),
            next_to_clean: Line(AtomicUsize::new(0)),
        }
    }

    /// What it holds. Looks at every key, so not for each request.
    #[must_use]
    pub fn stats(&self) -> MemoryStats {
        let now_us = self.clock.now_us();
        let mut stats = MemoryStats {
            keys: 0,
            live_keys: 0,
            log_entries: 0,
            slots: 0,
            shared: self.shared.load(Ordering::Relaxed),
        };
        for shard in &self.shards {
            let shard = shard.0.lock();
            stats.keys += shard.keys();
            stats.live_keys += shard.live_keys(now_us);
            stats.log_entries += shard.log_entries();
            stats.slots += shard.slots();
        }
        stats
    }

    /// Clears everything that says nothing any more, at once. Not needed: it happens by itself as requests come.
    pub fn sweep(&self) {
        let now_us = self.clock.now_us();
        for shard in &self.shards {
            let mut shard = shard.0.lock();
            // Twice round: once to remove, once to give back the memory.
            for _ in 0..2 {
                let slots = shard.slots() + shard.keys() + 1;
                self.room.give_back(shard.sweep(slots, now_us));
            }
        }
    }

    /// [`take`](Store::take) from one bucket, for those who need no future to wait on. Also says when.
    pub(crate) fn take_one(&self, charge: &Charge<'_>) -> (Outcome, u64) {
        self.visit_one(charge, true)
    }

    /// The shard of a bucket, and its fingerprint.
    #[inline]
    fn address(&self, bucket: &Bucket<'_>) -> (usize, u64) {
        let mut hasher = (&self.seed).build_hasher();
        let mut parts = bucket.parts();
        let everybody = self.shards.len() - 1;
        let shard = match parts.next() {
            None => everybody,
            Some(subject) => {
                subject.hash(&mut hasher);
                usize::try_from(hasher.finish() & (everybody as u64 - 1)).unwrap_or(0)
            }
        };
        // A bare key has no rule, and nothing else has its dimension.
        if !bucket.rule().is_none() {
            bucket.rule().hash(&mut hasher);
        }
        for part in parts {
            part.hash(&mut hasher);
        }
        (shard, hasher.finish().max(1))
    }

    /// The bucket that keys of a rule share when the store is full: one in each shard.
    fn shared_fingerprint(&self, rule: Name) -> u64 {
        (&self.seed).hash_one(("shared", rule)).max(1)
    }

    fn ask<'a>(&self, charge: &Charge<'a>, now_us: u64, charging: bool) -> Ask<'a> {
        Ask {
            limit: charge.limit,
            now_us,
            cost: charge.cost,
            charging,
            max_log_entries: self.max_log_entries,
        }
    }

    /// Looks at the buckets of a request, and charges them if `charging` and all that decide have room.
    fn visit(&self, charges: &[Charge<'_>], charging: bool) -> Taken {
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

    /// One bucket behind one lock: most of all checks.
    fn visit_one(&self, charge: &Charge<'_>, charging: bool) -> (Outcome, u64) {
        let (number, fingerprint) = self.address(&charge.bucket);
        let mut shard = self.shards[number].0.lock();
        // Read under the lock, so that the times on a bucket come in order.
        let now_us = self.clock.now_us();
        let ask = self.ask(charge, now_us, charging);
        let (look, shared) = match shard.find(fingerprint) {
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
        let (fingerprint, shared) = self.place_for_new(&charge.bucket, own, shard, ask.charging);
        let look = match shard.find(fingerprint) {
            Some(index) => shard.take(index, ask),
            None => shard.look_at_nothing(ask),
        };
        self.settle(fingerprint, shared, look.charged, shard);
        (look, shared)
    }

    /// Several buckets: lock and find one shard after the other, look at all, then charge all or none.
    fn visit_all(&self, charges: &[Charge<'_>], charging: bool) -> Taken {
        let mut locked = Locked::new();
        let mut stops = self.find_all(charges, &mut locked);
        let stops = stops.as_mut_slice();
        let now_us = self.clock.now_us();
        let any_new = stops.iter().any(|stop| stop.index.is_none());
        if any_new {
            self.place_all_new(charges, stops, &mut locked, charging, now_us);
        }
        let mut admitted = true;
        let mut outcomes: SmallVec<[Outcome; 4]> = smallvec![NO_OUTCOME; charges.len()];
        for (i, stop) in stops.iter().enumerate() {
            let charge = &charges[stop.charge];
            let mut ask = self.ask(charge, now_us, false);
            // Those before it on the same bucket must fit as well.
            ask.cost = ask.cost.saturating_add(cost_before(charges, &stops[..=i]));
            let look = stop.take(&mut locked, &ask);
            admitted &= charge.shadow || look.fit.admits();
            outcomes[stop.charge] = outcome(&look, stop.shared, now_us);
        }
        let mut is_time_to_clean = false;
        // The last shard first, and out: that one everybody wants.
        for stop in stops.iter().rev() {
            is_time_to_clean |= release_beyond(&mut locked, stop.lock);
            let outcome = &mut outcomes[stop.charge];
            // A shadow that has no room is left alone.
            let charged = charging && admitted && outcome.fit.admits() && {
                let ask = self.ask(&charges[stop.charge], now_us, true);
                let look = stop.take(&mut locked, &ask);
                outcome.remaining = look.remaining;
                outcome.full_at_us = look.empty_at_us.max(now_us);
                look.charged
            };
            if any_new {
                let shard = &mut locked[stop.lock].1;
                self.settle(stop.fingerprint, stop.shared, charged, shard);
            }
        }
        if let Some((_, shard)) = locked.first_mut() {
            is_time_to_clean |= shard.count_take();
        }
        drop(locked);
        if is_time_to_clean {
            self.clean(now_us);
        }
        Taken {
            admitted,
            at_us: now_us,
            outcomes,
        }
    }

    /// Locks all shards a request needs, in ascending order, and finds its buckets.
    fn find_all<'a>(&'a self, charges: &[Charge<'_>], locked: &mut Locked<'a>) -> Stops {
        let mut stops: Stops = (charges.iter().enumerate())
            .map(|(i, charge)| {
                let (shard, fingerprint) = self.address(&charge.bucket);
                Stop {
                    charge: i,
                    shard,
                    fingerprint,
                    lock: 0,
                    index: None,
                    shared: false,
                }
            })
            .collect();
        // Tiers are mostly in order already: the subject's first, everybody's last.
        if !stops.is_sorted_by_key(|stop| stop.shard) {
            stops.sort_unstable_by_key(|stop| (stop.shard, stop.charge));
        }
        for stop in &mut stops {
            if locked
                .last()
                .is_none_or(|(number, _)| *number != stop.shard)
            {
                locked.push((stop.shard, self.shards[stop.shard].0.lock()));
            }
            stop.lock = locked.len() - 1;
            stop.index = locked[stop.lock].1.find(stop.fingerprint);
        }
        stops
    }

    /// Gives every key of a request that is not here its place. Moves slots, so all are found anew.
    #[cold]
    fn place_all_new(
        &self,
        charges: &[Charge<'_>],
        stops: &mut [Stop],
        shards: &mut [(usize, MutexGuard<'_, Shard>)],
        charging: bool,
        now_us: u64,
    ) {
        if charging {
            for (_, shard) in shards.iter_mut() {
                self.room.give_back(shard.make_room(stops.len(), now_us));
            }
        }
        for stop in stops.iter_mut() {
            let (bucket, shard) = (&charges[stop.charge].bucket, &mut shards[stop.lock].1);
            if shard.find(stop.fingerprint).is_none() {
                (stop.fingerprint, stop.shared) =
                    self.place_for_new(bucket, stop.fingerprint, shard, charging);
            }
        }
        for stop in stops.iter_mut() {
            stop.index = shards[stop.lock].1.find(stop.fingerprint);
        }
    }

    /// Where a key goes that is not here: into a slot of its own, or into one that is shared where there is no room.
    /// What is everybody's always has its own: there is one per rule. Without charging, nothing is added.
    fn place_for_new(
        &self,
        bucket: &Bucket<'_>,
        own: u64,
        shard: &mut Shard,
        charging: bool,
    ) -> (u64, bool) {
        if !charging {
            return match self.room.is_full() && !bucket.is_everybodys() {
                true => (self.shared_fingerprint(bucket.rule()), true),
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
        let shared = self.shared_fingerprint(bucket.rule());
        if shard.find(shared).is_none() {
            self.room.take_anyway();
            shard.insert_blank(shared);
        }
        (shared, true)
    }

    /// Keeps the books after a key was new: counts the sharing, and frees a slot that was not used after all.
    fn settle(&self, fingerprint: u64, shared: bool, charged: bool, shard: &mut Shard) {
        if shared && charged {
            self.shared.fetch_add(1, Ordering::Relaxed);
        }
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

const NO_OUTCOME: Outcome = Outcome {
    fit: Fit::Now,
    remaining: 0,
    full_at_us: 0,
    shared: false,
};

#[inline]
fn outcome(look: &Look, shared: bool, now_us: u64) -> Outcome {
    Outcome {
        fit: look.fit,
        remaining: look.remaining,
        full_at_us: look.empty_at_us.max(now_us),
        shared,
    }
}

impl Stop {
    /// Looks at the bucket, and charges it if that is asked and fits.
    fn take(&self, shards: &mut [(usize, MutexGuard<'_, Shard>)], ask: &Ask<'_>) -> Look {
        let shard = &mut shards[self.lock].1;
        match self.index {
            Some(index) => shard.take(index, ask),
            None => shard.look_at_nothing(ask),
        }
    }
}

/// Releases the locks behind the one with this number; says whether it is time to clean.
fn release_beyond(locked: &mut Locked<'_>, last: usize) -> bool {
    let mut is_time_to_clean = false;
    while locked.len() > last + 1 {
        if let Some((_, mut shard)) = locked.pop() {
            is_time_to_clean |= shard.count_take();
        }
    }
    is_time_to_clean
}

/// What the stops before the last one want of the same bucket; nothing matters to a charge that costs nothing.
fn cost_before(charges: &[Charge<'_>], stops: &[Stop]) -> u64 {
    match stops {
        [before @ .., last] if charges[last.charge].cost > 0 => before
            .iter()
            .filter(|stop| (stop.lock, stop.fingerprint) == (last.lock, last.fingerprint))
            .fold(0, |sum, stop| sum.saturating_add(charges[stop.charge].cost)),
        _ => 0,
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    type Error = Infallible;

    async fn take(&self, charges: &[Charge<'_>]) -> Result<Taken, Infallible> {
        Ok(self.visit(charges, true))
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Taken, Infallible> {
        Ok(self.visit(charges, false))
    }

    async fn refund(&self, charges: &[Charge<'_>], charged_at_us: u64) -> Result<(), Infallible> {
        for charge in charges {
            let (number, fingerprint) = self.address(&charge.bucket);
            let mut shard = self.shards[number].0.lock();
            if let Some(index) = shard.find(fingerprint) {
                let ask = self.ask(charge, self.clock.now_us(), true);
                shard.refund(index, &ask, charged_at_us);
            }
        }
        Ok(())
    }

    async fn reset(&self, buckets: &[Bucket<'_>]) -> Result<(), Infallible> {
        for bucket in buckets {
            let (number, fingerprint) = self.address(bucket);
            let gone = self.shards[number].0.lock().remove(fingerprint);
            self.room.give_back(usize::from(gone));
        }
        Ok(())
    }
}

/// The secret that makes fingerprints unguessable: fresh for every store, from the system's randomness.
struct Seed {
    shared: SharedSeed,
    own: u64,
}

impl Seed {
    fn random() -> Self {
        let random = std::hash::RandomState::new();
        Self {
            shared: SharedSeed::from_u64(random.hash_one(0)),
            own: random.hash_one(1),
        }
    }
}

impl<'a> BuildHasher for &'a Seed {
    type Hasher = FoldHasher<'a>;

    fn build_hasher(&self) -> FoldHasher<'a> {
        FoldHasher::with_seed(self.own, &self.shared)
    }
}

impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seed(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_and_its_lock_are_one_cache_line() {
        assert_eq!(size_of::<Line<Mutex<Shard>>>(), 64);
    }
}
