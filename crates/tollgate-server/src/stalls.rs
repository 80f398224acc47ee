//! Stalls of this process: moments in which it did not run, as on a busy core, in a throttled container or on a paused machine.
//!
//! A thread sleeps again and again, and measures how late it wakes up. So stalls are noticed whatever the program does
//! at that time. The engine's deadlines measure their own lateness; they do not depend on this.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use crate::metrics::MetricsEncoder;

/// How often the thread wakes up. A wake-up takes 5 to 25 µs of CPU, 0.03 to 0.12 % of one core.
const TICK: Duration = Duration::from_millis(20);

/// The least lateness that counts as a stall. A stall begins at any moment of a tick, so one of 30 ms is always counted, and
/// one of less than 10 ms never.
const THRESHOLD: Duration = Duration::from_millis(10);

/// How long the longest stall is remembered.
const WINDOW: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Stalls {
    count: AtomicU64,
    /// The ends and lengths of stalls: the longest of the window, then the longest of those after it, and so on.
    longest: Mutex<VecDeque<(Instant, Duration)>>,
}

impl Stalls {
    /// Measures until this is dropped.
    pub(crate) fn watch(self: &Arc<Self>) {
        let stalls = Arc::downgrade(self);
        let thread = thread::Builder::new().name("stalls".into());
        if let Err(error) = thread.spawn(move || measure(&stalls)) {
            tracing::warn!(%error, "failed to start the thread that measures stalls of this process; they are not counted");
        }
    }

    /// Counts a late wake-up if it is a stall.
    pub(crate) fn was_late(&self, late_by: Duration, now: Instant) {
        if late_by < THRESHOLD {
            return;
        }
        self.count.fetch_add(1, Relaxed);
        let mut longest = self.longest.lock();
        while longest.back().is_some_and(|(_, known)| *known <= late_by) {
            longest.pop_back();
        }
        longest.push_back((now, late_by));
        remove_old(&mut longest, now);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// The longest stall of the last minute; zero if there was none.
    pub(crate) fn longest(&self, now: Instant) -> Duration {
        let mut longest = self.longest.lock();
        remove_old(&mut longest, now);
        longest.front().map_or(Duration::ZERO, |(_, stall)| *stall)
    }

    pub(crate) fn register(self: &Arc<Self>, registry: &mut Registry) {
        registry.register_collector(Box::new(StallMetrics(Arc::clone(self))));
    }
}

fn remove_old(longest: &mut VecDeque<(Instant, Duration)>, now: Instant) {
    let is_old = |ended: Instant| now.saturating_duration_since(ended) >= WINDOW;
    while longest.front().is_some_and(|(ended, _)| is_old(*ended)) {
        longest.pop_front();
    }
}

fn measure(stalls: &Weak<Stalls>) {
    loop {
        let due = Instant::now() + TICK;
        thread::sleep(TICK);
        let Some(stalls) = stalls.upgrade() else {
            return;
        };
        let now = Instant::now();
        stalls.was_late(now.saturating_duration_since(due), now);
    }
}

#[derive(Debug)]
struct StallMetrics(Arc<Stalls>);

impl Collector for StallMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut encoder = MetricsEncoder(encoder);
        let help = "Stalls of this process: it did not run for 10 ms or more";
        encoder.counter("process_stalls", help, self.0.count())?;
        let help = "The longest stall of this process in the last minute";
        let longest = self.0.longest(Instant::now());
        encoder.seconds("process_longest_stall", help, longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn lateness_below_the_threshold_is_no_stall() {
        let (stalls, now) = (Stalls::default(), Instant::now());
        stalls.was_late(THRESHOLD - MS, now);
        assert_eq!((stalls.count(), stalls.longest(now)), (0, Duration::ZERO));
        stalls.was_late(THRESHOLD, now);
        assert_eq!((stalls.count(), stalls.longest(now)), (1, THRESHOLD));
    }

    #[test]
    fn the_longest_stall_is_that_of_the_last_minute() {
        let (stalls, now) = (Stalls::default(), Instant::now());
        let at = |seconds| now + seconds * SECOND;
        for (second, late) in [(0, 80), (10, 30), (20, 50), (30, 20)] {
            stalls.was_late(late * MS, at(second));
        }
        assert_eq!(stalls.longest(at(59)), 80 * MS);
        assert_eq!(stalls.longest(at(60)), 50 * MS);
        assert_eq!(stalls.longest(at(80)), 20 * MS);
        assert_eq!(stalls.longest(at(90)), Duration::ZERO);
        assert_eq!(stalls.count(), 4);
    }
}
