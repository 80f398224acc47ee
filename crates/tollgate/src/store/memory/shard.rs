//! A part of the store behind one lock: a table of slots, and the logs that do not fit into one.

use super::logs::Logs;
use super::slot::{Content, Slot};
use super::table::Table;
use crate::algorithm::{Arithmetic as _, Look, State};
use crate::limit::{Algorithm, Limit};

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

/// A bucket taken out of its shard to be looked at and perhaps charged.
pub(super) struct Open {
    pub(super) fingerprint: u64,
    /// Where its slot is; `None` for a key never seen.
    index: Option<usize>,
    pub(super) state: State,
}

impl Open {
    /// A key never seen.
    pub(super) fn nothing(fingerprint: u64, limit: &Limit) -> Self {
        Self {
            fingerprint,
            index: None,
            state: limit.fresh(),
        }
    }

    pub(super) fn is_new(&self) -> bool {
        self.index.is_none()
    }
}

impl Shard {
    pub(super) fn new() -> Self {
        Self {
            table: Table::default(),
            takes: 0,
            logs: Box::default(),
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

    /// Looks at the bucket at `index`, and charges it if the cost fits and `charging`.
    #[inline(always)]
    pub(super) fn take(&mut self, index: usize, ask: &Ask<'_>) -> Look {
        // The default algorithm is most of all checks: changed where it lies, in registers.
        if let Some(bucket) = ask.limit.as_token_bucket()
            && let Some(mut level) = self.table.slot(index).level()
            && ask.cost <= bucket.capacity()
        {
            let look = bucket.take(&mut level, ask.now_us, ask.cost, ask.charging);
            if look.charged {
                let slot = self.table.slot_mut(index);
                slot.write_level(level, look.empty_at_us);
            }
            return look;
        }
        let open = Open {
            fingerprint: self.table.slot(index).fingerprint,
            index: Some(index),
            state: self.read(index, ask.limit),
        };
        self.take_open(open, ask)
    }

    /// The same for a bucket that is open, which closes it.
    pub(super) fn take_open(&mut self, mut open: Open, ask: &Ask<'_>) -> Look {
        let limit = ask.limit;
        let look = limit.take(&mut open.state, ask.now_us, ask.cost, ask.charging);
        let changed = Changed {
            empty_at_us: look.empty_at_us,
            max_log_entries: ask.max_log_entries,
        };
        self.close(open, look.charged.then_some(changed));
        look
    }

    /// What was used under this fingerprint. Must be [closed](Self::close) before the lock is released.
    #[inline]
    pub(super) fn open(&mut self, fingerprint: u64, limit: &Limit) -> Open {
        match self.table.find(fingerprint) {
            None => Open::nothing(fingerprint, limit),
            Some(index) => Open {
                fingerprint,
                index: Some(index),
                state: self.read(index, limit),
            },
        }
    }

    #[inline]
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

    /// Keeps a state that was changed, with what is needed for that; without, puts it back as it was.
    #[inline]
    pub(super) fn close(&mut self, open: Open, changed: Option<Changed>) {
        match (changed, open.index, open.state) {
            (Some(changed), Some(index), state) => self.write(index, state, changed),
            (Some(changed), None, state) => {
                let index = self.table.insert(Slot::new(open.fingerprint));
                self.write(index, state, changed);
            }
            (None, Some(index), State::Log(log)) => {
                if let Some(place) = self.table.slot(index).log_place() {
                    self.logs.put(place, log);
                }
            }
            (None, _, _) => {}
        }
    }

    #[inline]
    fn write(&mut self, index: usize, state: State, changed: Changed) {
        let slot = self.table.slot_mut(index);
        let old_place = slot.log_place();
        match state {
            State::Log(mut log) => {
                if self.logs.entries() + log.len() > changed.max_log_entries {
                    log.merge_newest();
                }
                let place = old_place.unwrap_or_else(|| self.logs.new_place());
                slot.write_log(place, log.last_us(), changed.empty_at_us);
                self.logs.put(place, log);
            }
            small => {
                if let Some(place) = old_place {
                    self.logs.forget(place);
                }
                slot.write(&small, changed.empty_at_us);
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

/// What is asked of one bucket.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) limit: &'a Limit,
    pub(super) now_us: u64,
    pub(super) cost: u64,
    pub(super) charging: bool,
    /// The most entries in all logs of this shard.
    pub(super) max_log_entries: usize,
}

/// What is needed to keep a state that was changed.
#[derive(Clone, Copy)]
pub(super) struct Changed {
    /// From when on it says nothing.
    pub(super) empty_at_us: u64,
    /// The most entries in all logs of this shard.
    pub(super) max_log_entries: usize,
}
