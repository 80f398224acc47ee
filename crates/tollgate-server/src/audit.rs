//! The audit trail: which denials there were, when, and how many.
//!
//! [`Trail::record`] is called for every denial and must cost next to nothing: it neither waits nor fails. Violations of
//! one bucket in one second are folded into one row with a count. Everything is bounded, and what exceeds a bound is lost
//! and counted: at every moment, the recorded violations are those that are written, lost, or still held.

mod fold;
mod shard;
mod writer;

use std::collections::hash_map::Entry;
use std::hash::RandomState;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tollgate_config::AuditConfig;

use crate::counters::Sharded;
use crate::database::Database;
use crate::time::unix_micros;
use fold::Fold;
use shard::{FoldLimit, Folds, Shard};
use writer::Backlog;

pub use fold::Violation;

/// What became of all violations so far. Once the trail is closed, `recorded` is `written + lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrailStats {
    /// Violations that were recorded.
    pub recorded: u64,
    /// Those of them that were counted in an existing fold.
    pub folded: u64,
    /// Violations that are in the database.
    pub written: u64,
    /// Rows that are in the database.
    pub rows: u64,
    /// Violations that exceeded a bound, or could not be written in time before the end.
    pub lost: u64,
    /// Folds in memory.
    pub held: usize,
    /// Rows that wait to be written.
    pub backlog: usize,
    /// How often the database could not be written to or swept.
    pub failures: u64,
}

/// Records violations, which are written in the background.
#[derive(Debug)]
pub struct Trail {
    state: Arc<TrailState>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct TrailState {
    shards: Sharded<Mutex<Shard>, 16>,
    limit: FoldLimit,
    hasher: RandomState,
    backlog: Mutex<Backlog>,
    /// Notified when rows are added to the backlog.
    added: Notify,
    config: AuditConfig,
}

impl Trail {
    /// Starts to write violations. Must be called within a tokio runtime.
    #[must_use]
    pub fn start(database: Database, config: AuditConfig) -> Self {
        Self::start_with(config, async |_| database)
    }

    /// As [`start`](Self::start), with a database that need not be available yet: it is opened when it is.
    #[must_use]
    pub fn start_at(url: String, config: AuditConfig) -> Self {
        Self::start_with(config, async move |state| writer::open(&state, &url).await)
    }

    fn start_with<F: Future<Output = Database> + Send + 'static>(
        config: AuditConfig,
        open: impl FnOnce(Arc<TrailState>) -> F,
    ) -> Self {
        let state = Arc::new(TrailState {
            shards: Sharded::default(),
            limit: FoldLimit::new(config.max_folds),
            hasher: RandomState::new(),
            backlog: Mutex::default(),
            added: Notify::new(),
            config,
        });
        let stop = CancellationToken::new();
        let opening = open(Arc::clone(&state));
        let task = tokio::spawn(writer::run(Arc::clone(&state), opening, stop.clone()));
        Self {
            state,
            stop,
            task: Mutex::new(Some(task)),
        }
    }

    /// Records a violation. Neither waits nor fails, and allocates only for the first violation of a bucket in a second.
    pub fn record(&self, violation: &Violation<'_>) {
        let state = &*self.state;
        let second = unix_micros(violation.at).div_euclid(1_000_000);
        let identity = violation.identity(second, &state.hasher);
        let shard = state.shards.mine();
        let is_done = (shard.lock()).count(second, identity, violation, &state.limit);
        if !is_done {
            // Allocated without the lock.
            let fold = Box::new(Fold::new(violation));
            (shard.lock()).insert(second, identity, violation, fold, &state.limit);
        }
    }

    /// What became of all violations so far.
    pub fn stats(&self) -> TrailStats {
        // The backlog first: what is collected meanwhile may be missing, and never counts twice.
        let mut stats = {
            let backlog = self.state.backlog.lock();
            TrailStats {
                backlog: backlog.len(),
                ..backlog.stats
            }
        };
        stats.held = self.state.limit.held();
        for shard in self.state.shards.all() {
            let shard = shard.lock().stats;
            stats.recorded += shard.recorded;
            stats.folded += shard.folded;
            stats.lost += shard.lost;
        }
        stats
    }

    /// Writes what is left within this time. What cannot be written is lost and counted, and so is what is recorded from now on.
    pub async fn close(&self, within: Duration) -> TrailStats {
        self.stop.cancel();
        let task = self.task.lock().take();
        if let Some(mut task) = task
            && tokio::time::timeout(within, &mut task).await.is_err()
        {
            task.abort();
            // Nothing else may use the backlog below.
            let _ = task.await;
        }
        self.state.collect_all();
        self.state.backlog.lock().give_up();
        self.stats()
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

impl TrailState {
    fn lost(&self) -> u64 {
        let late = self.backlog.lock().stats.lost;
        let early: u64 = self.shards.all().map(|shard| shard.lock().stats.lost).sum();
        late + early
    }

    /// Moves complete seconds into the backlog.
    fn collect(&self, now: SystemTime) {
        let now_us = unix_micros(now);
        self.collect_from(|shard| shard.take_complete(now_us, &self.limit));
    }

    /// Moves everything into the backlog. What is recorded from now on is lost.
    fn collect_all(&self) {
        self.collect_from(|shard| shard.take_all(&self.limit));
    }

    fn collect_from(&self, take: impl Fn(&mut Shard) -> Vec<Folds>) {
        let (mut all, mut merged) = (Folds::default(), 0);
        for shard in self.shards.all() {
            let taken = take(&mut shard.lock());
            for (identity, fold) in taken.into_iter().flatten() {
                match all.entry(identity) {
                    Entry::Occupied(mut first) => {
                        first.get_mut().merge(*fold);
                        merged += 1;
                    }
                    Entry::Vacant(new) => drop(new.insert(fold)),
                }
            }
        }
        let mut backlog = self.backlog.lock();
        backlog.stats.folded += merged;
        for fold in all.into_values() {
            let AuditConfig {
                scope, max_backlog, ..
            } = &self.config;
            backlog.push(fold.into_row(scope), *max_backlog);
        }
        if backlog.len() > 0 {
            self.added.notify_one();
        }
    }
}
