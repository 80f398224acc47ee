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
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use smallvec::{SmallVec, smallvec};

use super::{Charge, Fit, Outcome, Store, Taken};
use crate::algorithm::Look;
use crate::bucket::Bucket;
use crate::clock::Clock;
use crate::name::Name;
use room::Room;
use shard::{Ask, Changed, Open, Shard};

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
    next_to_clean: AtomicUsize,
}

/// Slots to look at every 64 takes: each is seen again after four times as many takes as there are slots.
const SLOTS_PER_CLEANING: usize = 16;

/// On a cache line of its own: neighbours' locks do not slow each other.
#[derive(Debug)]
#[repr(align(64))]
struct Line<T>(T);

/// Where a bucket lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Address {
    shard: usize,
    fingerprint: u64,
}

/// Where a charge counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In its own bucket.
    Own,
    /// In its own bucket, which is new and for which room was taken.
    Taken,
    /// In a bucket that stands for many keys, as the store is full.
    Shared,
}

type Visits = SmallVec<[Visit; 4]>;
type Locked<'a> = SmallVec<[(usize, MutexGuard<'a, Shard>); 2]>;

/// One charge of a request with several, at its bucket. In the order of the locks.
struct Visit {
    /// Which of the charges.
    charge: usize,
    /// Which of the locked shards.
    lock: usize,
    open: Open,
    place: Place,
    /// The earlier visit to the same bucket, if any: its state is the one that counts.
    twin: Option<usize>,
    fit: Fit,
    remaining: u64,
    charged: bool,
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
            next_to_clean: AtomicUsize::new(0),
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
            let shard = lock(shard);
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
            let mut shard = lock(shard);
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

    #[inline]
    fn address(&self, bucket: &Bucket<'_>) -> Address {
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
        if bucket.rule() != Name::NONE {
            bucket.rule().hash(&mut hasher);
        }
        for part in parts {
            part.hash(&mut hasher);
        }
        Address {
            shard,
            fingerprint: hasher.finish().max(1),
        }
    }

    /// The bucket that keys of a rule share when a shard is full.
    fn shared_fingerprint(&self, rule: Name) -> u64 {
        (&self.seed).hash_one(("shared", rule)).max(1)
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
        let address = self.address(&charge.bucket);
        let mut shard = lock(&self.shards[address.shard]);
        // Read under the lock, so that the times on a bucket come in order.
        let now_us = self.clock.now_us();
        let is_time_to_clean = shard.count_take();
        let ask = Ask {
            limit: charge.limit,
            now_us,
            cost: charge.cost,
            charging,
            max_log_entries: self.max_log_entries,
        };
        let (look, shared) = match shard.find(address.fingerprint) {
            Some(index) => (shard.take(index, &ask), false),
            None => self.visit_new(charge, address, &mut shard, &ask),
        };
        drop(shard);
        if is_time_to_clean {
            self.clean(now_us);
        }
        let outcome = Outcome {
            fit: look.fit,
            remaining: look.remaining,
            full_at_us: look.empty_at_us.max(now_us),
            shared,
        };
        (outcome, now_us)
    }

    /// A key that is not here. Also says whether it had to share.
    #[cold]
    fn visit_new(
        &self,
        charge: &Charge<'_>,
        address: Address,
        shard: &mut Shard,
        ask: &Ask<'_>,
    ) -> (Look, bool) {
        if ask.charging {
            self.room.give_back(shard.make_room(1, ask.now_us));
        }
        let place = self.place_for_new(&charge.bucket, ask.charging);
        let open = match place {
            Place::Shared => shard.open(self.shared_fingerprint(charge.bucket.rule()), ask.limit),
            _ => Open::nothing(address.fingerprint, ask.limit),
        };
        let is_new = open.is_new();
        let look = shard.take_open(open, ask);
        self.settle(place, is_new, look.charged);
        (look, place == Place::Shared)
    }

