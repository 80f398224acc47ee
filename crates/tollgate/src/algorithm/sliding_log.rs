//! Sliding log: remembers every admitted request of the window.
//!
//! Promise: never more than `limit` in any window of the given length. Memory: 16 bytes for each moment at
//! which something was admitted, at most `limit` of them per key.

use std::collections::VecDeque;

use super::Arithmetic;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlidingLog {
    limit: u64,
    window_us: u64,
}

/// What was admitted, and when, oldest first.
///
/// Each entry carries the running total up to and including it, so that any sum is one subtraction and any
/// question one binary search, however long the log is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
    /// The running total before the first entry.
    forgotten: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at_us: u64,
    total: u64,
}

impl Log {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The time of the newest entry.
    pub(crate) fn last_us(&self) -> u64 {
        self.entries.back().map_or(0, |entry| entry.at_us)
    }

    pub(crate) fn used(&self) -> u64 {
        self.total() - self.forgotten
    }

    pub(super) fn push(&mut self, at_us: u64, cost: u64) {
        let total = self.total() + cost;
        match self.entries.back_mut() {
            Some(last) if last.at_us == at_us => last.total = total,
            _ => self.entries.push_back(Entry { at_us, total }),
        }
    }

    /// Makes one entry of the two newest, at the later time. What they admitted counts a little longer, never
    /// shorter: the way out when there is no memory for another entry.
    pub(crate) fn merge_newest(&mut self) {
        if self.entries.len() < 2 {
            return;
        }
        if let (Some(newest), Some(entry)) = (self.entries.pop_back(), self.entries.back_mut()) {
            *entry = newest;
        }
    }

    fn total(&self) -> u64 {
        self.entries
            .back()
            .map_or(self.forgotten, |entry| entry.total)
    }

    /// The running total just before the entry with this index.
    fn total_before(&self, index: usize) -> u64 {
        match index.checked_sub(1).and_then(|i| self.entries.get(i)) {
            Some(entry) => entry.total,
            None => self.forgotten,
        }
    }

    fn forget(&mut self, count: usize) {
        self.forgotten = self.total_before(count);
        self.entries.drain(..count);
        // A burst long past must not keep its memory.
        if self.entries.capacity() > 16 && self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }
}

impl SlidingLog {
    pub(crate) const fn new(limit: u64, window_us: u64) -> Self {
        Self { limit, window_us }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn window_us(&self) -> u64 {
        self.window_us
    }

    /// How many of the oldest entries are out of the window.
    fn expired(&self, log: &Log, now_us: u64) -> usize {
        let now_us = now_us.max(log.last_us());
        log.entries
            .partition_point(|entry| entry.at_us + self.window_us <= now_us)
    }
}

impl Arithmetic for SlidingLog {
    type State = Log;

    fn ready_at_us(&self, log: &Log, now_us: u64, cost: u64) -> u64 {
        // It fits once the running total of what has expired has risen to this.
        let needed = (log.total() + cost).saturating_sub(self.limit);
        let index = log.entries.partition_point(|entry| entry.total < needed);
        let at_us = log.entries.get(index).map_or(now_us, |entry| entry.at_us);
        at_us + self.window_us
    }

    fn charge(&self, log: &mut Log, now_us: u64, cost: u64) {
        let now_us = now_us.max(log.last_us());
        log.forget(self.expired(log, now_us));
        log.push(now_us, cost);
    }

    fn refund(&self, log: &mut Log, _now_us: u64, charged_at_us: u64, cost: u64) {
        // Only the entry of just that time: a later one, even one it was merged into, may be somebody else's.
        let Ok(index) = (log.entries).binary_search_by_key(&charged_at_us, |entry| entry.at_us)
        else {
            return;
        };
        let entry = log.entries[index];
        let cost = cost.min(entry.total - log.total_before(index));
        for entry in log.entries.range_mut(index..) {
            entry.total -= cost;
        }
        if log.total_before(index + 1) == log.total_before(index) {
            log.entries.remove(index);
        }
    }

    fn remaining(&self, log: &Log, now_us: u64) -> u64 {
        let before = log.total_before(self.expired(log, now_us));
        self.limit.saturating_sub(log.total() - before)
    }

    fn empty_at_us(&self, log: &Log) -> u64 {
        match log.entries.is_empty() {
            true => 0,
            false => log.last_us() + self.window_us,
        }
    }
}
