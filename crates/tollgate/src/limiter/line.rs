//! Requests of this process that wait for the same buckets, in the order in which they came.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A line for each bucket that is waited for.
#[derive(Debug, Default)]
pub(super) struct Lines {
    by_bucket: Mutex<HashMap<u64, VecDeque<Arc<Waiter>>>>,
}

/// The keys of buckets.
pub(super) type Keys = SmallVec<[u64; 4]>;

#[derive(Debug)]
struct Waiter {
    /// The lines it stands in.
    keys: Keys,
    /// When it asks the store again, if that is known.
    asks_at: Mutex<Option<Instant>>,
    /// Notified when it may have become the first of all its lines.
    turn: Notify,
}

/// A position in the lines of some buckets, until it is dropped.
#[derive(Debug)]
pub(super) struct LinePosition<'a> {
    lines: &'a Lines,
    waiter: Arc<Waiter>,
}

impl Lines {
    /// Joins these lines at their ends, all in one step: so of two requests, one is before the other in every line that both stand in,
    /// and none waits for another in a circle.
    pub(super) fn join(&self, mut keys: Keys) -> LinePosition<'_> {
        keys.sort_unstable();
        keys.dedup();
        let waiter = Arc::new(Waiter {
            keys,
            asks_at: Mutex::default(),
            turn: Notify::new(),
        });
        let mut lines = self.by_bucket.lock();
        for key in &waiter.keys {
            let line = lines.entry(*key).or_default();
            line.push_back(Arc::clone(&waiter));
        }
        drop(lines);
        LinePosition {
            lines: self,
            waiter,
        }
    }

    /// Whether a request waits for this bucket.
    pub(super) fn is_occupied(&self, key: u64) -> bool {
        self.by_bucket.lock().contains_key(&key)
    }
}

impl LinePosition<'_> {
    /// Whether no other request is before it in any of its lines.
    pub(super) fn is_first(&self) -> bool {
        let lines = self.lines.by_bucket.lock();
        is_first(&lines, &self.waiter)
    }

    /// Waits until no other request is before it.
    pub(super) async fn turn(&self) {
        while !self.is_first() {
            self.waiter.turn.notified().await;
        }
    }

    /// Notes when it asks the store again, for those behind.
    pub(super) fn asks_at(&self, at: Instant) {
        *self.waiter.asks_at.lock() = Some(at);
    }

    /// How long those before it wait at least.
    pub(super) fn wait_ahead(&self) -> Duration {
        let now = Instant::now();
        let lines = self.lines.by_bucket.lock();
        let keys = self.waiter.keys.iter();
        let firsts = keys.filter_map(|key| lines.get(key)?.front());
        let asks = firsts
            .filter(|first| !Arc::ptr_eq(first, &self.waiter))
            .filter_map(|first| *first.asks_at.lock());
        let waits = asks.map(|at| at.saturating_duration_since(now));
        waits.max().unwrap_or_default()
    }
}

fn is_first(lines: &HashMap<u64, VecDeque<Arc<Waiter>>>, waiter: &Arc<Waiter>) -> bool {
    waiter.keys.iter().all(|key| {
        let first = lines.get(key).and_then(VecDeque::front);
        first.is_some_and(|first| Arc::ptr_eq(first, waiter))
    })
}

impl Drop for LinePosition<'_> {
    /// Leaves all lines, and notifies those who are first now.
    fn drop(&mut self) {
        let lines = &mut *self.lines.by_bucket.lock();
        for key in &self.waiter.keys {
            let Some(line) = lines.get_mut(key) else {
                continue;
            };
            line.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
            if line.is_empty() {
                lines.remove(key);
            }
        }
        for key in &self.waiter.keys {
            if let Some(first) = lines.get(key).and_then(VecDeque::front)
                && is_first(lines, first)
            {
                first.turn.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: &[u64]) -> Keys {
        keys.iter().copied().collect()
    }

    #[test]
    fn first_come_is_first_in_every_line() {
        let lines = Lines::default();
        let one = lines.join(keys(&[1, 2]));
        let two = lines.join(keys(&[3, 2, 3]));
        let three = lines.join(keys(&[3]));
        let four = lines.join(keys(&[4]));
        let firsts = || [&one, &two, &three, &four].map(LinePosition::is_first);
        assert_eq!(firsts(), [true, false, false, true]);
        let now = Instant::now();
        one.asks_at(now + Duration::from_secs(60));
        assert!(two.wait_ahead() > Duration::from_secs(50));
        assert_eq!(three.wait_ahead(), Duration::ZERO);
        drop(one);
        assert_eq!([&two, &three].map(LinePosition::is_first), [true, false]);
        drop(two);
        assert!(three.is_first());
        drop((three, four));
        assert!(lines.by_bucket.lock().is_empty());
    }

    #[tokio::test]
    async fn the_next_in_line_is_notified() {
        let lines = Lines::default();
        let first = lines.join(keys(&[1]));
        let gone = lines.join(keys(&[1]));
        let last = lines.join(keys(&[1, 2]));
        // One in the middle leaves: nothing changes for the others.
        drop(gone);
        assert!(!last.is_first() && lines.is_occupied(2));
        let turn = last.turn();
        tokio::pin!(turn);
        let early = std::future::poll_fn(|context| {
            std::task::Poll::Ready(turn.as_mut().poll(context).is_ready())
        });
        assert!(!early.await);
        drop(first);
        turn.await;
        assert!(last.is_first());
    }
}
