//! Looks every second at what goes on, and says in the log what an operator must know: what changed, and from time to time that it is still so.
//!
//! That the store, the database or the audit trail fail and are back is said where it is noticed; this says how much it costs.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tollgate::SharedStats;

use crate::admin::{Health, LEAST_SHARE};
use crate::audit::TrailStats;
use crate::database::WatchStats;
use crate::decider::Decider;
use crate::live::LiveStats;
use crate::stalls::Stalls;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What is still so is not said more often.
const REMIND_EVERY: Duration = Duration::from_secs(60);
/// To look at all of memory takes a moment.
const MEMORY_EVERY: u32 = 10;

/// Looks until it is aborted.
pub(super) async fn run(door: Decider, health: Arc<Health>) {
    let mut watch = Watch::default();
    let mut looks = tokio::time::interval(LOOK_EVERY);
    for nth in 0_u32.. {
        looks.tick().await;
        let now = Instant::now();
        if let Some(shared) = door.limiter().shared_stats() {
            watch.store(&shared, now);
            watch.share(&shared, &health.stalls, now);
        }
        if let Some(trail) = door.trail() {
            let fails = watch.audit(&trail.stats(), now);
            health.audit_fails.store(fails, Relaxed);
        }
        let live = door.live().stats();
        health.database_fails.store(watch.database(&live), Relaxed);
        watch.rules(&live, now);
        if nth % MEMORY_EVERY == 0
            && let Some(memory) = door.limiter().memory_stats()
        {
            watch.memory(memory.shared, memory.evicted, now);
        }
    }
}

/// What was seen last.
#[derive(Debug, Default)]
struct Watch {
    store: Reminder,
    /// Whether it was said that the store is still not asked.
    store_lasts: bool,
    fallback: u64,
    share: Reminder,
    /// When the breaker was last seen open.
    was_open: Option<Instant>,
    stalls: u64,
    missed_deadlines: u64,
    /// When this process was last seen to have stalled, and how many requests missed their deadline around stalls since the last report.
    stalled: Option<Instant>,
    missed_in_stalls: u64,
    cost_of_stalls: Reminder,
    audit: Option<TrailStats>,
    audit_fails: bool,
    audit_lost: Reminder,
    database: WatchStats,
    database_fails: bool,
    from_cache: Reminder,
    shared_keys: u64,
    evicted_keys: u64,
    memory: Reminder,
}

/// Something that is said at once, and then not too often.
#[derive(Debug, Default)]
struct Reminder {
    said: Option<Instant>,
}

impl Reminder {
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self
            .said
            .is_none_or(|said| now.duration_since(said) >= REMIND_EVERY);
        if is_due {
            self.said = Some(now);
        }
        is_due
    }

    /// The same for what is said elsewhere the first time.
    fn is_due_again(&mut self, now: Instant) -> bool {
        let is_first = self.said.is_none();
        self.is_due(now) && !is_first
    }
}

impl Watch {
    /// That the store fails, and that it answers again, is said when it is noticed; this says that it lasts, and when that is over.
    fn store(&mut self, shared: &SharedStats, now: Instant) {
        let decided = shared.by_fallback.saturating_sub(self.fallback);
        if !shared.breaker_is_open {
            if std::mem::take(&mut self.store_lasts) {
                tracing::info!(
                    decided,
                    "Redis decides again; this many requests were decided without it since the last report"
                );
            }
            (self.store.said, self.fallback) = (None, shared.by_fallback);
        } else if self.store.is_due_again(now) {
            (self.store_lasts, self.fallback) = (true, shared.by_fallback);
            tracing::warn!(
                decided,
                instances = shared.instances,
                instances_assumed = shared.instances_are_assumed,
                "Redis still fails: this process enforces its own share of the limits; see docs/operating.md, Redis is down"
            );
        }
    }

