//! Checks the state of the program every second, and logs what an operator must know: what changed, and from time to time that it persists.
//!
//! Failures of the store, the database or the audit trail, and their end, are logged where they are noticed; the monitor logs what they cost.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tollgate::SharedStats;

use crate::admin::{Health, MIN_STORE_SHARE};
use crate::audit::TrailStats;
use crate::database::WatchStats;
use crate::decider::Decider;
use crate::live::LiveStats;
use crate::stalls::Stalls;

const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Least time between two reports of the same state.
const REMIND_EVERY: Duration = Duration::from_secs(60);
/// Memory is checked at every tenth check, because that takes a moment.
const MEMORY_EVERY: u32 = 10;

/// Runs until it is aborted.
pub(super) async fn run(decider: Decider, health: Arc<Health>) {
    let mut monitor = Monitor::default();
    let mut checks = tokio::time::interval(CHECK_EVERY);
    for nth in 0_u32.. {
        checks.tick().await;
        let now = Instant::now();
        if let Some(shared) = decider.limiter().shared_stats() {
            monitor.store(&shared, now);
            monitor.share(&shared, &health.stalls, now);
        }
        if let Some(trail) = decider.trail() {
            let fails = monitor.audit(&trail.stats(), now);
            health.audit_fails.store(fails, Relaxed);
        }
        let live = decider.live().stats();
        let fails = monitor.database(&live);
        health.database_fails.store(fails, Relaxed);
        monitor.rules(&live, now);
        if nth % MEMORY_EVERY == 0
            && let Some(memory) = decider.limiter().memory_stats()
        {
            monitor.memory(memory.shared, memory.evicted, now);
        }
    }
}

/// What was seen and reported so far.
#[derive(Debug, Default)]
struct Monitor {
    store: Reminder,
    /// Whether it was reported that the store still fails.
    store_persists: bool,
    fallback: u64,
    share: Reminder,
    /// When the breaker was last seen open.
    was_open: Option<Instant>,
    stalls: u64,
    missed_deadlines: u64,
    /// Stalls and missed deadlines since Redis was last reported, or seen, to answer in time.
    unreported: (u64, u64),
    /// When this process was last seen to have stalled.
    stalled: Option<Instant>,
    /// Deadlines that were missed around stalls since the last report.
    missed_in_stalls: u64,
    cost_of_stalls: Reminder,
    audit: TrailStats,
    audit_fails: bool,
    audit_lost: Reminder,
    database: WatchStats,
    database_fails: bool,
    from_cache: Reminder,
    shared_keys: u64,
    evicted_keys: u64,
    memory: Reminder,
}

/// Limits how often a state is reported.
#[derive(Debug, Default)]
struct Reminder {
    reported: Option<Instant>,
}

impl Reminder {
    fn is_due(&mut self, now: Instant) -> bool {
        let is_recent = |reported| now.duration_since(reported) < REMIND_EVERY;
        let is_due = !self.reported.is_some_and(is_recent);
        if is_due {
            self.reported = Some(now);
        }
        is_due
    }

    /// The same for a state whose beginning is reported elsewhere.
    fn is_due_again(&mut self, now: Instant) -> bool {
        let is_first = self.reported.is_none();
        self.is_due(now) && !is_first
    }
}

impl Monitor {
    /// Reports that the store still fails, and when that is over.
    fn store(&mut self, shared: &SharedStats, now: Instant) {
        let decided = shared.by_fallback.saturating_sub(self.fallback);
        if !shared.breaker_is_open {
            if std::mem::take(&mut self.store_persists) {
                tracing::info!(
                    decided,
                    "Redis decides again; this many requests were decided without it since the last report"
                );
            }
            (self.store.reported, self.fallback) = (None, shared.by_fallback);
        } else if self.store.is_due_again(now) {
            (self.store_persists, self.fallback) = (true, shared.by_fallback);
            tracing::warn!(
                decided,
                instances = shared.instances,
                instances_assumed = shared.instances_are_assumed,
                "Redis still fails: this process enforces its own share of the limits; see docs/operating.md, Redis is down"
            );
        }
    }

