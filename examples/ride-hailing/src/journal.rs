//! What happened, counted: the service's own view, which no load tool can see.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

const SECOND: Duration = Duration::from_secs(1);

/// Counts what happens.
#[derive(Debug, Default)]
pub struct Journal(Mutex<Pages>);

#[derive(Debug, Default)]
struct Pages {
    counts: Counts,
    last_second: VecDeque<Instant>,
}

/// What happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that came.
    pub arrived: u64,
    /// Those that were served to somebody.
    pub served: u64,
    /// Those that were served though their callers had gone.
    pub served_nobody: u64,
    /// Those that found the queue full.
    pub refused: u64,
    /// The most that came within any second, wherever it began.
    pub peak: u64,
}

impl Journal {
    pub(crate) fn arrived(&self) {
        let mut pages = self.0.lock();
        // The time is taken under the lock, so that times are in order.
        let now = Instant::now();
        pages.counts.arrived += 1;
        pages.last_second.push_back(now);
        while (pages.last_second.front()).is_some_and(|first| now.duration_since(*first) >= SECOND)
        {
            pages.last_second.pop_front();
        }
        let in_the_last_second = u64::try_from(pages.last_second.len()).unwrap_or(u64::MAX);
        pages.counts.peak = pages.counts.peak.max(in_the_last_second);
    }

    pub(crate) fn served(&self) {
        self.0.lock().counts.served += 1;
    }

    pub(crate) fn served_nobody(&self) {
        self.0.lock().counts.served_nobody += 1;
    }

    pub(crate) fn refused(&self) {
        self.0.lock().counts.refused += 1;
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.lock().counts
    }
}
