//! Where sliding logs lie: too long for a slot, which only says where.

use crate::algorithm::Log;

#[derive(Debug, Default)]
pub(super) struct Logs {
    logs: Vec<Option<Box<Log>>>,
    free: Vec<u32>,
    entries: usize,
}

impl Logs {
    /// A place for a log that is new.
    pub(super) fn new_place(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.logs.push(None);
            // Logs are fewer than keys, and the keys of a shard fewer than 2^32.
            u32::try_from(self.logs.len() - 1).unwrap_or(u32::MAX)
        })
    }

    pub(super) fn get(&self, place: u32) -> Option<&Log> {
        self.logs.get(place as usize)?.as_deref()
    }

    /// Takes a log out, to be put back at the same place.
    pub(super) fn take(&mut self, place: u32) -> Box<Log> {
        let log = self.logs[place as usize].take().unwrap_or_default();
        self.entries -= log.len();
        log
    }

    pub(super) fn put(&mut self, place: u32, log: Box<Log>) {
        self.entries += log.len();
        self.logs[place as usize] = Some(log);
    }

    /// Forgets a log; its place is free for another.
    pub(super) fn forget(&mut self, place: u32) {
        drop(self.take(place));
        self.free.push(place);
    }

    /// Entries in all logs that are not taken out.
    pub(super) fn entries(&self) -> usize {
        self.entries
    }
}