    /// Redis answers, but not in time for all: nothing else reports that many requests are decided without it.
    fn share(&mut self, shared: &SharedStats, stalls: &Stalls, now: Instant) {
        if shared.breaker_is_open {
            self.was_open = Some(now);
        }
        // The share covers a minute, so it is low for that long after an outage, which is reported elsewhere.
        let is_after_outage =
            (self.was_open).is_some_and(|open| now.duration_since(open) < REMIND_EVERY);
        let share = shared.store_share().filter(|_| !is_after_outage);
        // Without requests there is nothing to report, neither that it lasts nor that it is over.
        let Some(share) = share else { return };
        if share >= LEAST_SHARE {
            if self.share.said.take().is_some() {
                tracing::info!(
                    "Redis answers in time again: limits are shared between all instances again"
                );
            }
            self.cost_of_stalls(shared, stalls, now);
            return;
        }
        if !self.share.is_due(now) {
            return;
        }
        let percent = share * 100.0;
        let (stalled, missed) = self.since_last_look(shared, stalls);
        if missed == 0 {
            tracing::warn!(
                decided_by_redis = format!("{percent:.1} %"),
                "Redis answered many requests with errors; they were decided without it (on_store_failure): \
                 see its log and docs/operating.md, Redis is slow"
            );
            return;
        }
        tracing::warn!(
            decided_by_redis = format!("{percent:.1} %"),
            missed_deadlines = missed,
            process_stalls = stalled,
            longest_stall_ms = stalls.longest(now).as_millis(),
            "Redis missed the deadline for many requests, which were decided without it (on_store_failure): \
             if process_stalls is high, this process needs more CPU; otherwise Redis or the network is slow; \
             see docs/operating.md, Redis is slow"
        );
    }

    /// A few requests missed their deadline although Redis is well, because this process did not run.
    fn cost_of_stalls(&mut self, shared: &SharedStats, stalls: &Stalls, now: Instant) {
        let (stalled, missed) = self.since_last_look(shared, stalls);
        if stalled > 0 {
            self.stalled = Some(now);
        }
        // A request that waits in one look may miss its deadline in the next.
        let is_recent = |stalled: Instant| now.duration_since(stalled) < 2 * LOOK_EVERY;
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

    /// How many stalls and missed deadlines there were since this was last asked.
    fn since_last_look(&mut self, shared: &SharedStats, stalls: &Stalls) -> (u64, u64) {
        let (stalled, missed) = (stalls.count(), shared.missed_deadlines);
        (
            stalled - std::mem::replace(&mut self.stalls, stalled),
            missed - std::mem::replace(&mut self.missed_deadlines, missed),
        )
    }

    /// Whether it cannot be written, or loses something.
    fn audit(&mut self, stats: &TrailStats, now: Instant) -> bool {
        let last = self.audit.unwrap_or_default();
        let lost = stats.lost.saturating_sub(last.lost);
        if stats.failures > last.failures || lost > 0 {
            self.audit_fails = true;
        } else if stats.rows > last.rows || stats.backlog == 0 {
            self.audit_fails = false;
        }
        if lost == 0 {
            // What is lost stays to be said.
            self.audit = Some(*stats);
        } else if self.audit_lost.is_due(now) {
            self.audit = Some(*stats);
            tracing::error!(
                lost,
                backlog = stats.backlog,
                "the audit trail loses violations: there is no room for more"
            );
        }
        self.audit_fails
    }

    /// Whether the database of the rules cannot be read.
    fn database(&mut self, live: &LiveStats) -> bool {
        let last = std::mem::replace(&mut self.database, live.watch);
        if live.watch.failures > last.failures {
            self.database_fails = true;
        } else if live.watch.looks > last.looks {
            self.database_fails = false;
        }
        self.database_fails
    }

    fn rules(&mut self, live: &LiveStats, now: Instant) {
        if live.from_cache && self.from_cache.is_due(now) {
            tracing::warn!(
                generation = live.generation,
                "the rules in force are from the cache: the database cannot be asked"
            );
        } else if !live.from_cache && self.from_cache.said.take().is_some() {
            tracing::info!(
                generation = live.generation,
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
    fn what_is_said_elsewhere_first_is_due_after_a_minute() {
        let (mut reminder, now) = (Reminder::default(), Instant::now());
        assert!(!reminder.is_due_again(now));
        assert!(!reminder.is_due_again(now + Duration::from_secs(59)));
        assert!(reminder.is_due_again(now + Duration::from_secs(60)));
        assert!(!reminder.is_due_again(now + Duration::from_secs(61)));
    }

    #[test]
    fn the_trail_fails_from_the_first_failure_to_the_next_row() {
        let (mut watch, now) = (Watch::default(), Instant::now());
        let mut stats = TrailStats::default();
        assert!(!watch.audit(&stats, now));
        (stats.failures, stats.backlog) = (1, 5);
        assert!(watch.audit(&stats, now));
        assert!(watch.audit(&stats, now), "nothing was written since");
        (stats.rows, stats.backlog) = (5, 0);
        assert!(!watch.audit(&stats, now));
        stats.lost = 7;
        assert!(watch.audit(&stats, now));
        assert!(!watch.audit(&stats, now));
    }
}
