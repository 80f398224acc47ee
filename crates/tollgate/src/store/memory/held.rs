//! A bucket that nobody else can look at.

use super::logs::LogShards;
use super::record::{Content, Record};
use super::slot::Claim;
use crate::algorithm::{Arithmetic as _, Fit, Look, State};
use crate::limit::{Algorithm, Limit};
use crate::store::Refund;

/// When to come back if there is no memory at all.
const NO_ROOM_US: u64 = 1_000_000;

/// What is asked of one bucket.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) limit: &'a Limit,
    pub(super) now_us: u64,
    pub(super) cost: u64,
    /// Whether to charge what fits, or only to look.
    pub(super) charging: bool,
}

impl Ask<'_> {
    /// What a key that is not there would say. If it was to be charged there is no memory for it, not even for one that it
    /// could share: it has to wait.
    pub(super) fn of_nothing(&self) -> Look {
        let mut fresh = self.limit.fresh();
        let mut look = self.limit.take(&mut fresh, self.now_us, self.cost, false);
        if self.charging && self.cost > 0 && look.fit.admits() {
            look.fit = Fit::Later {
                ready_at_us: self.now_us + NO_ROOM_US,
            };
        }
        look
    }
}

/// Changes are made on a copy of the record, and count once they are [kept](Self::keep); sliding logs, which are too
/// long to copy, are changed where they lie.
#[derive(Debug)]
pub(super) struct Held<'a> {
    claim: Claim<'a>,
    record: Record,
    /// Whether there is something to keep.
    is_changed: bool,
    /// Whether the log that the record speaks of says nothing any more.
    log_is_past: bool,
    logs: &'a LogShards,
}

impl<'a> Held<'a> {
    #[inline]
    pub(super) fn new(claim: Claim<'a>, logs: &'a LogShards) -> Self {
        Self {
            record: claim.read(),
            claim,
            is_changed: false,
            log_is_past: false,
            logs,
        }
    }

    /// Makes the changes count.
    #[inline]
    pub(super) fn keep(&self) {
        if self.is_changed {
            self.claim.write(self.record);
        }
    }

    /// Undoes all changes that do not count yet.
    pub(super) fn undo(&mut self, now_us: u64) {
        self.record = self.claim.read();
        self.is_changed = false;
        self.forget_past(now_us);
    }

    /// What says nothing any more by the limit it was last looked at with, is as good as forgotten: whether it was swept
    /// already must not make a difference when the limit has changed since.
    #[inline]
    pub(super) fn forget_past(&mut self, now_us: u64) {
        if self.record.expires_at_us() <= now_us || self.record.is_unused() {
            match self.record.log_index() {
                // The log is overwritten when there is something to write.
                Some(_) => self.log_is_past = true,
                None => self.record = Record::default(),
            }
        }
    }

    /// Whether a charge under this limit could still be undone: logs are charged where they lie.
    pub(super) fn can_undo(&self, limit: &Limit) -> bool {
        limit.algorithm() != Algorithm::SlidingLog && self.record.log_index().is_none()
    }

    #[inline]
    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    pub(super) fn fingerprint(&self) -> u64 {
        self.claim.fingerprint()
    }

    /// Looks at the bucket, and charges it if the cost fits and that is wanted.
    pub(super) fn take(&mut self, ask: &Ask<'_>) -> Look {
        match self.take_token_bucket(ask) {
            Some(look) => look,
            None => self.take_any(ask),
        }
    }

    /// The default algorithm is most of all checks: all in registers. `None` if this is not such a bucket.
    #[inline(always)]
    pub(super) fn take_token_bucket(&mut self, ask: &Ask<'_>) -> Option<Look> {
        let bucket = ask.limit.as_token_bucket()?;
        let mut level = self.record.level()?;
        if ask.cost > bucket.capacity() {
            return None;
        }
        let look = bucket.take(&mut level, ask.now_us, ask.cost, ask.charging);
        if look.charged {
            let is_heavy = is_heavy(bucket.capacity(), look.remaining);
            (self.record).write_level(level, look.empty_at_us, is_heavy);
            self.is_changed = true;
        } else {
            self.is_changed |= self.record.keep_until(look.empty_at_us);
        }
        Some(look)
    }

    fn take_any(&mut self, ask: &Ask<'_>) -> Look {
        let mut state = self.read(ask.limit);
        let look = (ask.limit).take(&mut state, ask.now_us, ask.cost, ask.charging);
        match look.charged {
            true => {
                let is_heavy = is_heavy(ask.limit.capacity(), look.remaining);
                self.write(state, look.empty_at_us, is_heavy);
            }
            false => {
                self.put_back(state);
                // The limit may have become a slower one since the state was written.
                if !self.log_is_past {
                    self.is_changed |= self.record.keep_until(look.empty_at_us);
                }
            }
        }
        look
    }

    /// Takes back a cost.
    pub(super) fn refund(&mut self, refund: &Refund<'_>, now_us: u64) {
        if self.record == Record::default() || self.log_is_past {
            return;
        }
        let limit = refund.limit;
        let mut state = self.read(limit);
        limit.refund(&mut state, now_us, refund.charged_at_us, refund.cost);
        let empty_at_us = limit.empty_at_us(&state);
        let was_heavy = self.record.is_heavy();
        self.write(state, empty_at_us, was_heavy);
    }

    /// Forgets what was used.
    pub(super) fn reset(&mut self) {
        if let Some(index) = self.record.log_index() {
            self.logs.of(self.claim.fingerprint()).forget(index);
        }
        self.record = self.record.spent();
        self.is_changed = true;
    }

    /// Gives up a slot that was reserved and in which nothing was used after all.
    pub(super) fn forget_reservation(&mut self) {
        let kept = self.claim.read();
        if kept.is_unused() && !self.is_changed {
            self.record = kept.spent();
            self.is_changed = true;
        }
    }

    /// The state, in the form this limit keeps. A log is taken out, to be written or put back.
    fn read(&self, limit: &Limit) -> State {
        match self.record.content() {
            Content::State(state) => state,
            Content::Log { .. } if self.log_is_past => limit.fresh(),
            Content::Log { index } if limit.algorithm() == Algorithm::SlidingLog => {
                State::Log(self.logs.of(self.claim.fingerprint()).take(index))
            }
            // Another algorithm takes over: the log stays until that one is charged.
            Content::Log { index } => match self.logs.of(self.claim.fingerprint()).get(index) {
                Some(log) => limit.adopt_log(log),
                None => limit.fresh(),
            },
        }
    }

    fn put_back(&self, state: State) {
        if self.log_is_past {
            return;
        }
        if let (State::Log(log), Some(index)) = (state, self.record.log_index()) {
            self.logs.of(self.claim.fingerprint()).put(index, log);
        }
    }

    fn write(&mut self, state: State, empty_at_us: u64, is_heavy: bool) {
        let old_index = self.record.log_index();
        self.log_is_past = false;
        self.is_changed = true;
        match state {
            State::Log(mut log) => {
                let mut logs = self.logs.of(self.claim.fingerprint());
                if logs.are_full() {
                    log.merge_newest();
                }
                let index = old_index.unwrap_or_else(|| logs.add());
                (self.record).write_log(index, log.last_us(), empty_at_us, is_heavy);
                logs.put(index, log);
            }
            small => {
                if let Some(index) = old_index {
                    self.logs.of(self.claim.fingerprint()).forget(index);
                }
                self.record.write(&small, empty_at_us, is_heavy);
            }
        }
    }
}

/// Whether more than half is used.
#[inline(always)]
fn is_heavy(capacity: u64, remaining: u64) -> bool {
    2 * remaining < capacity
}
