//! The background task of a trail: collects complete seconds, writes them, and removes old rows.
//!
//! Three loops run side by side, because a database that hangs must not stop the collecting. A batch that was being written when
//! its loop is stopped is still in the backlog, and is sent again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::{TrailState, TrailStats};
use crate::database::{Database, DatabaseError, ViolationRow};
use crate::time::unix_micros;

/// Pause between two sweeps in a row, so that others get their turn.
const SWEEP_PAUSE: Duration = Duration::from_millis(10);

/// Runs until it is stopped, and then writes what is left. Until the database is open, violations wait.
pub(super) async fn run(
    state: Arc<TrailState>,
    opening: impl Future<Output = Database>,
    stop: CancellationToken,
) {
    let database = tokio::select! {
        biased;
        database = opening => database,
        () = collect(&state) => return,
        () = stop.cancelled() => return,
    };
    let mut writer = Writer {
        id: rand::random(),
        database: &database,
        state: &state,
        is_failing: false,
    };
    tokio::select! {
        () = collect(&state) => {}
        () = writer.run() => {}
        () = sweep(&state, &database) => {}
        () = stop.cancelled() => {}
    }
    state.collect_all();
    writer.write_all().await;
}

/// Opens the database as soon as it is available.
pub(super) async fn open(state: &TrailState, url: &str) -> Database {
    let mut is_failing = false;
    loop {
        match Database::open(url).await {
            Ok(database) => {
                if is_failing {
                    tracing::info!("opened the database of the audit trail");
                }
                return database;
            }
            Err(error) => {
                state.backlog.lock().stats.failures += 1;
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(%error, "cannot open the database of the audit trail; violations wait, as far as there is room");
                }
                tokio::time::sleep(state.config.retry_after).await;
            }
        }
    }
}

async fn collect(state: &TrailState) {
    let every = state.config.collect_every.max(Duration::from_millis(1));
    let mut ticks = tokio::time::interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        state.collect(SystemTime::now());
    }
}

struct Writer<'a> {
    /// Identifies the rows of this trail.
    id: i64,
    database: &'a Database,
    state: &'a TrailState,
    is_failing: bool,
}

impl Writer<'_> {
    async fn run(&mut self) {
        loop {
            self.write_all().await;
            self.state.added.notified().await;
        }
    }

    /// Writes until nothing is left, however long that takes.
    async fn write_all(&mut self) {
        let config = &self.state.config;
        loop {
            let batch = self.state.backlog.lock().batch(config.batch);
            let Some(batch) = batch else { return };
            match self.database.write_violations(self.id, &batch).await {
                Ok(()) => {
                    self.state.backlog.lock().confirmed();
                    if std::mem::take(&mut self.is_failing) {
                        let lost = self.state.lost();
                        tracing::info!(lost, "writing the audit trail again; lost so far: {lost}");
                    }
                }
                Err(error) => {
                    self.state.backlog.lock().stats.failures += 1;
                    if !std::mem::replace(&mut self.is_failing, true) {
                        log_failure(&error);
                    }
                    match error.is_bad_input() {
                        true => self.state.backlog.lock().rejected(),
                        false => tokio::time::sleep(config.retry_after).await,
                    }
                }
            }
        }
    }
}

fn log_failure(error: &DatabaseError) {
    match error.is_bad_input() {
        true => tracing::warn!(%error, "failed to write audit records, which are dropped"),
        false => {
            tracing::warn!(%error, "cannot write the audit trail; violations wait, as far as there is room");
        }
    }
}

/// Removes rows that are older than the retention, a few at a time.
async fn sweep(state: &TrailState, database: &Database) {
    let config = &state.config;
    let Some(retention) = config.retention else {
        return std::future::pending().await;
    };
    let mut is_failing = false;
    loop {
        let before = SystemTime::now().checked_sub(retention);
        let before_us = before.map_or(0, unix_micros);
        let removed = (database.sweep_violations(before_us, config.max_sweep)).await;
        match removed {
            Ok(removed) if removed >= u64::from(config.max_sweep.max(1)) => {
                tokio::time::sleep(SWEEP_PAUSE).await;
                continue;
            }
            Ok(_) => {
                if std::mem::take(&mut is_failing) {
                    tracing::info!("removing old violations again");
                }
            }
            Err(error) => {
                state.backlog.lock().stats.failures += 1;
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(%error, "cannot remove old violations; the audit trail grows");
                }
            }
        }
        tokio::time::sleep(config.sweep_every).await;
    }
}

/// Rows with their numbers, which stay the same however often they are sent.
pub(super) type Batch = Arc<[(i64, ViolationRow)]>;

/// The rows that wait. When it is full, later rows are lost, because the first show how it began.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    waiting: VecDeque<(i64, ViolationRow)>,
    /// Sent, and perhaps stored. It is sent again until the database has confirmed it.
    sending: Option<Batch>,
    next_number: i64,
    pub(super) stats: TrailStats,
}

impl Backlog {
    pub(super) fn push(&mut self, row: ViolationRow, max: usize) {
        if self.len() >= max {
            self.stats.lost += row.count.unsigned_abs();
            return;
        }
        self.waiting.push_back((self.next_number, row));
        self.next_number += 1;
    }

    /// The next batch to send: the same one until it is [`confirmed`](Self::confirmed) or [`rejected`](Self::rejected).
    pub(super) fn batch(&mut self, max: usize) -> Option<Batch> {
        if self.sending.is_none() && !self.waiting.is_empty() {
            let rows = self.waiting.len().min(max.max(1));
            self.sending = Some(self.waiting.drain(..rows).collect());
        }
        self.sending.clone()
    }

    pub(super) fn confirmed(&mut self) {
        if let Some(batch) = self.sending.take() {
            self.stats.written += denials(&*batch);
            self.stats.rows += batch.len() as u64;
        }
    }

    /// The database will never accept the batch as it is. Half of it is sent next, so that only the rows at fault are lost in the end: a
    /// client must not be able to remove others from the trail by a name that the database rejects.
    pub(super) fn rejected(&mut self) {
        match self.sending.take() {
            Some(batch) if batch.len() > 1 => {
                let (first, second) = batch.split_at(batch.len() / 2);
                for row in second.iter().rev() {
                    self.waiting.push_front(row.clone());
                }
                self.sending = Some(first.into());
            }
            batch => self.stats.lost += batch.map_or(0, |batch| denials(&*batch)),
        }
    }

    /// Loses everything, because there is no time left.
    pub(super) fn give_up(&mut self) {
        let sending = self.sending.take();
        self.stats.lost += sending.map_or(0, |batch| denials(&*batch));
        self.stats.lost += denials(&std::mem::take(&mut self.waiting));
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.sending.as_ref().map_or(0, |batch| batch.len())
    }
}

fn denials<'a>(rows: impl IntoIterator<Item = &'a (i64, ViolationRow)>) -> u64 {
    let rows = rows.into_iter();
    rows.map(|(_, row)| row.count.unsigned_abs()).sum()
}
