//! Where the slots lie: extendible hashing over chunks of 64.
//!
//! The upper bits of a fingerprint pick an entry of the directory, which says the chunk; inside the chunk a key lies at
//! or a little behind its home. A chunk that fills up is split in two, and the directory doubles when it must. So
//! the table grows by 64 slots at a time, and nobody ever waits for more than that to move.
//!
//! Looking for a key and [holding](Claim) it takes no lock, and may run while the table changes: it then finds the key,
//! as a claim makes sure of, or nothing. Whoever finds nothing asks again under the one lock that all changes of
//! the table take, and which nobody may ask for while holding a claim.
//!
//! A look-up touches one entry of the directory, which is small, and one place among the slots, mostly one cache line.

use smallvec::SmallVec;

#[cfg(not(tollgate_loom))]
use {
    parking_lot::{Mutex, MutexGuard},
    std::sync::atomic::{AtomicU32, AtomicUsize, Ordering},
};

#[cfg(tollgate_loom)]
use {
    lock::{Mutex, MutexGuard},
    loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering},
};

use super::record::Record;
use super::slot::{self, Claim, Slot};
use crate::clock::Clock;

#[cfg(not(tollgate_loom))]
const SLOTS: usize = 64;
/// A chunk with more keys than this is split: beyond it, keys lie too far from home.
#[cfg(not(tollgate_loom))]
const CROWDED: usize = 52;

/// So small that all interleavings of a split can be tried.
#[cfg(tollgate_loom)]
const SLOTS: usize = 4;
#[cfg(tollgate_loom)]
const CROWDED: usize = 3;

/// How many a chunk holds at the least on average: half of a crowded one, as it was just split.
const SPARSE: usize = CROWDED / 2;
/// What is past is kept for so long, unless there is no room: so that a clock that goes back a little finds it again.
const GRACE_US: u64 = 10_000_000;
/// How many chunks to sweep for a new key that finds no room.
const SWEEPS_WHEN_FULL: usize = 4;
/// For every so many new keys, one chunk is swept.
const NEW_KEYS_PER_SWEEP: usize = 8;
/// While there is no room, one chunk is searched for keys to evict for every so many new keys. So a key is evicted in this way at most
/// once while `max_keys / 16` new ones come, as a chunk has at most 64.
const NEW_KEYS_PER_SEARCH: usize = 4;
/// Searches that were not needed are saved, up to this many: chunks differ in what they hold.
const MOST_SEARCHES: usize = 4;
/// At most so many keys are evicted at a time, and at most half of those of which little was used.
const MOST_EVICTED: usize = 16;
/// A chunk that is full and cannot be split evicts keys of its own, if there are so many to choose from. So it loses four at least,
/// and a key is evicted in this way, too, at most once while `max_keys / 16` new ones come.
const LEAST_EVICTABLE: usize = 8;

type Chunk = [Slot; SLOTS];

#[derive(Debug)]
pub(super) struct Table {
    /// Address space for all there may ever be; memory is used only where something was written.
    chunks: Box<[Chunk]>,
    /// Which chunk, by the upper [`depth`](Self::depth) bits of the fingerprint.
    directory: Box<[AtomicU32]>,
    depth: AtomicU32,
    /// Whether keys of which little was used are evicted for new ones.
    evicts: bool,
    /// The rest is for those who change something: apart from what is read all the time.
    changing: Line<Changing>,
}

#[derive(Debug)]
struct Changing {
    keys: AtomicUsize,
    plan: Mutex<Plan>,
}

/// How the chunks are used.
#[derive(Debug)]
struct Plan {
    used: Vec<Usage>,
    /// The chunk to sweep next.
    hand: usize,
    new_keys: usize,
    /// The chunk that was searched last for keys to evict.
    eviction_hand: usize,
    /// For how many of the new keys chunks were searched.
    searched_for: usize,
    evicted: u64,
}

impl Plan {
    /// Whether another chunk may be searched for keys to evict; notes that it is.
    fn may_search(&mut self) -> bool {
        let saved = MOST_SEARCHES * NEW_KEYS_PER_SEARCH;
        self.searched_for = self.searched_for.max(self.new_keys.saturating_sub(saved));
        let may = self.new_keys - self.searched_for >= NEW_KEYS_PER_SEARCH;
        if may {
            self.searched_for += NEW_KEYS_PER_SEARCH;
        }
        may
    }
}

