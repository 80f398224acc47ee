//! A part of the store behind one lock: a table of slots, and the logs that do not fit into one.

use std::sync::Arc;

use super::logs::Logs;
use super::room::Room;
use super::slot::{Content, Slot};
use super::table::Table;
use crate::algorithm::{Arithmetic as _, Look, State};
use crate::limit::{Algorithm, Limit};
use crate::store::Refund;

/// Slots to look at for each key that is new.
const SWEEP_PER_NEW_KEY: usize = 8;
/// Every so many takes, some shard is cleaned a little.
const TAKES_PER_SWEEP: u32 = 64;

/// With its lock it fills one cache line, which is all that two cores pass to and fro. What is seldom needed is
/// boxed.
#[derive(Debug)]
pub(super) struct Shard {
    table: Table,
    takes: u32,
    logs: Box<Logs>,
}

/// What is asked of one bucket.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) limit: &'a Limit,
    pub(super) now_us: u64,
    pub(super) cost: u64,
    /// Whether to charge what fits, or only to look.
    pub(super) charging: bool,
}

impl Shard {
    pub(super) fn new(log_room: &Arc<Room>) -> Self {
        Self {
            table: Table::default(),
            takes: 0,
            logs: Box::new(Logs::new(log_room)),
        }
    }

    /// Counts a take, and says whether it is time to clean somewhere.
    #[inline]
    pub(super) fn count_take(&mut self) -> bool {
        self.takes = self.takes.wrapping_add(1);
        self.takes.is_multiple_of(TAKES_PER_SWEEP)
    }

    /// Makes sure that `new_keys` can be added without moving any slot, cleans a little, and says how many keys went.
    /// Moves slots itself: nothing may be open.
    #[must_use]
    #[cold]
    pub(super) fn make_room(&mut self, new_keys: usize, now_us: u64) -> usize {
        let gone = self.sweep(new_keys * SWEEP_PER_NEW_KEY, now_us);
        self.table.make_room(new_keys);
        gone
    }

    /// Looks at the next `slots` slots, clears what says nothing any more, and says how many keys went.
    #[must_use]
    pub(super) fn sweep(&mut self, slots: usize, now_us: u64) -> usize {
        let before = self.table.len();
        let logs = &mut self.logs;
        self.table.sweep(slots, now_us, |slot| {
            if let Some(place) = slot.log_place() {
                logs.forget(place);
            }
        });
        before - self.table.len()
    }

    #[inline]
    pub(super) fn find(&self, fingerprint: u64) -> Option<usize> {
        self.table.find(fingerprint)
    }

    /// Brings the places where these would be into the cache, all at once.
    pub(super) fn touch(&self, fingerprints: impl Iterator<Item = u64>) {
        self.table.touch(fingerprints);
    }

    /// Adds a key that is not here, with nothing used; [room](Self::make_room) must have been made.
    pub(super) fn insert_blank(&mut self, fingerprint: u64) {
        self.table.insert(Slot::new(fingerprint));
    }

    /// Forgets a key if nothing was ever used of it; says whether.
    pub(super) fn remove_blank(&mut self, fingerprint: u64) -> bool {
        match self.table.find(fingerprint) {
            Some(index) if self.table.slot(index).is_blank() => self.remove(fingerprint),
            _ => false,
        }
    }

    /// Looks at the bucket at `index`, and charges it if the cost fits and that is wanted.
    #[inline(always)]
    pub(super) fn take(&mut self, index: usize, ask: &Ask<'_>) -> Look {
        let slot = self.table.slot_mut(index);
        // The default algorithm is most of all checks: changed where it lies, in registers.
        if let Some(bucket) = ask.limit.as_token_bucket()
            && let Some(mut level) = slot.level()
            && ask.cost <= bucket.capacity()
        {
            let look = bucket.take(&mut level, ask.now_us, ask.cost, ask.charging);
            if look.charged {
                slot.write_level(level, look.empty_at_us);
            } else {
                slot.keep_until(look.empty_at_us);
            }
            return look;
        }
        self.take_any(index, ask)
    }

    fn take_any(&mut self, index: usize, ask: &Ask<'_>) -> Look {
        let mut state = self.read(index, ask.limit);
        let look = (ask.limit).take(&mut state, ask.now_us, ask.cost, ask.charging);
        match look.charged {
            true => self.write(index, state, look.empty_at_us),
            false => {
                self.put_back(index, state);
                // The limit may have become a slower one since the state was written.
                self.table.slot_mut(index).keep_until(look.empty_at_us);
            }
        }
        look
    }

    /// What [`take`](Self::take) would say of a key that is not here.
    pub(super) fn look_at_nothing(&self, ask: &Ask<'_>) -> Look {
        let mut fresh = ask.limit.fresh();
        (ask.limit).take(&mut fresh, ask.now_us, ask.cost, false)
    }

    /// Takes back a cost.
    pub(super) fn refund(&mut self, index: usize, refund: &Refund<'_>, now_us: u64) {
        let limit = refund.limit;
        let mut state = self.read(index, limit);
        limit.refund(&mut state, now_us, refund.charged_at_us, refund.cost);
        let empty_at_us = limit.empty_at_us(&state);
        self.write(index, state, empty_at_us);
    }

    /// The state of a slot, in the form this limit keeps. A log is taken out, to be written or put back.
    fn read(&mut self, index: usize, limit: &Limit) -> State {
        match self.table.slot(index).content() {
            Content::State(state) => state,
            Content::Log { place } if limit.algorithm() == Algorithm::SlidingLog => {
                State::Log(self.logs.take(place))
            }
            // Another algorithm takes over: the log stays until that one is charged.
            Content::Log { place } => match self.logs.get(place) {
                Some(log) => limit.adopt_log(log),
                None => limit.fresh(),
            },
        }
    }

    fn put_back(&mut self, index: usize, state: State) {
        if let (State::Log(log), Some(place)) = (state, self.table.slot(index).log_place()) {
            self.logs.put(place, log);
        }
    }

    fn write(&mut self, index: usize, state: State, empty_at_us: u64) {
        let slot = self.table.slot_mut(index);
        let old_place = slot.log_place();
        match state {
            State::Log(mut log) => {
                if self.logs.are_full() {
                    log.merge_newest();
                }
                let place = old_place.unwrap_or_else(|| self.logs.new_place());
                slot.write_log(place, log.last_us(), empty_at_us);
                self.logs.put(place, log);
            }
            small => {
                if let Some(place) = old_place {
                    self.logs.forget(place);
                }
                slot.write(&small, empty_at_us);
            }
        }
    }

    /// Forgets a key; says whether it was there.
    pub(super) fn remove(&mut self, fingerprint: u64) -> bool {
        let Some(index) = self.table.find(fingerprint) else {
            return false;
        };
        if let Some(place) = self.table.remove(index).log_place() {
            self.logs.forget(place);
        }
        true
    }

    pub(super) fn keys(&self) -> usize {
        self.table.len()
    }

    pub(super) fn slots(&self) -> usize {
        self.table.capacity()
    }

    pub(super) fn log_entries(&self) -> usize {
        self.logs.entries()
    }

    /// Keys that still say something.
    pub(super) fn live_keys(&self, now_us: u64) -> usize {
        self.table
            .iter()
            .filter(|slot| slot.stamp.expires_at_us() > now_us)
            .count()
    }
}
