//! A value for each thread, so that threads that count do not write to the same memory.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// One `T` per shard. Threads beyond `SHARDS` share them.
#[derive(Debug)]
pub(crate) struct Sharded<T, const SHARDS: usize>([Shard<T>; SHARDS]);

/// As long as a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard<T>(T);

impl<T, const SHARDS: usize> Sharded<T, SHARDS> {
    /// This thread's.
    pub(crate) fn mine(&self) -> &T {
        &self.0[number() % SHARDS].0
    }

    /// All threads'.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|shard| &shard.0)
    }
}

impl<T: Default, const SHARDS: usize> Default for Sharded<T, SHARDS> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Shard::default()))
    }
}

fn number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Relaxed);
    }
    // While a thread ends, any will do.
    NUMBER.try_with(|number| *number).unwrap_or_default()
}
