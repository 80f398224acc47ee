//! How many keys, and how many entries of logs, there may be over all shards.

#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering};
#[cfg(not(loom))]
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

    /// Takes a place, if there is one.
    pub(super) fn take(&self) -> bool {
        let one_more = |used: usize| (used < self.most).then_some(used + 1);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .is_ok()
    }

    /// Takes a place beyond the bound: for the few buckets that stand for many keys.
    pub(super) fn take_anyway(&self) {
        self.take_all_anyway(1);
    }

    /// Takes so many places, beyond the bound if need be.
    pub(super) fn take_all_anyway(&self, places: usize) {
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

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// Every interleaving of two threads at one place.
    #[test]
    fn never_more_than_the_bound_and_never_lost() {
        loom::model(|| {
            let room = Arc::new(Room::new(1));
            let inside = Arc::new(AtomicUsize::new(0));
            let come_and_go = |room: &Room, inside: &AtomicUsize| {
                let entered = room.take();
                if entered {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    room.give_back(1);
                }
                entered
            };
            let other = {
                let (room, inside) = (Arc::clone(&room), Arc::clone(&inside));
                loom::thread::spawn(move || come_and_go(&room, &inside))
            };
            let entered = come_and_go(&room, &inside) | other.join().unwrap();
            // One of them found it free, and afterwards it is free again.
            assert!(entered);
            assert_eq!(room.used.load(Ordering::SeqCst), 0);
        });
    }
}
