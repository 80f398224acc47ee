//! A word on stderr when a simulation takes long, and a person is watching.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use super::text::grouped;

/// Shorter runs say nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Looking at the clock costs as much as a decision: only every so many steps.
const LOOK_EVERY: u64 = 1 << 15;

/// How far a run of known length has come.
pub(super) struct Progress {
    done: u64,
    total: u64,
    started: Instant,
    watched: bool,
    shown: bool,
}

impl Progress {
    pub(super) fn of(total: u64) -> Self {
        Self {
            done: 0,
            total,
            started: Instant::now(),
            watched: io::stderr().is_terminal(),
            shown: false,
        }
    }

    pub(super) fn step(&mut self) {
        self.done += 1;
        if self.watched && self.done.is_multiple_of(LOOK_EVERY) && self.started.elapsed() > PATIENCE
        {
            self.shown = true;
            // The next line replaces this one; a stderr that is gone is no reason to stop.
            let (done, total) = (grouped(self.done), grouped(self.total));
            let _ = write!(io::stderr(), "\r{done} of {total} decisions");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}
