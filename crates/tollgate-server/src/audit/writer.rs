//! The background of a trail: collects what is over, writes it, and sweeps what is old.
//!
//! Three loops side by side, as a database that hangs must not keep us from collecting. A batch that was under way when
//! a loop is stopped is still in the backlog, and goes again.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::trail::Shared;
use crate::database::{Database, DatabaseError};

/// Between two sweeps in a row, so that others get their turn.
const BREATH: Duration = Duration::from_millis(10);

/// Runs until it is told to end, and has written what was left then.
pub(super) async fn run(shared: Arc<Shared>, database: Database, mut ended: watch::Receiver<bool>) {
    let mut writer = Writer {
        // Any number that nobody else has.
        id: RandomState::new().hash_one(SystemTime::now()).cast_signed(),
        database: &database,
        shared: &shared,
        ill: false,
    };
    tokio::select! {
        () = collect(&shared) => {}
        () = writer.write() => {}
        () = sweep(&shared, &database) => {}
        // An error: nobody is left to tell us.
        _ = ended.wait_for(|ended| *ended) => {}
    }
    shared.collect_all();
    writer.write_all().await;
}

/// The same with a database that may not be there yet: what is noted waits for it.
pub(super) async fn open_and_run(
    shared: Arc<Shared>,
    url: String,
    mut ended: watch::Receiver<bool>,
) {
    let opened = tokio::select! {
        () = collect(&shared) => None,
        database = open(&shared, &url) => Some(database),
        _ = ended.wait_for(|ended| *ended) => None,
    };
    if let Some(database) = opened {
        run(shared, database, ended).await;
    }
}

async fn open(shared: &Shared, url: &str) -> Database {
    let mut ill = false;
    loop {
        match Database::open(url).await {
            Ok(database) => {
                if ill {
                    tracing::info!("the database of the audit trail is there");
                }
                return database;
            }
            Err(error) => {
                shared.backlog.lock().failures += 1;
                if !std::mem::replace(&mut ill, true) {
                    tracing::warn!(%error, "cannot open the database of the audit trail: violations wait, as far as there is room");
                }
                tokio::time::sleep(shared.config.retry_after).await;
            }
        }
    }
}

async fn collect(shared: &Shared) {
    let every = shared.config.collect_every.max(Duration::from_millis(1));
    let mut ticks = tokio::time::interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        shared.collect(SystemTime::now());
    }
}

struct Writer<'a> {
    id: i64,
    database: &'a Database,
    shared: &'a Shared,
    ill: bool,
}

impl Writer<'_> {
    async fn write(&mut self) {
        loop {
            self.write_all().await;
            self.shared.arrived.notified().await;
        }
    }

    /// Until nothing is left, however long that takes.
    async fn write_all(&mut self) {
        loop {
            let batch = self.shared.backlog.lock().batch(self.shared.config.batch);
            let Some(batch) = batch else { return };
            match self.database.write_violations(self.id, &batch).await {
                Ok(()) => {
                    self.shared.backlog.lock().arrived();
                    self.is_well();
                }
                Err(error) => {
                    self.is_ill(&error);
                    if error.is_bad_input() {
                        self.shared.backlog.lock().refused();
                    } else {
                        tokio::time::sleep(self.shared.config.retry_after).await;
                    }
                }
            }
        }
    }

    fn is_ill(&mut self, error: &DatabaseError) {
        self.shared.backlog.lock().failures += 1;
        if std::mem::replace(&mut self.ill, true) {
            return;
        }
        match error.is_bad_input() {
            true => {
                tracing::warn!(%error, "the database does not take what was noted: these violations are lost");
            }
            false => {
                tracing::warn!(%error, "cannot write the audit trail: violations wait, as far as there is room");
            }
        }
    }

    fn is_well(&mut self) {
        if std::mem::take(&mut self.ill) {
            let lost = self.shared.lost();
            tracing::info!(
                lost,
                "the audit trail is written again; lost so far: {lost}"
            );
        }
    }
}

/// Removes what is older than the retention, a little at a time.
async fn sweep(shared: &Shared, database: &Database) {
    let config = &shared.config;
    let Some(retention) = config.retention else {
        return std::future::pending().await;
    };
    let mut ill = false;
    loop {
        let before = SystemTime::now().checked_sub(retention);
        let since = before.and_then(|before| before.duration_since(SystemTime::UNIX_EPOCH).ok());
        let before_us = i64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(0);
        loop {
            match database.sweep_violations(before_us, config.max_sweep).await {
                Ok(removed) if removed >= u64::from(config.max_sweep.max(1)) => {
                    tokio::time::sleep(BREATH).await;
                }
                Ok(_) => {
                    if std::mem::take(&mut ill) {
                        tracing::info!("old violations are removed again");
                    }
                    break;
                }
                Err(error) => {
                    shared.backlog.lock().failures += 1;
                    if !std::mem::replace(&mut ill, true) {
                        tracing::warn!(%error, "cannot remove old violations: the audit trail grows");
                    }
                    break;
                }
            }
        }
        tokio::time::sleep(config.sweep_every).await;
    }
}