#[derive(Clone, Copy, Debug)]
struct Usage {
    keys: usize,
    /// How many bits its keys have in common.
    depth: u32,
}

/// On a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Line<T>(T);

/// The slot of a key. Slots are held in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SlotIndex(usize);

impl SlotIndex {
    #[inline]
    fn new(chunk: u32, slot: u32) -> Self {
        Self(chunk as usize * SLOTS + slot as usize)
    }
}

impl Table {
    /// A table for so many keys; fewer, if the system cannot give that much address space.
    pub(super) fn new(most_keys: usize) -> Self {
        let mut chunks = (most_keys / SPARSE).saturating_add(8).min(1 << 30);
        let (chunks, directory) = loop {
            let directory = chunks.next_power_of_two() * 16;
            match (zeroed::chunks(chunks), zeroed::directory(directory)) {
                (Some(chunks), Some(directory)) => break (chunks, directory),
                _ => chunks /= 2,
            }
        };
        Self::made_of(chunks, directory)
    }

    fn made_of(chunks: Box<[Chunk]>, directory: Box<[AtomicU32]>) -> Self {
        let first = Usage { keys: 0, depth: 0 };
        Self {
            chunks,
            directory,
            depth: AtomicU32::new(0),
            evicts: false,
            changing: Line(Changing {
                keys: AtomicUsize::new(0),
                plan: Mutex::new(Plan {
                    used: vec![first],
                    hand: 0,
                    new_keys: 0,
                    eviction_hand: 0,
                    searched_for: 0,
                    evicted: 0,
                }),
            }),
        }
    }

    /// The same, which evicts keys of which little was used for new ones.
    pub(super) fn evicting(mut self) -> Self {
        self.evicts = true;
        self
    }

    /// How many keys were evicted so far.
    pub(super) fn evicted(&self) -> u64 {
        self.changing.0.plan.lock().evicted
    }

    /// How many keys there are, those included that say nothing any more.
    pub(super) fn keys(&self) -> usize {
        self.changing.0.keys.load(Ordering::Relaxed)
    }

    /// How many slots there are in chunks that have been used.
    pub(super) fn slots(&self) -> usize {
        self.changing.0.plan.lock().used.len() * SLOTS
    }

    /// Keys that still say something.
    pub(super) fn live_keys(&self, now_us: u64) -> usize {
        let used = self.changing.0.plan.lock().used.len();
        let slots = self.chunks[..used].as_flattened().iter();
        slots
            .filter(|slot| slot::owner(slot) != 0 && slot::glance(slot).expires_at_us() > now_us)
            .count()
    }

    #[inline]
    fn chunk_of(&self, fingerprint: u64) -> u32 {
        let entry = upper_bits(fingerprint, self.depth.load(Ordering::Relaxed));
        self.directory[entry].load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn find(&self, fingerprint: u64) -> Option<SlotIndex> {
        let chunk = self.chunk_of(fingerprint);
        let slots = &self.chunks[chunk as usize];
        for slot in from_home(fingerprint) {
            match slot::owner(&slots[slot as usize % SLOTS]) {
                owner if owner == fingerprint => return Some(SlotIndex::new(chunk, slot)),
                0 => return None,
                _ => {}
            }
        }
        None
    }

    /// Where a key lies at best.
    #[inline]
    fn home(&self, fingerprint: u64) -> &Slot {
        let chunk = &self.chunks[self.chunk_of(fingerprint) as usize];
        &chunk[from_home(fingerprint).next().unwrap_or(0) as usize % SLOTS]
    }

    /// The slot of a key, if it lies where it lies at best.
    #[inline]
    pub(super) fn at_home(&self, fingerprint: u64) -> Option<&Slot> {
        Some(self.home(fingerprint)).filter(|slot| slot::owner(slot) == fingerprint)
    }

    #[inline]
    pub(super) fn slot_at(&self, index: SlotIndex) -> &Slot {
        &self.chunks.as_flattened()[index.0]
    }

    /// Waits until nobody else holds this slot; `None` if the key does not lie there any more.
    #[inline]
    pub(super) fn hold_at(&self, index: SlotIndex, fingerprint: u64) -> Option<Claim<'_>> {
        Claim::wait_for(self.slot_at(index), fingerprint)
    }

