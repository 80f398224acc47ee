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
mod visit;

use std::convert::Infallible;
use std::hash::{BuildHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use parking_lot::Mutex;

use super::{Charge, Refund, Store, Taken};
use crate::bucket::Bucket;
use crate::clock::Clock;
use crate::limit::Limit;
use crate::name::Name;
use room::Room;
use shard::Shard;

/// How a [`MemoryStore`] is set up.
#[derive(Clone, Debug)]
pub struct MemoryConfig {
    /// The most keys to keep; 1,000,000 by default, which takes 30 to 60 MB. When there are more *live* keys, new
    /// ones share a few buckets per rule, and [`MemoryStats::shared`] counts it; no bucket in use is ever forgotten.
    pub max_keys: usize,
    /// The most entries in all sliding logs together, 16 bytes each; 4,000,000 by default. Beyond it a log that has an
    /// entry gets no more: the newest takes up what is admitted. It then denies longer, by a window at most, and never
    /// admits more.
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
    seed: Seed,
    clock: Clock,
    shared: AtomicU64,
    /// Written now and then, so apart from what is read all the time.
    next_to_clean: Line<AtomicUsize>,
}

/// On a cache line of its own: neighbours' locks do not slow each other.
#[derive(Debug)]
#[repr(align(64))]
struct Line<T>(T);

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
        let log_room = Arc::new(Room::new(config.max_log_entries));
        Self {
            shards: (0..=shards)
                .map(|_| Line(Mutex::new(Shard::new(&log_room))))
                .collect(),
            room: Room::new(config.max_keys),
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

    /// The bucket that keys of a rule share when the store is full: one in each shard for each order of magnitude of
    /// limits, so that plans with different figures do not meet there.
    fn shared_fingerprint(&self, rule: Name, limit: &Limit) -> u64 {
        let magnitude = (limit.algorithm(), limit.capacity().ilog2());
        (&self.seed).hash_one(("shared", rule, magnitude)).max(1)
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

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<(), Infallible> {
        for refund in refunds {
            let (number, fingerprint) = self.address(&refund.bucket);
            let mut shard = self.shards[number].0.lock();
            if let Some(index) = shard.find(fingerprint) {
                shard.refund(index, refund, self.clock.now_us());
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
