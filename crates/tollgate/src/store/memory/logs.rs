//! Where sliding logs lie: too long for a slot, which only says where.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::room::Room;
use crate::algorithm::Log;

/// Enough that two threads seldom meet.
const SHARDS: usize = 64;

/// All logs, by the fingerprints of their keys.
#[derive(Debug)]
pub(super) struct LogShards(Box<[Mutex<Logs>; SHARDS]>);

impl LogShards {
    /// Room for so many entries in all.
    pub(super) fn new(most_entries: usize) -> Self {
        let room = Arc::new(Room::new(most_entries));
        Self(Box::new(std::array::from_fn(|_| {
            Mutex::new(Logs::new(&room))
        })))
    }

    /// Those among which a key's log lies.
    pub(super) fn of(&self, fingerprint: u64) -> MutexGuard<'_, Logs> {
        let shard = usize::try_from(fingerprint >> 1).unwrap_or(0) % SHARDS;
        self.0[shard].lock()
    }

    pub(super) fn entries(&self) -> usize {
        self.0.iter().map(|logs| logs.lock().entries()).sum()
    }
}

#[derive(Debug)]
pub(super) struct Logs {
    logs: Vec<StoredLog>,
    free: Vec<u32>,
    /// Entries in the logs of all shards.
    room: Arc<Room>,
    entries: usize,
}

#[derive(Debug, Default)]
struct StoredLog {
    /// Empty while the log is taken out.
    log: Option<Box<Log>>,
    /// How many entries it had when it was put here.
    counted: usize,
}

impl Logs {
    fn new(room: &Arc<Room>) -> Self {
        Self {
            logs: Vec::new(),
            free: Vec::new(),
            room: Arc::clone(room),
            entries: 0,
        }
    }

    /// The index of a new log, which is empty.
    pub(super) fn add(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.logs.push(StoredLog::default());
            // Logs are fewer than keys, and the keys of a shard fewer than 2^32.
            u32::try_from(self.logs.len() - 1).unwrap_or(u32::MAX)
        })
    }

    pub(super) fn get(&self, index: u32) -> Option<&Log> {
        self.logs.get(index as usize)?.log.as_deref()
    }

    /// Takes a log out, to be put back under the same index.
    pub(super) fn take(&mut self, index: u32) -> Box<Log> {
        self.logs[index as usize].log.take().unwrap_or_default()
    }

    pub(super) fn put(&mut self, index: u32, log: Box<Log>) {
        self.count(index, log.len());
        self.logs[index as usize].log = Some(log);
    }

    /// Forgets a log; its index is free for another.
    pub(super) fn forget(&mut self, index: u32) {
        drop(self.take(index));
        self.count(index, 0);
        self.free.push(index);
        if self.free.len() == self.logs.len() {
            self.logs = Vec::new();
            self.free = Vec::new();
        }
    }

    /// Keeps count of the entries of a log, here and over all shards.
    fn count(&mut self, index: u32, now: usize) {
        let before = std::mem::replace(&mut self.logs[index as usize].counted, now);
        self.entries = self.entries + now - before;
        match now.checked_sub(before) {
            Some(more) => self.room.take(more),
            None => self.room.give_back(before - now),
        }
    }

    /// Whether there is no room for more entries.
    pub(super) fn are_full(&self) -> bool {
        self.room.is_full()
    }

    /// Entries in the logs of this shard.
    pub(super) fn entries(&self) -> usize {
        self.entries
    }
}