    /// Finds a key and waits until nobody else holds it; `None` if it is not there, or was not for a moment.
    #[inline]
    pub(super) fn hold(&self, fingerprint: u64) -> Option<Claim<'_>> {
        loop {
            let index = self.find(fingerprint)?;
            if let Some(claim) = self.hold_at(index, fingerprint) {
                return Some(claim);
            }
        }
    }

    /// [`hold`](Self::hold) for a key that many threads fight for. It mostly lies at home, and to look before taking hold of
    /// it would pass its cache line between cores once more.
    #[inline]
    pub(super) fn hold_contended(&self, fingerprint: u64) -> Option<Claim<'_>> {
        Claim::wait_for(self.home(fingerprint), fingerprint).or_else(|| self.hold(fingerprint))
    }

    /// [`find`](Self::find), and sure also while the table changes. Not for those who hold a claim.
    pub(super) fn find_surely(&self, fingerprint: u64) -> Option<SlotIndex> {
        self.find(fingerprint).or_else(|| {
            let _unchanging = self.changing.0.plan.lock();
            self.find(fingerprint)
        })
    }

    /// [`hold`](Self::hold), and sure also while the table changes. Not for those who hold a claim.
    pub(super) fn hold_surely(&self, fingerprint: u64) -> Option<Claim<'_>> {
        loop {
            let index = self.find_surely(fingerprint)?;
            if let Some(claim) = self.hold_at(index, fingerprint) {
                return Some(claim);
            }
        }
    }

    /// Makes sure of a slot for a key, reserved for a moment, and says where; `None` if there is no room. What had to go is
    /// handed to `gone`.
    /// Beyond `most` keys, expired ones make room, then those of which little was used if the table evicts; else there is none.
    ///
    /// Not for those who hold a claim.
    #[cold]
    pub(super) fn insert(
        &self,
        fingerprint: u64,
        most: usize,
        clock: &Clock,
        gone: &dyn Fn(u64, Record),
    ) -> Option<SlotIndex> {
        let mut plan = self.changing.0.plan.lock();
        // Somebody may have been faster, or the table was changing when we looked.
        if let Some(index) = self.find(fingerprint) {
            return Some(index);
        }
        // Read under the lock, which may have been waited for: a reservation must not be past when it begins.
        let now_us = clock.now_us();
        plan.new_keys = plan.new_keys.wrapping_add(1);
        if plan.new_keys.is_multiple_of(NEW_KEYS_PER_SWEEP) {
            self.sweep_next(&mut plan, before_grace(now_us), gone);
        }
        for _ in 0..SWEEPS_WHEN_FULL {
            if self.keys() >= most {
                self.sweep_next(&mut plan, now_us, gone);
            }
        }
        while self.evicts && self.keys() >= most && plan.may_search() {
            self.evict_from_next(&mut plan, now_us, gone);
        }
        if self.keys() >= most {
            return None;
        }
        while plan.used[self.chunk_of(fingerprint) as usize].keys >= CROWDED {
            let freed = self.sweep_chunk(&mut plan, self.chunk_of(fingerprint), now_us, gone);
            if freed == 0 && !self.split(&mut plan, fingerprint) {
                let chunk = self.chunk_of(fingerprint);
                if self.evicts && plan.used[chunk as usize].keys == SLOTS {
                    self.evict_from(&mut plan, chunk, LEAST_EVICTABLE, now_us, gone);
                }
                break;
            }
        }
        self.put(&mut plan, fingerprint, Record::reserved(now_us))
    }

    /// Sweeps a chunk, unless somebody is changing the table. Not for those who hold a claim.
    #[cold]
    pub(super) fn try_sweep(&self, now_us: u64, gone: &dyn Fn(u64, Record)) {
        if let Some(mut plan) = self.changing.0.plan.try_lock() {
            self.sweep_next(&mut plan, before_grace(now_us), gone);
        }
    }

    /// Clears everything that says nothing any more.
    pub(super) fn sweep_all(&self, now_us: u64, gone: &dyn Fn(u64, Record)) {
        let chunks = self.changing.0.plan.lock().used.len();
        for _ in 0..chunks {
            self.sweep_next(&mut self.changing.0.plan.lock(), now_us, gone);
        }
    }

    fn sweep_next(
        &self,
        plan: &mut MutexGuard<'_, Plan>,
        past_us: u64,
        gone: &dyn Fn(u64, Record),
    ) {
        plan.hand = (plan.hand + 1) % plan.used.len();
        let chunk = u32::try_from(plan.hand).unwrap_or(0);
        self.sweep_chunk(plan, chunk, past_us, gone);
    }

    /// Clears what says nothing any more since this time, and says how many went.
    fn sweep_chunk(
        &self,
        plan: &mut Plan,
        chunk: u32,
        past_us: u64,
        gone: &dyn Fn(u64, Record),
    ) -> usize {
        let is_past = |slot: &Slot| slot::glance(slot).expires_at_us() <= past_us;
        let mut slots = self.chunks[chunk as usize].iter();
        if !slots.any(|slot| slot::owner(slot) != 0 && is_past(slot)) {
            return 0;
        }
        let mut freed = 0;
        for (fingerprint, record) in self.clear(plan, chunk) {
            if record.expires_at_us() > past_us {
                self.put(plan, fingerprint, record);
            } else {
                gone(fingerprint, record);
                freed += 1;
            }
        }
        freed
    }

    /// Evicts some keys of the next chunk.
    fn evict_from_next(&self, plan: &mut Plan, now_us: u64, gone: &dyn Fn(u64, Record)) {
        plan.eviction_hand = (plan.eviction_hand + 1) % plan.used.len();
        let chunk = u32::try_from(plan.eviction_hand).unwrap_or(0);
        self.evict_from(plan, chunk, 1, now_us, gone);
    }

    /// Evicts some keys of a chunk: those of which at most half of the limit is used, and of these the ones that would expire first. None if
    /// there are fewer such keys than `least`.
    fn evict_from(
        &self,
        plan: &mut Plan,
        chunk: u32,
        least: usize,
        now_us: u64,
        gone: &dyn Fn(u64, Record),
    ) {
        let slots = self.chunks[chunk as usize].iter();
        let mut evictable: SmallVec<[(u64, u64); SLOTS]> = slots
            .map(|slot| (slot::owner(slot), slot::glance(slot)))
            .filter(|(owner, record)| *owner != 0 && record.is_evictable(now_us))
            .map(|(owner, record)| (record.expires_at_us(), owner))
            .collect();
        if evictable.len() < least {
            return;
        }
        evictable.sort_unstable();
        evictable.truncate(evictable.len().div_ceil(2).min(MOST_EVICTED));
        for (fingerprint, record) in self.clear(plan, chunk) {
            let is_chosen = evictable.iter().any(|(_, chosen)| *chosen == fingerprint);
            // It may have been charged since.
            if is_chosen && record.is_evictable(now_us) {
                gone(fingerprint, record);
                plan.evicted += 1;
            } else {
                self.put(plan, fingerprint, record);
            }
        }
    }

    /// Splits the chunk of a fingerprint in two; says whether it could.
    fn split(&self, plan: &mut Plan, fingerprint: u64) -> bool {
        let chunk = self.chunk_of(fingerprint);
        let depth = plan.used[chunk as usize].depth;
        let new = plan.used.len();
        if new == self.chunks.len() || !self.deepen_directory(depth + 1) {
            return false;
        }
        let moving = self.clear(plan, chunk);
        plan.used[chunk as usize].depth = depth + 1;
        plan.used.push(Usage {
            keys: 0,
            depth: depth + 1,
        });
        // The entries of the chunk are neighbours; the upper half of them now means the new one.
        let entries = 1 << (self.depth.load(Ordering::Relaxed) - depth);
        let first = upper_bits(fingerprint, depth) * entries;
        for entry in &self.directory[first + entries / 2..first + entries] {
            entry.store(u32::try_from(new).unwrap_or(0), Ordering::Relaxed);
        }
        for (fingerprint, record) in moving {
            self.put(plan, fingerprint, record);
        }
        true
    }

    /// Makes sure that the directory tells chunks apart that have so many bits in common; says whether it can.
    fn deepen_directory(&self, wanted: u32) -> bool {
        let depth = self.depth.load(Ordering::Relaxed);
        let entries = 1_usize << depth;
        if wanted <= depth {
            return true;
        }
        if 2 * entries > self.directory.len() {
            return false;
        }
        // From the end, so that no entry is overwritten before it was read.
        for entry in (0..entries).rev() {
            let chunk = self.directory[entry].load(Ordering::Relaxed);
            self.directory[2 * entry].store(chunk, Ordering::Relaxed);
            self.directory[2 * entry + 1].store(chunk, Ordering::Relaxed);
        }
        self.depth.store(depth + 1, Ordering::Relaxed);
        true
    }

    /// Takes everything out of a chunk. Waits for those who hold a slot there.
    fn clear(&self, plan: &mut Plan, chunk: u32) -> SmallVec<[(u64, Record); SLOTS]> {
        let slots = self.chunks[chunk as usize].iter();
        let claims: SmallVec<[Claim<'_>; SLOTS]> = slots
            .filter(|slot| slot::owner(slot) != 0)
            .filter_map(|slot| Claim::wait_for(slot, slot::owner(slot)))
            .collect();
        let taken = (claims.iter())
            .map(|claim| (claim.fingerprint(), claim.read()))
            .collect();
        plan.used[chunk as usize].keys -= claims.len();
        self.count_keys(|keys| keys - claims.len());
        claims.into_iter().for_each(Claim::vacate);
        taken
    }

    /// Puts a key that is not here into the first free slot, and says where; `None` if there is none.
    fn put(&self, plan: &mut Plan, fingerprint: u64, record: Record) -> Option<SlotIndex> {
        let chunk = self.chunk_of(fingerprint);
        let slots = &self.chunks[chunk as usize];
        let slot =
            from_home(fingerprint).find(|slot| slot::owner(&slots[*slot as usize % SLOTS]) == 0)?;
        slot::fill(&slots[slot as usize % SLOTS], fingerprint, record);
        plan.used[chunk as usize].keys += 1;
        self.count_keys(|keys| keys + 1);
        Some(SlotIndex::new(chunk, slot))
    }

    /// Only under the lock, so nobody counts at the same time; an atomic for those who read.
    fn count_keys(&self, change: impl Fn(usize) -> usize) {
        let keys = &self.changing.0.keys;
        keys.store(change(keys.load(Ordering::Relaxed)), Ordering::Relaxed);
    }
}