    /// Several buckets: lock and open one shard after the other, decide, charge, and close in reverse, so that what
    /// everybody wants is locked last and released first.
    fn visit_all(&self, charges: &[Charge<'_>], charging: bool) -> Taken {
        let mut addresses: SmallVec<[(Address, usize); 4]> = (0..charges.len())
            .map(|i| (self.address(&charges[i].bucket), i))
            .collect();
        addresses.sort_unstable_by_key(|(address, i)| (address.shard, *i));
        let mut locked = Locked::new();
        let mut visits = self.open_all(charges, &addresses, &mut locked);
        // Read under the locks, so that the times on a bucket come in order.
        let now_us = self.clock.now_us();
        if visits.iter().any(|visit| visit.open.is_new()) {
            visits = self.open_with_new(
                charges,
                &mut addresses,
                visits,
                &mut locked,
                charging,
                now_us,
            );
        }
        fit_all(charges, &mut visits, now_us);
        let admitted = visits
            .iter()
            .all(|visit| charges[visit.charge].shadow || visit.fit.admits());
        if charging && admitted {
            charge_all(charges, &mut visits, now_us);
        }
        let outcomes = self.close_all(charges, visits, locked, now_us);
        Taken {
            admitted,
            at_us: now_us,
            outcomes,
        }
    }

    /// Takes the states of all buckets out of their shards, which it locks if they are not yet; a bucket that occurs
    /// twice is opened once.
    fn open_all<'a>(
        &'a self,
        charges: &[Charge<'_>],
        addresses: &[(Address, usize)],
        locked: &mut Locked<'a>,
    ) -> Visits {
        let mut visits = Visits::new();
        for (address, charge) in addresses {
            let lock = match locked
                .iter()
                .position(|(number, _)| *number == address.shard)
            {
                Some(lock) => lock,
                None => {
                    locked.push((address.shard, lock(&self.shards[address.shard])));
                    locked.len() - 1
                }
            };
            let twin = (visits.iter())
                .position(|v| v.lock == lock && v.open.fingerprint == address.fingerprint);
            let limit = charges[*charge].limit;
            visits.push(Visit {
                charge: *charge,
                lock,
                open: match twin {
                    Some(_) => Open::nothing(address.fingerprint, limit),
                    None => locked[lock].1.open(address.fingerprint, limit),
                },
                place: Place::Own,
                twin,
                fit: Fit::Now,
                remaining: 0,
                charged: false,
            });
        }
        visits
    }

    /// Opens once more where keys are new: room is made for them while nothing is open, and those for which the store
    /// has no place are sent to the bucket they share.
    #[cold]
    fn open_with_new<'a>(
        &'a self,
        charges: &[Charge<'_>],
        addresses: &mut [(Address, usize)],
        visits: Visits,
        locked: &mut Locked<'a>,
        charging: bool,
        now_us: u64,
    ) -> Visits {
        let mut places: SmallVec<[Place; 4]> = SmallVec::new();
        for (visit, (address, charge)) in visits.into_iter().zip(addresses.iter_mut()) {
            let bucket = &charges[*charge].bucket;
            let place = match visit.twin {
                Some(twin) => places[twin],
                None if visit.open.is_new() => self.place_for_new(bucket, charging),
                None => Place::Own,
            };
            if place == Place::Shared {
                address.fingerprint = self.shared_fingerprint(bucket.rule());
            }
            places.push(place);
            if visit.twin.is_none() {
                locked[visit.lock].1.close(visit.open, None);
            }
        }
        if charging {
            for (_, shard) in locked.iter_mut() {
                self.room.give_back(shard.make_room(charges.len(), now_us));
            }
        }
        let mut visits = self.open_all(charges, addresses, locked);
        for (visit, place) in visits.iter_mut().zip(places) {
            visit.place = place;
        }
        visits
    }

    /// Puts everything back, changed or not, and releases the locks, the last first.
    fn close_all(
        &self,
        charges: &[Charge<'_>],
        mut visits: Visits,
        mut locked: Locked<'_>,
        now_us: u64,
    ) -> SmallVec<[Outcome; 4]> {
        let nothing = Outcome {
            fit: Fit::Now,
            remaining: 0,
            full_at_us: 0,
            shared: false,
        };
        let mut outcomes: SmallVec<[Outcome; 4]> = smallvec![nothing; charges.len()];
        let mut is_time_to_clean = false;
        while let Some(visit) = visits.pop() {
            let bucket = visit.twin.map_or(&visit, |twin| &visits[twin]);
            let empty_at_us = charges[visit.charge].limit.empty_at_us(&bucket.open.state);
            outcomes[visit.charge] = Outcome {
                fit: visit.fit,
                remaining: bucket.remaining,
                full_at_us: empty_at_us.max(now_us),
                shared: visit.place == Place::Shared,
            };
            let is_last_here = visits.last().is_none_or(|next| next.lock != visit.lock);
            if visit.twin.is_none() {
                self.settle(visit.place, visit.open.is_new(), visit.charged);
                let changed = visit.charged.then_some(self.changed(empty_at_us));
                locked[visit.lock].1.close(visit.open, changed);
            }
            if is_last_here && let Some((_, mut shard)) = locked.pop() {
                is_time_to_clean |= shard.count_take();
            }
        }
        if is_time_to_clean {
            self.clean(now_us);
        }
        outcomes
    }

    /// Clears a few slots that say nothing any more, in one shard after the other, so that those nobody asks for are
    /// cleaned as well. Never waits for a lock.
    #[cold]
    fn clean(&self, now_us: u64) {
        let number = self.next_to_clean.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        if let Ok(mut shard) = self.shards[number].0.try_lock() {
            self.room.give_back(shard.sweep(SLOTS_PER_CLEANING, now_us));
        }
    }

    /// Where a key goes that is not here. What is everybody's always has its place: there is one per rule.
    fn place_for_new(&self, bucket: &Bucket<'_>, charging: bool) -> Place {
        if !charging {
            return match self.room.is_full() && !bucket.is_everybodys() {
                true => Place::Shared,
                false => Place::Own,
            };
        }
        if bucket.is_everybodys() {
            self.room.take_anyway();
            return Place::Taken;
        }
        match self.room.take() {
            true => Place::Taken,
            false => Place::Shared,
        }
    }

    fn changed(&self, empty_at_us: u64) -> Changed {
        Changed {
            empty_at_us,
            max_log_entries: self.max_log_entries,
        }
    }

    /// Keeps the books once it is known whether the place was used.
    fn settle(&self, place: Place, is_new: bool, charged: bool) {
        match place {
            Place::Taken if !charged => self.room.give_back(1),
            Place::Shared if charged => {
                self.shared.fetch_add(1, Ordering::Relaxed);
                if is_new {
                    self.room.take_anyway();
                }
            }
            _ => {}
        }
    }
}

/// Whether each charge fits, together with those before it on the same bucket.
fn fit_all(charges: &[Charge<'_>], visits: &mut [Visit], now_us: u64) {
    for i in 0..visits.len() {
        let charge = &charges[visits[i].charge];
        let bucket = visits[i].twin.unwrap_or(i);
        let before = (visits[bucket..i].iter().enumerate())
            .filter(|(j, visit)| visit.twin.unwrap_or(bucket + j) == bucket)
            .fold(0_u64, |sum, (_, visit)| {
                sum.saturating_add(charges[visit.charge].cost)
            });
        let cost = match charge.cost {
            0 => 0,
            cost => cost.saturating_add(before),
        };
        let state = &visits[bucket].open.state;
        let remaining = charge.limit.remaining(state, now_us);
        visits[i].fit = charge.limit.fit(state, now_us, cost, remaining);
        visits[i].remaining = remaining;
    }
}

/// Charges every bucket that decides, and each shadow that has room.
fn charge_all(charges: &[Charge<'_>], visits: &mut [Visit], now_us: u64) {
    for i in 0..visits.len() {
        let charge = &charges[visits[i].charge];
        if charge.cost > 0 && visits[i].fit.admits() {
            let bucket = visits[i].twin.unwrap_or(i);
            let bucket = &mut visits[bucket];
            charge
                .limit
                .charge(&mut bucket.open.state, now_us, charge.cost);
            bucket.remaining -= charge.cost;
            bucket.charged = true;
        }
    }
}

fn lock(shard: &Line<Mutex<Shard>>) -> MutexGuard<'_, Shard> {
    // No code panics between two halves of a change, so a poisoned shard is still whole.
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
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
            let address = self.address(&charge.bucket);
            let mut shard = lock(&self.shards[address.shard]);
            let mut open = shard.open(address.fingerprint, charge.limit);
            if open.is_new() {
                continue;
            }
            let now_us = self.clock.now_us();
            let limit = charge.limit;
            limit.refund(&mut open.state, now_us, charged_at_us, charge.cost);
            let empty_at_us = limit.empty_at_us(&open.state);
            shard.close(open, Some(self.changed(empty_at_us)));
        }
        Ok(())
    }

    async fn reset(&self, buckets: &[Bucket<'_>]) -> Result<(), Infallible> {
        for bucket in buckets {
            let address = self.address(bucket);
            let gone = lock(&self.shards[address.shard]).remove(address.fingerprint);
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
