//! Three words that threads share without a lock.
//!
//! A slot's first word is its key's fingerprint; one bit of it says that somebody holds the slot. To hold it is one
//! compare-and-swap, which also makes sure that the key is still the one that was looked for; to let it go is one
//! store. So a check writes to the one cache line it has to write to anyway, and to no other. (With a lock per shard,
//! two cores passed the lock's line to and fro for every check: bench/README.md.)

#[cfg(not(tollgate_loom))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(tollgate_loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

use super::patience::Patience;
use super::record::Record;

/// Fingerprint, stamp and state. An array, as only those can be had from zeroed memory.
pub(super) type Slot = [AtomicU64; 3];

/// Fingerprints never have this bit.
const HELD: u64 = 1;

/// A hash as a fingerprint: even, and not 0, which marks a free slot.
pub(super) fn fingerprint(hash: u64) -> u64 {
    (hash & !HELD).max(2)
}

/// Whose slot it is, held or not; 0 if it is free.
#[inline]
pub(super) fn owner(slot: &Slot) -> u64 {
    slot[0].load(Ordering::Acquire) & !HELD
}

/// A glance at what a slot says, which somebody may be changing.
pub(super) fn glance(slot: &Slot) -> Record {
    Record::from_words([
        slot[1].load(Ordering::Relaxed),
        slot[2].load(Ordering::Relaxed),
    ])
}

/// Fills a free slot. Only for those who may change the table.
pub(super) fn fill(slot: &Slot, fingerprint: u64, record: Record) {
    write(slot, record);
    slot[0].store(fingerprint, Ordering::Release);
}

fn write(slot: &Slot, record: Record) {
    let [stamp, word] = record.to_words();
    slot[1].store(stamp, Ordering::Relaxed);
    slot[2].store(word, Ordering::Relaxed);
}

/// The right to read and write a slot. Whoever wants several takes them in the order in which they lie in the table.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    slot: &'a Slot,
    fingerprint: u64,
}

impl<'a> Claim<'a> {
    /// Waits until the slot is free to hold; `None` if it is not this key's (any more).
    #[inline]
    pub(super) fn wait_for(slot: &'a Slot, fingerprint: u64) -> Option<Self> {
        let mut patience = Patience::default();
        loop {
            match slot[0].compare_exchange_weak(
                fingerprint,
                fingerprint | HELD,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(Self { slot, fingerprint }),
                Err(seen) if seen & !HELD == fingerprint => patience.wait(),
                Err(_) => return None,
            }
        }
    }

    /// `None` if somebody holds the slot, or it is not this key's (any more).
    #[inline]
    pub(super) fn try_for(slot: &'a Slot, fingerprint: u64) -> Option<Self> {
        let held = fingerprint | HELD;
        slot[0]
            .compare_exchange(fingerprint, held, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| Self { slot, fingerprint })
    }

    pub(super) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    #[inline]
    pub(super) fn read(&self) -> Record {
        glance(self.slot)
    }

    #[inline]
    pub(super) fn write(&self, record: Record) {
        write(self.slot, record);
    }

    /// Lets the slot go as a free one. Those who wait for it will look for their key elsewhere.
    pub(super) fn vacate(mut self) {
        self.fingerprint = 0;
    }
}

impl Drop for Claim<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot[0].store(self.fingerprint, Ordering::Release);
    }
}

#[cfg(all(test, tollgate_loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    fn slot(fingerprint: u64) -> Arc<Slot> {
        let slot = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
        fill(&slot, fingerprint, Record::default());
        slot
    }

    fn add_one(claim: &Claim<'_>) {
        let [stamp, word] = claim.read().to_words();
        // Both words are changed together, by one at a time.
        assert_eq!(stamp, word);
        claim.write(Record::from_words([stamp + 1, word + 1]));
    }

    /// Every interleaving of two threads that count in one slot: nothing is lost, and nobody sees half of a change.
    #[test]
    fn what_is_written_under_a_claim_is_seen_whole_by_the_next() {
        loom::model(|| {
            let slot = slot(4);
            let other = {
                let slot = Arc::clone(&slot);
                loom::thread::spawn(move || add_one(&Claim::wait_for(&slot, 4).unwrap()))
            };
            add_one(&Claim::wait_for(&slot, 4).unwrap());
            other.join().unwrap();
            assert_eq!(glance(&slot).to_words(), [2, 2]);
        });
    }

    /// One thread only tries: it counts if it gets hold of the slot, and else leaves it to the other.
    #[test]
    fn who_tries_in_vain_changes_nothing() {
        loom::model(|| {
            let slot = slot(4);
            let other = {
                let slot = Arc::clone(&slot);
                loom::thread::spawn(move || add_one(&Claim::wait_for(&slot, 4).unwrap()))
            };
            let counted = Claim::try_for(&slot, 4)
                .map(|claim| add_one(&claim))
                .is_some();
            other.join().unwrap();
            assert_eq!(owner(&slot), 4);
            assert_eq!(glance(&slot).to_words(), [1 + u64::from(counted); 2]);
        });
    }

    /// One thread counts while the other moves the key to another slot: it is counted before, or not at all there.
    #[test]
    fn a_key_that_moves_takes_its_count_along() {
        loom::model(|| {
            let (from, to) = (slot(4), slot(6));
            let mover = {
                let (from, to) = (Arc::clone(&from), Arc::clone(&to));
                loom::thread::spawn(move || {
                    Claim::wait_for(&to, 6).unwrap().vacate();
                    let claim = Claim::wait_for(&from, 4).unwrap();
                    let record = claim.read();
                    claim.vacate();
                    fill(&to, 4, record);
                })
            };
            let counted = [&from, &to].into_iter().any(|slot| {
                Claim::wait_for(slot, 4)
                    .map(|claim| add_one(&claim))
                    .is_some()
            });
            mover.join().unwrap();
            assert_eq!(owner(&from), 0);
            assert_eq!(owner(&to), 4);
            assert_eq!(glance(&to).to_words(), [u64::from(counted); 2]);
        });
    }
}
