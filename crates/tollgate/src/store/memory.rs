//! Usage in this process: bounded, cleaned as it goes, and without a lock on the way of a known key.
//!
//! A key is known by a seeded 63-bit fingerprint of all its parts; the text itself is not kept. Each bucket is held by
//! itself, for as long as it takes to decide. A request that needs several takes hold of them in the order in which
//! they lie, so two requests never wait for each other in a circle; those that many keys meet in have a table of
//! their own and come last, so they are held for the shortest time.

mod few;
mod held;
mod logs;
mod patience;
mod record;
mod room;
mod slot;
mod table;
mod visit;

use std::convert::Infallible;
use std::hash::{BuildHasher, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

use super::{Charge, Refund, StoreOperations, Taken};
use crate::bucket::Bucket;
use crate::clock::Clock;
use crate::limit::{Algorithm, Limit};
use crate::name::Name;
use held::Held;
use logs::LogShards;
use record::Record;
use table::Table;

/// How a [`MemoryStore`] is set up.
///
/// ```
/// use tollgate::store::{MemoryConfig, MemoryStore};
///
/// let store = MemoryStore::with_config(MemoryConfig::default().max_keys(10_000_000));
/// # let _ = store;
/// ```
#[derive(Clone, Debug)]
#[must_use = "a configuration does nothing until a store has it"]
#[non_exhaustive]
pub struct MemoryConfig {
    /// Maximum number of keys; 1,000,000 by default, which take 30 to 60 MB once they are there. Beyond that, new keys take the
    /// place of expired ones, then of those that have used at most half of their limit, the ones first that would expire first
    /// ([`MemoryStats::evicted`]). If a short search finds none of these either, new keys share up to 256 buckets per rule and
    /// magnitude of limits ([`MemoryStats::shared`]). A bucket that is more than half used is never forgotten.
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

impl MemoryConfig {
    /// Sets [`max_keys`](Self::max_keys).
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// Sets [`max_log_entries`](Self::max_log_entries).
    pub fn max_log_entries(mut self, max_log_entries: usize) -> Self {
        self.max_log_entries = max_log_entries;
        self
    }

    /// Sets the [`clock`](Self::clock).
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = clock.into();
        self
    }
}

/// What a [`MemoryStore`] holds: see [`Limiter::memory_stats`](crate::Limiter::memory_stats).
///
/// ```
/// use tollgate::LocalLimiter;
///
/// let limiter = LocalLimiter::new();
/// limiter.check("client-7", &"1/s".parse()?, 1).into_result()?;
/// assert_eq!(limiter.memory_stats().keys, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    /// How many keys were evicted for new ones because the store was full.
    pub evicted: u64,
}

/// Keeps usage in this process.
///
/// ```
/// use tollgate::Limiter;
/// use tollgate::store::MemoryStore;
///
/// let limiter = Limiter::new(MemoryStore::new());
/// # let _ = limiter;
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    /// One slot per key.
    own: Table,
    /// Buckets that many keys meet in: everybody's, and those that are shared when there is no room.
    common: Table,
    max_keys: usize,
    /// How many buckets the keys of one rule share.
    stripes: u64,
    logs: LogShards,
    seed: Seed,
    clock: Clock,
    shared: AtomicU64,
}

/// Room for everybody's bucket of so many rules, and for as many shared ones.
const MOST_EVERYBODYS: usize = 50_000;
const MOST_SHARED: usize = 50_000;

/// What no list of parts has as its shapes.
const SHARED_BY_STRIPE: u64 = u64::MAX;
const SHARED_BY_ALL: u64 = u64::MAX - 1;

impl MemoryStore {
    /// A store with the default configuration.
    #[must_use]
    pub fn new() -> Self {
        Self::with_config(MemoryConfig::default())
    }

    /// A store with this configuration.
    #[must_use]
    pub fn with_config(config: MemoryConfig) -> Self {
        Self {
            own: Table::new(config.max_keys).evicting(),
            common: Table::new(MOST_EVERYBODYS + MOST_SHARED),
            max_keys: config.max_keys,
            stripes: (config.max_keys as u64 / 64)
                .clamp(1, 256)
                .next_power_of_two(),
            logs: LogShards::new(config.max_log_entries),
            seed: Seed::random(),
            clock: config.clock,
            shared: AtomicU64::new(0),
        }
    }

    /// What it holds. Looks at every key, so not for each request.
    #[must_use]
    pub fn stats(&self) -> MemoryStats {
        let now_us = self.clock.now_us();
        let (own, common) = (&self.own, &self.common);
        MemoryStats {
            keys: own.keys() + common.keys(),
            live_keys: own.live_keys(now_us) + common.live_keys(now_us),
            log_entries: self.logs.entries(),
            slots: own.slots() + common.slots(),
            shared: self.shared.load(Ordering::Relaxed),
            evicted: own.evicted(),
        }
    }

    /// Clears everything that says nothing any more, at once. Not needed: it happens by itself as requests come.
    pub fn sweep(&self) {
        let now_us = self.clock.now_us();
        self.own.sweep_all(now_us, &self.forgetting());
        self.common.sweep_all(now_us, &self.forgetting());
    }

    /// See [`Clock::step_s`].
    #[inline(always)]
    pub(crate) fn clock_step_s(&self) -> i32 {
        self.clock.step_s()
    }

    #[inline]
    fn fingerprint(&self, bucket: &Bucket<'_>) -> u64 {
        self.fingerprint_of_next(bucket, &mut None)
    }