fn before_grace(now_us: u64) -> u64 {
    now_us.saturating_sub(GRACE_US)
}

#[inline]
fn upper_bits(fingerprint: u64, bits: u32) -> usize {
    // In two steps, as no shift is as long as the word.
    usize::try_from(fingerprint >> 1 >> (63 - bits)).unwrap_or(usize::MAX)
}

/// The slots of a chunk from a key's home on, once round.
#[inline]
fn from_home(fingerprint: u64) -> impl Iterator<Item = u32> {
    const SLOTS: u64 = self::SLOTS as u64;
    let home = fingerprint / 2 % SLOTS;
    (home..home + SLOTS).map(|slot| u32::try_from(slot % SLOTS).unwrap_or(0))
}

/// Memory that is zero without being written to, so that the system need not provide it before it is used.
mod zeroed {
    use super::{AtomicU32, Chunk};

    #[cfg(not(tollgate_loom))]
    pub(super) fn chunks(count: usize) -> Option<Box<[Chunk]>> {
        bytemuck::allocation::try_zeroed_slice_box(count).ok()
    }

    #[cfg(not(tollgate_loom))]
    pub(super) fn directory(entries: usize) -> Option<Box<[AtomicU32]>> {
        bytemuck::allocation::try_zeroed_slice_box(entries).ok()
    }