    /// Reports that Redis is too slow for many requests, which nothing else does.
    fn share(&mut self, shared: &SharedStats, stalls: &Stalls, now: Instant) {
        // Whatever is reported below: what happened before this check must not be blamed on what happens after it.
        let (stalled, missed) = self.since_last_check(shared, stalls);
        if shared.breaker_is_open {
            self.was_open = Some(now);
        }
        // The share covers a minute, so it is low for that long after an outage, which is reported elsewhere.
        let is_recent = |open| now.duration_since(open) < REMIND_EVERY;
        let is_after_outage = self.was_open.is_some_and(is_recent);
        let share = shared.store_share().filter(|_| !is_after_outage);
        // Without requests there is nothing to report.
        let Some(share) = share else {
            self.unreported = (0, 0);
            return;
        };
        if share >= MIN_STORE_SHARE {
            if self.share.reported.take().is_some() {
                tracing::info!(
                    "Redis answers in time again: limits are shared between all instances again"
                );
            }
            self.unreported = (0, 0);
            self.cost_of_stalls(stalled, missed, stalls, now);
            return;
        }
        self.unreported.0 += stalled;
        self.unreported.1 += missed;
        if !self.share.is_due(now) {
            return;
        }
        let decided_by_redis = format!("{:.1} %", share * 100.0);
        let (stalled, missed) = std::mem::take(&mut self.unreported);
        if missed == 0 {
            tracing::warn!(
                decided_by_redis,
                "Redis answered many requests with errors; they were decided without it (on_store_failure): \
                 see its log and docs/operating.md, Redis is slow"
            );
            return;
        }
        tracing::warn!(
            decided_by_redis,
            missed_deadlines = missed,
            process_stalls = stalled,
            longest_stall_ms = stalls.longest(now).as_millis(),
            "Redis missed the deadline for many requests, which were decided without it (on_store_failure): \
             if process_stalls is high, this process needs more CPU; otherwise Redis or the network is slow; \
             see docs/operating.md, Redis is slow"
        );
    }

    /// Reports that requests missed their deadline because this process did not run, although Redis is fine.
    fn cost_of_stalls(&mut self, stalled: u64, missed: u64, stalls: &Stalls, now: Instant) {
        if stalled > 0 {
            self.stalled = Some(now);
        }
        // A request that waits at one check may miss its deadline before the next.
        let is_recent = |stalled| now.duration_since(stalled) < 2 * CHECK_EVERY;
        if self.stalled.is_some_and(is_recent) {
            self.missed_in_stalls += missed;
        }
        if self.missed_in_stalls > 0 && self.cost_of_stalls.is_due(now) {
            tracing::warn!(
                decided_without_redis = std::mem::take(&mut self.missed_in_stalls),
                longest_stall_ms = stalls.longest(now).as_millis(),
                "this process stalled, and requests missed the deadline for Redis meanwhile: give it more CPU (raise or \
                 remove its CPU limit, move it away from noisy neighbours); see docs/operating.md, Deadlines, CPU and cores"
            );
        }
    }

    /// The numbers of stalls and missed deadlines since the last call.
    fn since_last_check(&mut self, shared: &SharedStats, stalls: &Stalls) -> (u64, u64) {
        let (stalled, missed) = (stalls.count(), shared.missed_deadlines);
        (
            stalled - std::mem::replace(&mut self.stalls, stalled),
            missed - std::mem::replace(&mut self.missed_deadlines, missed),
        )
    }

    /// Whether the audit trail cannot be written, or loses violations.
    fn audit(&mut self, stats: &TrailStats, now: Instant) -> bool {
        let last = self.audit;
        let lost = stats.lost.saturating_sub(last.lost);
        if stats.failures > last.failures || lost > 0 {
            self.audit_fails = true;
        } else if stats.rows > last.rows || stats.backlog == 0 {
            self.audit_fails = false;
        }
        // Losses that were not reported stay for the next report.
        if lost == 0 {
            self.audit = *stats;
        } else if self.audit_lost.is_due(now) {
            self.audit = *stats;
            tracing::error!(
                lost,
                backlog = stats.backlog,
                "the audit trail is full and loses violations"
            );
        }
        self.audit_fails
    }

