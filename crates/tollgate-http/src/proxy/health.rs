//! The health of a server, from its responses and from checks, if there are any.
//!
//! - A server that fails several times in a row is set aside: no connection, no response in time, or 502, 503 or 504. When its time
//!   is over, one request goes there; if that succeeds the server is back, else it is set aside for twice as long, up to a minute.
//! - A server that fails several checks in a row gets no requests until it passes one.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::config::UpstreamConfig;

const MAX_ASIDE: Duration = Duration::from_secs(60);

/// A server that fails every other time is not logged more often than this.
const LOG_EVERY: Duration = Duration::from_secs(10);

pub(super) struct ServerHealth {
    max_failures: u32,
    first_aside: Duration,
    /// Whether there was a failure since the last success. While there was none, `failures` need not be looked at.
    is_failing: AtomicBool,
    failures: Mutex<Failures>,
    max_failed_checks: u32,
    failed_checks: AtomicU32,
}

/// The failures since the last success.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    aside: Option<Aside>,
    /// When a first failure was last logged.
    logged_at: Option<Instant>,
    /// Whether a failure was logged, so that the recovery is as well.
    is_logged: bool,
}

#[derive(Clone, Copy, Debug)]
struct Aside {
    until: Instant,
    duration: Duration,
    /// Whether a request is probing the server.
    is_probed: bool,
}

/// What a failure led to, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureEffect {
    /// The first of a row, and none was logged lately.
    First,
    SetAside(Duration),
    None,
}

impl ServerHealth {
    pub(super) fn new(config: &UpstreamConfig) -> Self {
        Self {
            max_failures: match config.to.len() {
                // Setting the only server aside would be no help.
                0 | 1 => u32::MAX,
                _ => config.failures,
            },
            first_aside: config.set_aside,
            is_failing: AtomicBool::new(false),
            failures: Mutex::default(),
            max_failed_checks: config.failures,
            failed_checks: AtomicU32::new(0),
        }
    }

    pub(super) fn note_failure(&self, now: Instant) -> FailureEffect {
        let mut failures = self.failures.lock();
        self.is_failing.store(true, Relaxed);
        failures.count = failures.count.saturating_add(1);
        if failures.count < self.max_failures {
            let logged_at = failures.logged_at;
            if failures.count > 1 || logged_at.is_some_and(|at| now < at + LOG_EVERY) {
                return FailureEffect::None;
            }
            failures.logged_at = Some(now);
            failures.is_logged = true;
            return FailureEffect::First;
        }
        let duration = match failures.aside {
            // A request that was sent before the server was set aside.
            Some(aside) if aside.until > now && !aside.is_probed => return FailureEffect::None,
            Some(aside) => (aside.duration * 2).min(MAX_ASIDE),
            None => self.first_aside,
        };
        failures.aside = Some(Aside {
            until: now + duration,
            duration,
            is_probed: false,
        });
        failures.is_logged = true;
        FailureEffect::SetAside(duration)
    }

    /// `None` if nothing had failed; else whether the recovery is to be logged.
    pub(super) fn note_success(&self) -> Option<bool> {
        if !self.is_failing.load(Relaxed) {
            return None;
        }
        let mut failures = self.failures.lock();
        let is_logged = failures.is_logged;
        *failures = Failures {
            logged_at: failures.logged_at,
            ..Failures::default()
        };
        self.is_failing.store(false, Relaxed);
        Some(is_logged)
    }

    /// Notes a failed check. Returns whether the server now fails its checks.
    pub(super) fn note_failed_check(&self) -> bool {
        let before = self.failed_checks.load(Relaxed);
        self.failed_checks.store(before.saturating_add(1), Relaxed);
        before.saturating_add(1) == self.max_failed_checks
    }

    /// Notes a passed check. Returns whether the server failed its checks before.
    pub(super) fn note_passed_check(&self) -> bool {
        self.failed_checks.swap(0, Relaxed) >= self.max_failed_checks
    }

    /// Whether it gets requests, as far as checks can tell.
    pub(super) fn passes_checks(&self) -> bool {
        self.failed_checks.load(Relaxed) < self.max_failed_checks
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.aside_until().is_none() && self.passes_checks()
    }

    /// Until when it is set aside, if it is.
    pub(super) fn aside_until(&self) -> Option<Instant> {
        let is_failing = self.is_failing.load(Relaxed);
        is_failing.then(|| Some(self.failures.lock().aside?.until))?
    }

    /// Whether its time is over, so that this request probes it. Others keep away for as long again.
    pub(super) fn begin_probe(&self, now: Instant) -> bool {
        if !self.is_failing.load(Relaxed) {
            return false;
        }
        let aside = &mut self.failures.lock().aside;
        let Some(aside) = aside.as_mut().filter(|aside| aside.until <= now) else {
            return false;
        };
        aside.until = now + aside.duration;
        aside.is_probed = true;
        true
    }
}