    #[cfg(tollgate_loom)]
    pub(super) fn chunks(count: usize) -> Option<Box<[Chunk]>> {
        use loom::sync::atomic::AtomicU64;
        let slot = || std::array::from_fn(|_| AtomicU64::new(0));
        let chunk = || std::array::from_fn(|_| slot());
        Some((0..count).map(|_| chunk()).collect())
    }

    #[cfg(tollgate_loom)]
    pub(super) fn directory(entries: usize) -> Option<Box<[AtomicU32]>> {
        Some((0..entries).map(|_| AtomicU32::new(0)).collect())
    }
}

/// The lock that loom knows, with the face of the one we use.
#[cfg(tollgate_loom)]
mod lock {
    pub(super) use loom::sync::MutexGuard;

    #[derive(Debug)]
    pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(super) fn new(inner: T) -> Self {
            Self(loom::sync::Mutex::new(inner))
        }

        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }

        pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }
}

#[cfg(test)]
#[cfg(not(tollgate_loom))]
mod tests {
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;
    use crate::algorithm::{Level, State};
    use crate::clock::ManualClock;

    const NOW_US: u64 = 1_000_000;

    fn clock() -> Clock {
        Clock::from(&ManualClock::at(Duration::from_micros(NOW_US)))
    }

    fn until(empty_at_us: u64) -> Record {
        let mut record = Record::default();
        let level = Level {
            at_us: 0,
            used_utok: 1,
        };
        record.write(&State::Level(level), empty_at_us, true);
        record
    }

