//! Counters of decisions by rule, and of denials by client. Decisions are counted where they are made, without a lock
//! (`make bench-metrics`): a value per thread keeps threads from writing to the same memory.

mod decisions;
mod top;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub(crate) use decisions::{Counted, Decisions, OTHER, OUTCOMES};
pub(crate) use top::TopDenied;

/// One `T` per shard. Threads beyond `SHARDS` share them.
#[derive(Debug)]
pub(crate) struct Sharded<T, const SHARDS: usize>([CacheLine<T>; SHARDS]);

#[derive(Debug, Default)]
#[repr(align(64))]
struct CacheLine<T>(T);

impl<T, const SHARDS: usize> Sharded<T, SHARDS> {
    pub(crate) fn mine(&self) -> &T {
        &self.0[thread_number() % SHARDS].0
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|shard| &shard.0)
    }
}

impl<T: Default, const SHARDS: usize> Default for Sharded<T, SHARDS> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| CacheLine::default()))
    }
}

fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Relaxed);
    }
    // Any shard will do while a thread ends.
    NUMBER.try_with(|number| *number).unwrap_or_default()
}