    /// Whether the database of the rules cannot be read.
    fn database(&mut self, live: &LiveStats) -> bool {
        let last = std::mem::replace(&mut self.database, live.watch);
        if live.watch.failures > last.failures {
            self.database_fails = true;
        } else if live.watch.polls > last.polls {
            self.database_fails = false;
        }
        self.database_fails
    }

    fn rules(&mut self, live: &LiveStats, now: Instant) {
        let generation = live.generation;
        if live.from_cache && self.from_cache.is_due(now) {
            tracing::warn!(
                generation,
                "the rules in force are from the cache, because the database is unavailable"
            );
        } else if !live.from_cache && self.from_cache.reported.take().is_some() {
            tracing::info!(
                generation,
                "the rules in force are those of the database again"
            );
        }
    }

    fn memory(&mut self, shared: u64, evicted: u64, now: Instant) {
        let more_shared = shared.saturating_sub(self.shared_keys);
        let more_evicted = evicted.saturating_sub(self.evicted_keys);
        if more_shared + more_evicted > 0 && self.memory.is_due(now) {
            (self.shared_keys, self.evicted_keys) = (shared, evicted);
            tracing::warn!(
                evicted = more_evicted,
                shared = more_shared,
                "memory is full: new keys evict lightly used ones, or share buckets and may be denied early; raise store.max_keys"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reminder_is_due_at_once_and_then_once_a_minute() {
        let (mut reminder, now) = (Reminder::default(), Instant::now());
        assert!(reminder.is_due(now));
        assert!(!reminder.is_due(now + Duration::from_secs(59)));
        assert!(reminder.is_due(now + Duration::from_secs(60)));
        assert!(!reminder.is_due(now + Duration::from_secs(61)));
    }

    #[test]
    fn a_reminder_of_an_earlier_report_is_due_after_a_minute() {
        let (mut reminder, now) = (Reminder::default(), Instant::now());
        assert!(!reminder.is_due_again(now));
        assert!(!reminder.is_due_again(now + Duration::from_secs(59)));
        assert!(reminder.is_due_again(now + Duration::from_secs(60)));
        assert!(!reminder.is_due_again(now + Duration::from_secs(61)));
    }

    /// Redis is silent for a while and misses hundreds of deadlines. A short stall of this process, a minute later, cost none of them.
    #[test]
    fn an_outage_is_not_blamed_on_a_later_stall() {
        let (mut monitor, stalls) = (Monitor::default(), Stalls::default());
        let mut now = Instant::now();
        let mut shared = SharedStats::default();
        (shared.breaker_is_open, shared.missed_deadlines) = (true, 500);
        monitor.share(&shared, &stalls, now);
        shared.breaker_is_open = false;
        shared.missed_deadlines = 510;
        monitor.share(&shared, &stalls, now + CHECK_EVERY);
        now += 2 * REMIND_EVERY;
        (shared.last_minute_by_store, shared.last_minute_by_fallback) = (1_000, 0);
        stalls.was_late(Duration::from_millis(10), now);
        monitor.share(&shared, &stalls, now);
        assert_eq!(monitor.missed_in_stalls, 0);
        assert!(monitor.cost_of_stalls.reported.is_none());
        shared.missed_deadlines += 3;
        monitor.share(&shared, &stalls, now + CHECK_EVERY);
        assert!(monitor.cost_of_stalls.reported.is_some());
    }

    #[test]
    fn the_trail_fails_from_the_first_failure_to_the_next_row() {
        let (mut monitor, now) = (Monitor::default(), Instant::now());
        let mut stats = TrailStats::default();
        assert!(!monitor.audit(&stats, now));
        (stats.failures, stats.backlog) = (1, 5);
        assert!(monitor.audit(&stats, now));
        assert!(monitor.audit(&stats, now), "nothing was written since");
        (stats.rows, stats.backlog) = (5, 0);
        assert!(!monitor.audit(&stats, now));
        stats.lost = 7;
        assert!(monitor.audit(&stats, now));
        assert!(!monitor.audit(&stats, now));
    }
}