    fn insert(table: &Table, fingerprint: u64, record: Record) -> bool {
        let index = table.insert(fingerprint, usize::MAX, &clock(), &|_, _| {});
        if let Some(index) = index {
            table.hold_at(index, fingerprint).unwrap().write(record);
        }
        index.is_some()
    }

    proptest! {
        /// Fingerprints with few different beginnings and homes, so that chunks split deep and slots run over.
        #[test]
        fn keeps_what_is_live_and_loses_only_what_is_not(
            ops in prop::collection::vec((any::<bool>(), 0_u64..8, 0_u64..4, 0_u64..64), 1..600)
        ) {
            let table = Table::new(10_000);
            let (mut live, mut dead) = (HashSet::new(), HashSet::new());
            let gone = RefCell::new(HashSet::new());
            for (lives, upper, home, n) in ops {
                let fingerprint = slot::fingerprint(upper << 61 | n << 53 | home << 1 | 1 << 20);
                if live.contains(&fingerprint) || dead.contains(&fingerprint) {
                    continue;
                }
                gone.borrow_mut().remove(&fingerprint);
                let index = table.insert(fingerprint, usize::MAX, &clock(), &|fingerprint, _| {
                    gone.borrow_mut().insert(fingerprint);
                });
                prop_assert!(index.is_some());
                let claim = table.hold(fingerprint).unwrap();
                claim.write(until(if lives { 2 * NOW_US } else { NOW_US / 2 }));
                drop(claim);
                if lives { live.insert(fingerprint) } else { dead.insert(fingerprint) };
                dead.retain(|fingerprint| !gone.borrow().contains(fingerprint));
                for known in live.iter().chain(&dead) {
                    let claim = table.hold(*known);
                    prop_assert!(claim.is_some());
                    let is_live = claim.unwrap().read().expires_at_us() > NOW_US;
                    prop_assert_eq!(is_live, live.contains(known));
                }
                prop_assert_eq!(table.keys(), live.len() + dead.len());
                prop_assert_eq!(table.live_keys(NOW_US), live.len());
            }
            prop_assert!(gone.borrow().is_disjoint(&live));
        }
    }

