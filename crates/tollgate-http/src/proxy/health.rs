//! The health of a server, from its responses and from checks, if there are any.
//!
//! - A server that fails several times in a row is set aside: no connection, no response in time, or 502, 503 or 504. Requests that
//!   were in flight together and fail together count once, because one stall fails them all, unless the server was silent for
//!   [`MIN_SILENCE`]. When its time is over, one request goes there; if that succeeds the server is back, else it is set aside for
//!   twice as long, up to a minute.
//! - A server that fails several checks in a row gets no requests until it passes one.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::upstream::UpstreamConfig;

const MAX_ASIDE: Duration = Duration::from_secs(60);

/// From this time without a response on, every failed request counts. A shorter stall of a server, such as a pause of its garbage
/// collector, fails all requests in flight at once and is over when the next one arrives.
const MIN_SILENCE: Duration = Duration::from_millis(500);

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
    /// How many requests failed.
    count: u32,
    /// How many of them were sent after the one before had failed.
    in_sequence: u32,
    /// When the last one that counts in sequence failed.
    last: Option<Instant>,
    /// When the first request was sent that failed.
    since: Option<Instant>,
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
    /// Since when a request has been probing the server, if one is.
    probed: Option<Instant>,
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

    /// Notes that a request failed that was sent at this time.
    pub(super) fn note_failure(&self, sent_at: Instant, now: Instant) -> FailureEffect {
        let mut failures = self.failures.lock();
        self.is_failing.store(true, Relaxed);
        failures.add(sent_at, now);
        if !failures.are_enough(self.max_failures, now) {
            let logged_at = failures.logged_at;
            if failures.count > 1 || logged_at.is_some_and(|at| now < at + LOG_EVERY) {
                return FailureEffect::None;
            }
            failures.logged_at = Some(now);
            failures.is_logged = true;
            return FailureEffect::First;
        }
        let duration = match failures.aside {
            // A request that was sent before the server was set aside, or not the one that probes it.
            Some(aside) if aside.probed.is_none_or(|began| sent_at < began) => {
                return FailureEffect::None;
            }
            Some(aside) => (aside.duration * 2).min(MAX_ASIDE),
            None => self.first_aside,
        };
        failures.aside = Some(Aside {
            until: now + duration,
            duration,
            probed: None,
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
        aside.probed = Some(now);
        true
    }
}

impl Failures {
    fn add(&mut self, sent_at: Instant, now: Instant) {
        self.count = self.count.saturating_add(1);
        self.since = Some(self.since.map_or(sent_at, |since| since.min(sent_at)));
        if self.last.is_none_or(|last| sent_at >= last) {
            self.in_sequence = self.in_sequence.saturating_add(1);
            self.last = Some(now);
        }
    }

    fn are_enough(&self, max_failures: u32, now: Instant) -> bool {
        let is_silent = || (self.since).is_some_and(|since| now >= since + MIN_SILENCE);
        self.in_sequence >= max_failures || self.count >= max_failures && is_silent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const ASIDE: Duration = Duration::from_secs(1);

    fn health() -> (ServerHealth, Instant) {
        let servers = ["http://127.0.0.1:1", "http://127.0.0.1:2"];
        let mut config = UpstreamConfig::new("/", servers);
        (config.failures, config.set_aside) = (3, ASIDE);
        (ServerHealth::new(&config), Instant::now())
    }

    #[test]
    fn requests_that_fail_in_one_stall_count_once() {
        let (health, now) = health();
        for request in 0..64 {
            let effect = health.note_failure(now + request * MS / 10, now + 50 * MS);
            assert_ne!(effect, FailureEffect::SetAside(ASIDE), "{request}");
        }
        assert!(health.is_healthy());
    }

    #[test]
    fn requests_that_fail_one_after_the_other_set_a_server_aside() {
        let (health, now) = health();
        for at in [MS, 2 * MS] {
            health.note_failure(now + at, now + at);
        }
        assert!(health.is_healthy());
        let third = now + 3 * MS;
        let effect = health.note_failure(third, third);
        assert_eq!(effect, FailureEffect::SetAside(ASIDE));
    }

    #[test]
    fn concurrent_timeouts_after_a_long_silence_set_a_server_aside() {
        let (health, now) = health();
        let late = now + MIN_SILENCE;
        let effects = [0, 1, 2].map(|_| health.note_failure(now, late));
        assert_eq!(effects[2], FailureEffect::SetAside(ASIDE));
    }

    #[test]
    fn failures_of_older_requests_do_not_fail_the_probe() {
        let (health, now) = health();
        for at in [MS, 2 * MS, 3 * MS] {
            health.note_failure(now + at, now + at);
        }
        let until = health.aside_until().unwrap();
        assert!(health.begin_probe(until));
        assert_eq!(health.note_failure(now, until + MS), FailureEffect::None);
        let effect = health.note_failure(until, until + 2 * MS);
        assert_eq!(effect, FailureEffect::SetAside(2 * ASIDE));
    }
}
