//! The trail itself: where violations are noted, and how it starts and ends.

use std::collections::hash_map::Entry;
use std::hash::RandomState;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::backlog::Backlog;
use super::fold::{Fold, Violation};
use super::shard::{Folds, Noted, Room, Shard};
use super::writer;
use tollgate_config::AuditConfig;

use crate::database::Database;
use crate::sharded::Sharded;

/// What became of all violations so far. Once the trail is closed, `noted` is `written + lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrailStats {
    /// Violations that were noted.
    pub noted: u64,
    /// Those of them that were one more of a fold that was there.
    pub folded: u64,
    /// Violations that are in the database.
    pub written: u64,
    /// The rows that they are there.
    pub rows: u64,
    /// Violations that found no room, or could not be written in time before the end.
    pub lost: u64,
    /// Folds that are held in memory.
    pub held: usize,
    /// Rows that wait to be written.
    pub backlog: usize,
    /// How often the database could not be written to or swept.
    pub failures: u64,
}

/// Takes note of violations and has them written in the background.
#[derive(Debug)]
pub struct Trail {
    shared: Arc<Shared>,
    ending: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

pub(super) struct Shared {
    shards: Sharded<Mutex<Shard>, 16>,
    room: Room,
    hasher: RandomState,
    pub(super) backlog: Mutex<Backlog>,
    /// Something was put into the backlog.
    pub(super) arrived: Notify,
    pub(super) config: AuditConfig,
}

impl Trail {
    /// Starts to write what will be noted. Must be called within a tokio runtime.
    #[must_use]
    pub fn start(database: Database, config: AuditConfig) -> Self {
        Self::write_by(config, |shared, ended| {
            tokio::spawn(writer::run(shared, database, ended))
        })
    }

    /// The same with the database at this address, which need not be there yet: it is opened when it is.
    #[must_use]
    pub fn start_at(url: String, config: AuditConfig) -> Self {
        Self::write_by(config, |shared, ended| {
            tokio::spawn(writer::open_and_run(shared, url, ended))
        })
    }

    fn write_by(
        config: AuditConfig,
        write: impl FnOnce(Arc<Shared>, watch::Receiver<bool>) -> JoinHandle<()>,
    ) -> Self {
        let shared = Arc::new(Shared {
            shards: Sharded::default(),
            room: Room::for_at_most(config.max_folds),
            hasher: RandomState::new(),
            backlog: Mutex::default(),
            arrived: Notify::new(),
            config,
        });
        let (ending, ended) = watch::channel(false);
        let task = write(Arc::clone(&shared), ended);
        Self {
            shared,
            ending,
            task: Mutex::new(Some(task)),
        }
    }

    /// Takes note. Neither waits nor fails; memory for text is only used for the first of a bucket in a second.
    pub fn note(&self, violation: &Violation<'_>) {
        let Shared {
            shards,
            room,
            hasher,
            ..
        } = &*self.shared;
        let second = violation.at_us().div_euclid(1_000_000);
        let identity = violation.identity(second, hasher);
        let shard = shards.mine();
        if shard.lock().count(second, identity, violation, room) == Noted::New {
            // Made while nobody waits for us.
            let fold = Box::new(Fold::of(violation));
            shard.lock().insert(second, identity, violation, fold, room);
        }
    }

    /// How many found no room, or could not be written in time before the end.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.lost()
    }

    /// What became of all so far.
    #[must_use]
    pub fn stats(&self) -> TrailStats {
        // The backlog first: what is collected meanwhile may be missing, and never counts twice.
        let mut stats = {
            let backlog = self.shared.backlog.lock();
            TrailStats {
                written: backlog.written,
                rows: backlog.rows,
                lost: backlog.lost,
                backlog: backlog.len(),
                failures: backlog.failures,
                folded: backlog.merged,
                ..TrailStats::default()
            }
        };
        stats.held = self.shared.room.taken();
        for shard in self.shared.shards.all() {
            let shard = shard.lock();
            stats.noted += shard.noted;
            stats.folded += shard.folded;
            stats.lost += shard.lost;
        }
        stats
    }

    /// Writes what is left, and ends. What could not be written within this time is lost, and counted; so is what is
    /// noted from now on.
    pub async fn close(&self, within: Duration) -> TrailStats {
        self.ending.send_replace(true);
        let task = self.task.lock().take();
        if let Some(mut task) = task
            && tokio::time::timeout(within, &mut task).await.is_err()
        {
            task.abort();
            // Nobody else may touch the backlog below.
            let _ = task.await;
        }
        self.shared.collect_all();
        self.shared.backlog.lock().give_up();
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

impl Shared {
    /// How many are lost so far, wherever.
    pub(super) fn lost(&self) -> u64 {
        let late = self.backlog.lock().lost;
        let early: u64 = self.shards.all().map(|shard| shard.lock().lost).sum();
        late + early
    }

    /// Moves the seconds that are over into the backlog.
    pub(super) fn collect(&self, now: SystemTime) {
        let since = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let now_us = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
        self.gather(|shard| shard.take_over(now_us, &self.room));
    }

    /// Moves everything into the backlog; what is noted from now on is lost.
    pub(super) fn collect_all(&self) {
        self.gather(|shard| shard.take_all(&self.room));
    }

    fn gather(&self, take: impl Fn(&mut Shard) -> Vec<Folds>) {
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
        backlog.merged += merged;
        for fold in all.into_values() {
            backlog.accept(fold.into_row(), &self.config.scope, self.config.max_backlog);
        }
        if backlog.len() > 0 {
            self.arrived.notify_one();
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