    #[test]
    fn grows_a_chunk_at_a_time_to_its_bound_and_no_further() {
        let table = Table::new(20_000);
        assert_eq!(table.slots(), SLOTS);
        let inserted = (1..=20_000_u64)
            .filter(|n| {
                let fingerprint = slot::fingerprint(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                insert(&table, fingerprint, until(2 * NOW_US))
            })
            .count();
        assert_eq!((inserted, table.keys()), (20_000, 20_000));
        assert!(table.slots() * 24 < 64 * 20_000, "{}", table.slots());
        assert_eq!(table.insert(2, 20_000, &clock(), &|_, _| {}), None);
    }

    #[test]
    fn a_table_that_cannot_grow_says_so_and_keeps_what_it_has() {
        let table = Table::new(0);
        let kept: Vec<u64> = (1..10_000_u64)
            .map(|n| slot::fingerprint(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
            .filter(|fingerprint| insert(&table, *fingerprint, until(2 * NOW_US)))
            .collect();
        assert!(kept.len() > 8 * CROWDED && kept.len() <= 8 * SLOTS);
        assert!(
            kept.iter()
                .all(|fingerprint| table.find(*fingerprint).is_some())
        );
    }

    #[test]
    fn what_says_nothing_any_more_makes_room() {
        let table = Table::new(1_000);
        for n in 1..=1_000_u64 {
            let fingerprint = slot::fingerprint(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            assert!(insert(&table, fingerprint, until(2 * NOW_US)));
        }
        let slots = table.slots();
        table.sweep_all(NOW_US, &|_, _| {});
        assert_eq!(table.keys(), 1_000);
        table.sweep_all(3 * NOW_US, &|_, _| {});
        assert_eq!((table.keys(), table.slots()), (0, slots));
    }

    /// Threads count in their own keys and in one that is everybody's while the table grows under them.
    #[test]
    fn nothing_is_lost_while_the_table_grows() {
        const EACH: u64 = 20_000;
        let table = Table::new(100_000);
        let clock = clock();
        let add_one = |fingerprint: u64| loop {
            if let Some(claim) = table.hold(fingerprint) {
                let [_, count] = claim.read().to_words();
                claim.write(Record::from_words([u64::MAX >> 2, count + 1]));
                return;
            }
            let index = table.insert(fingerprint, usize::MAX, &clock, &|_, _| {});
            assert!(index.is_some());
        };
        let key = |n: u64| slot::fingerprint(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 1..=EACH {
                        add_one(key(n));
                        add_one(key(n / 100));
                    }
                });
            }
        });
        let count = |n| table.hold(key(n)).unwrap().read().to_words()[1];
        let counted: u64 = count(0) + (1..=EACH).map(count).sum::<u64>();
        assert_eq!(counted, 4 * 2 * EACH);
        assert_eq!(count(EACH), 4);
        assert_eq!(count(1), 4 + 4 * 100);
    }
}

#[cfg(all(test, tollgate_loom))]
pub(super) mod loom_tests {
    use std::time::Duration;

    use loom::sync::Arc;

    use super::*;
    use crate::clock::ManualClock;

    /// Every interleaving in which a thread is interrupted so many times, which is where mistakes are found.
    pub(in super::super) fn model(interruptions: usize, of: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(interruptions);
        model.check(of);
    }

    /// A table of a few chunks, as loom keeps a history of every word.
    pub(in super::super) fn small_table(chunks: usize) -> Table {
        let directory = 2 * chunks.next_power_of_two();
        Table::made_of(
            zeroed::chunks(chunks).unwrap(),
            zeroed::directory(directory).unwrap(),
        )
    }

    fn insert(table: &Table, fingerprint: u64) {
        let clock = Clock::from(&ManualClock::at(Duration::from_secs(1)));
        let index = table.insert(fingerprint, usize::MAX, &clock, &|_, _| {
            panic!("nothing is past")
        });
        assert!(index.is_some());
    }

    fn count_one(claim: &Claim<'_>) {
        let [_, count] = claim.read().to_words();
        claim.write(Record::from_words([u64::MAX >> 2, count + 1]));
    }

    /// As the store does it: a key that is not found gets a place under the lock.
    fn add_one(table: &Table, fingerprint: u64) {
        loop {
            if let Some(claim) = table.hold(fingerprint) {
                return count_one(&claim);
            }
            insert(table, fingerprint);
        }
    }

    /// A key in one of the eight parts that the upper bits make.
    fn key(part: u64, n: u64) -> u64 {
        part << 61 | n << 1
    }

    fn table_with(keys: &[u64], chunks: usize) -> Arc<Table> {
        let table = small_table(chunks);
        keys.iter().for_each(|key| add_one(&table, *key));
        Arc::new(table)
    }

