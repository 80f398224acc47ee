//! A place for each thread, so that threads that count do not pass the same memory to and fro.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// One `T` per lane. Threads beyond `LANES` share them.
#[derive(Debug)]
pub(crate) struct Lanes<T, const LANES: usize>([Lane<T>; LANES]);

/// As long as what processors pass to each other.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Lane<T>(T);

impl<T, const LANES: usize> Lanes<T, LANES> {
    /// This thread's.
    pub(crate) fn mine(&self) -> &T {
        &self.0[number() % LANES].0
    }

    /// All threads'.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|lane| &lane.0)
    }
}

impl<T: Default, const LANES: usize> Default for Lanes<T, LANES> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Lane::default()))
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