    /// The fingerprint of one of several buckets. They mostly begin with the same value, which then is hashed once: `subject`
    /// keeps it from one to the next.
    #[inline(always)]
    fn fingerprint_of_next<'a>(
        &self,
        bucket: &Bucket<'a>,
        subject: &mut Option<(&'a [u8], u64)>,
    ) -> u64 {
        let rule = bucket.rule().address();
        let mut parts = bucket.parts();
        let Some(first) = parts.next() else {
            return slot::fingerprint(self.seed.fold(rule, 0));
        };
        let value = first.value.unwrap_or_default();
        let hashed = match *subject {
            Some((known, hashed)) if std::ptr::eq(known, value) => hashed,
            _ => self.seed.hash(value),
        };
        *subject = Some((value, hashed));
        let mut hash = self.seed.join(rule, hashed, first.shape());
        for part in parts {
            let hashed = self.seed.hash(part.value.unwrap_or_default());
            hash = self.seed.join(hash, hashed, part.shape());
        }
        slot::fingerprint(hash)
    }

    /// The bucket that keys of a rule share when the store is full: one per stripe and order of magnitude of
    /// limits, so that plans with different figures do not meet there.
    fn shared_by_stripe(&self, own: u64, rule: Name, limit: &Limit) -> u64 {
        let stripe = (own >> 1) % self.stripes;
        let hash = (&self.seed).hash_one((stripe, rule, magnitude(limit)));
        slot::fingerprint(self.seed.fold(hash, SHARED_BY_STRIPE))
    }

    /// The bucket that all share when there is no room even for more of those.
    fn shared_by_all(&self, limit: &Limit) -> u64 {
        let hash = (&self.seed).hash_one(magnitude(limit));
        slot::fingerprint(self.seed.fold(hash, SHARED_BY_ALL))
    }

    /// Where one of many keys and one of everybody's lies.
    #[inline]
    fn table_of(&self, bucket: &Bucket<'_>) -> &Table {
        match bucket.is_everybodys() {
            true => &self.common,
            false => &self.own,
        }
    }

    /// What to do with a record that is forgotten.
    fn forgetting(&self) -> impl Fn(u64, Record) {
        |fingerprint, record| {
            if let Some(index) = record.log_index() {
                self.logs.of(fingerprint).forget(index);
            }
        }
    }

    /// Gives back what was taken from one bucket.
    pub(crate) fn refund_one(&self, refund: &Refund<'_>) {
        self.change(&refund.bucket, |held| {
            held.refund(refund, self.clock.now_us());
        });
    }

    /// Forgets what one bucket used.
    pub(crate) fn reset_one(&self, bucket: &Bucket<'_>) {
        self.change(bucket, |held| {
            held.reset();
        });
    }

    /// Changes a bucket, if it is there.
    fn change(&self, bucket: &Bucket<'_>, change: impl FnOnce(&mut Held<'_>)) {
        let fingerprint = self.fingerprint(bucket);
        if let Some(claim) = self.table_of(bucket).hold_surely(fingerprint) {
            let mut held = Held::new(claim, &self.logs);
            held.forget_past(self.clock.now_us());
            change(&mut held);
            held.keep();
        }
    }
}

fn magnitude(limit: &Limit) -> (Algorithm, u32) {
    (limit.algorithm(), limit.capacity().ilog2())
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl StoreOperations for MemoryStore {
    type Error = Infallible;

    async fn take(&self, charges: &[Charge<'_>]) -> Result<Taken, Infallible> {
        Ok(self.visit(charges, true))
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Taken, Infallible> {
        Ok(self.visit(charges, false))
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<(), Infallible> {
        refunds.iter().for_each(|refund| self.refund_one(refund));
        Ok(())
    }

    async fn reset(&self, buckets: &[Bucket<'_>]) -> Result<(), Infallible> {
        buckets.iter().for_each(|bucket| self.reset_one(bucket));
        Ok(())
    }
}

/// The secret that makes fingerprints unguessable: fresh for every store, from the system's randomness.
struct Seed {
    shared: SharedSeed,
    first: u64,
    last: [u64; 2],
}

impl Seed {
    fn random() -> Self {
        let random = std::hash::RandomState::new();
        Self::made_of([0, 1, 2, 3].map(|nth| random.hash_one(nth)))
    }

    fn made_of([shared, first, last @ ..]: [u64; 4]) -> Self {
        Self {
            shared: SharedSeed::from_u64(shared),
            first,
            last,
        }
    }

    #[inline(always)]
    fn hash(&self, value: &[u8]) -> u64 {
        let mut hasher = self.build_hasher();
        hasher.write(value);
        hasher.finish()
    }

    /// The hash of some parts and one more.
    #[inline(always)]
    fn join(&self, parts: u64, value: u64, [form, name]: [u64; 2]) -> u64 {
        self.fold(parts ^ value, form ^ name.rotate_left(32))
    }

    /// All bits of both words reach all bits of the result.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    fn fold(&self, a: u64, b: u64) -> u64 {
        let product = u128::from(a ^ self.last[0]) * u128::from(b ^ self.last[1]);
        product as u64 ^ (product >> 64) as u64
    }
}

impl<'a> BuildHasher for &'a Seed {
    type Hasher = FoldHasher<'a>;

    fn build_hasher(&self) -> FoldHasher<'a> {
        FoldHasher::with_seed(self.first, &self.shared)
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
    fn no_two_of_a_million_buckets_share_a_fingerprint() {
        let store = MemoryStore::new();
        let mut seen = std::collections::HashSet::new();
        crate::bucket::tests::different_buckets(1_000_000, |bucket| {
            assert!(seen.insert(store.fingerprint(bucket)), "{bucket:?}");
        });
    }
}
