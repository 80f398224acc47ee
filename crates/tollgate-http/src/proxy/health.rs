//! How a server does, by what came of its requests and of the checks, if there are any.
//!
//! - A server that fails so many times in a row is set aside: no connection, no answer in time, or 502, 503 or 504. When its time is
//!   over, one request goes there; if that goes well the server is back, else it is set aside for twice as long, up to a minute.
//! - A server that fails so many checks in a row gets no requests until it passes one.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::config::UpstreamConfig;

const LONGEST: Duration = Duration::from_secs(60);
/// One that fails every other time is not told of more often.
const TOLD: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Health {
    most_failures: u32,
    first: Duration,
    /// Whether `state` says anything but that all is well.
    is_in_doubt: AtomicBool,
    state: Mutex<State>,
    failed_checks: AtomicU32,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    aside: Option<Aside>,
    /// When the log last said that it fails.
    told_at: Option<Instant>,
    /// Whether the log has yet to say that it answers again.
    is_told: bool,
}

#[derive(Clone, Copy, Debug)]
struct Aside {
    until: Instant,
    time: Duration,
    /// Whether a request is finding out how it does.
    is_tried: bool,
}

/// What a failure led to, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The first of a row, and not told of lately.
    Doubted,
    SetAside(Duration),
    AsBefore,
}

impl Health {
    pub(super) fn new(config: &UpstreamConfig) -> Self {
        Self {
            most_failures: match config.to.len() {
                // To set aside the only one would help nobody.
                0 | 1 => u32::MAX,
                _ => config.failures,
            },
            first: config.set_aside,
            is_in_doubt: AtomicBool::new(false),
            state: Mutex::default(),
            failed_checks: AtomicU32::new(0),
        }
    }

    pub(super) fn failed(&self, now: Instant) -> Verdict {
        let mut state = self.state.lock();
        self.is_in_doubt.store(true, Ordering::Relaxed);
        state.failures = state.failures.saturating_add(1);
        if state.failures < self.most_failures {
            let is_news = (state.told_at).is_none_or(|told_at| now >= told_at + TOLD);
            if state.failures > 1 || !is_news {
                return Verdict::AsBefore;
            }
            state.told_at = Some(now);
            state.is_told = true;
            return Verdict::Doubted;
        }
        let time = match state.aside {
            // A request that went there before it was set aside.
            Some(aside) if aside.until > now && !aside.is_tried => return Verdict::AsBefore,
            Some(aside) => (aside.time * 2).min(LONGEST),
            None => self.first,
        };
        state.aside = Some(Aside {
            until: now + time,
            time,
            is_tried: false,
        });
        state.is_told = true;
        Verdict::SetAside(time)
    }

    /// `None` if it was well all the time; else whether the log is to say that it is.
    pub(super) fn succeeded(&self) -> Option<bool> {
        if !self.is_in_doubt.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.state.lock();
        let is_told = state.is_told;
        *state = State {
            told_at: state.told_at,
            ..State::default()
        };
        self.is_in_doubt.store(false, Ordering::Relaxed);
        Some(is_told)
    }

    /// A check failed. Whether the server is given up just now.
    pub(super) fn failed_check(&self, most: u32) -> bool {
        let before = self.failed_checks.fetch_add(1, Ordering::Relaxed);
        let is_enough = before.saturating_add(1) == most;
        if before >= most {
            // It counts no further, lest it begin again.
            self.failed_checks.store(most, Ordering::Relaxed);
        }
        is_enough
    }

    /// A check was passed. Whether that is news.
    pub(super) fn passed_check(&self, most: u32) -> bool {
        self.failed_checks.swap(0, Ordering::Relaxed) >= most
    }

    pub(super) fn passes_checks(&self, most: u32) -> bool {
        self.failed_checks.load(Ordering::Relaxed) < most
    }

    /// Until when it is set aside, if it is.
    pub(super) fn aside_until(&self) -> Option<Instant> {
        match self.is_in_doubt.load(Ordering::Relaxed) {
            true => self.state.lock().aside.map(|aside| aside.until),
            false => None,
        }
    }

    /// Its time is over, and this request is the one that finds out. Others stay away for as long again.
    pub(super) fn is_to_be_tried(&self, now: Instant) -> bool {
        if !self.is_in_doubt.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = self.state.lock();
        match &mut state.aside {
            Some(aside) if aside.until <= now => {
                aside.until = now + aside.time;
                aside.is_tried = true;
                true
            }
            _ => false,
        }
    }
}
