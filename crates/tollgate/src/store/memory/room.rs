//! How many entries there may be in all logs together.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts up to a bound. Touched only when something comes or goes.
#[derive(Debug)]
pub(super) struct Room {
    used: AtomicUsize,
    most: usize,
}

impl Room {
    pub(super) fn new(most: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            most,
        }
    }

    /// Takes so many places, beyond the bound if need be.
    pub(super) fn take(&self, places: usize) {
        self.used.fetch_add(places, Ordering::Relaxed);
    }

    /// Gives places back.
    pub(super) fn give_back(&self, places: usize) {
        if places > 0 {
            self.used.fetch_sub(places, Ordering::Relaxed);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) >= self.most
    }
}