    fn assert_counted(table: &Table, counts: &[(u64, u64)]) {
        for (key, count) in counts {
            let claim = table.hold(*key).expect("a key is where the table says");
            assert_eq!(claim.read().to_words()[1], *count, "{key:#x}");
        }
        assert_eq!(table.keys(), counts.len());
    }

    /// While one thread splits a chunk, another counts in a key that moves to the new one.
    #[test]
    fn a_count_is_not_lost_while_its_chunk_is_split() {
        let (stays, moves, other, new) = (key(0, 1), key(4, 2), key(4, 1), key(5, 3));
        model(2, move || {
            let table = table_with(&[stays, moves, other], 2);
            let splitter = {
                let table = Arc::clone(&table);
                loom::thread::spawn(move || add_one(&table, new))
            };
            add_one(&table, moves);
            splitter.join().unwrap();
            assert_eq!(table.slots(), 2 * SLOTS, "the chunk was split");
            assert_counted(&table, &[(stays, 1), (moves, 2), (other, 1), (new, 1)]);
        });
    }

    /// The directory doubles under whoever is looking: entries mean other chunks than a moment before.
    #[test]
    fn a_count_is_not_lost_while_the_directory_doubles() {
        let (stays, one, moves, other, new) =
            (key(0, 1), key(4, 1), key(6, 2), key(4, 3), key(7, 3));
        model(2, move || {
            let table = table_with(&[stays, one, moves, other], 3);
            assert_eq!(table.slots(), 2 * SLOTS);
            let splitter = {
                let table = Arc::clone(&table);
                loom::thread::spawn(move || add_one(&table, new))
            };
            add_one(&table, moves);
            splitter.join().unwrap();
            assert_eq!(table.slots(), 3 * SLOTS, "the directory was doubled");
            let counts = [(stays, 1), (one, 1), (moves, 2), (other, 1), (new, 1)];
            assert_counted(&table, &counts);
        });
    }

    /// Whoever gives something back, or counts in a key that many meet in, finds it however the table changes.
    #[test]
    fn a_key_that_is_there_is_surely_held_while_its_chunk_is_split() {
        let (stays, moves, other, new) = (key(0, 1), key(4, 2), key(4, 1), key(5, 3));
        model(2, move || {
            let table = table_with(&[stays, moves, other], 2);
            let splitter = {
                let table = Arc::clone(&table);
                loom::thread::spawn(move || add_one(&table, new))
            };
            count_one(&table.hold_surely(moves).expect("it is there"));
            let contended = table.hold_contended(stays);
            let counted = contended.map(|claim| count_one(&claim)).is_some();
            splitter.join().unwrap();
            let stayed = (stays, 1 + u64::from(counted));
            assert_counted(&table, &[stayed, (moves, 2), (other, 1), (new, 1)]);
        });
    }

    /// Two threads bring the same new key to a chunk that is full: one makes its place, and both count in it.
    #[test]
    fn a_new_key_of_two_threads_gets_one_place() {
        let (stays, moves, other, new) = (key(0, 1), key(4, 2), key(4, 1), key(5, 3));
        model(2, move || {
            let table = table_with(&[stays, moves, other], 2);
            let splitter = {
                let table = Arc::clone(&table);
                loom::thread::spawn(move || add_one(&table, new))
            };
            add_one(&table, new);
            splitter.join().unwrap();
            assert_counted(&table, &[(stays, 1), (moves, 1), (other, 1), (new, 2)]);
        });
    }

    /// What is past is swept while somebody counts in what is not, behind it.
    #[test]
    fn a_count_is_not_lost_while_its_chunk_is_swept() {
        let (past, kept) = (key(0, 1), key(1, 1));
        model(3, move || {
            let table = table_with(&[past, kept], 1);
            let claim = table.hold(past).unwrap();
            claim.write(Record::from_words([0, 1]));
            drop(claim);
            let sweeper = {
                let table = Arc::clone(&table);
                loom::thread::spawn(move || {
                    table.sweep_all(1_000_000, &|fingerprint, _| assert_eq!(fingerprint, past));
                })
            };
            add_one(&table, kept);
            sweeper.join().unwrap();
            assert_counted(&table, &[(kept, 2)]);
        });
    }
}
