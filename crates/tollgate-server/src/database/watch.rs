//! Reports changes of the rules.
//!
//! The generation counter is authoritative; PostgreSQL's notifications are only a hint to read it, and it is polled anyway. So a lost
//! message or connection costs time, and no change is missed. A database that comes back from a backup is noticed if its generation differs
//! by then; if just as many changes were made since, it is not.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::postgres::{PgListener, PgPool};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tollgate_config::WatchConfig;

use super::{Database, Pool};

/// What a watch has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchStats {
    /// How often the generation was read.
    pub polls: u64,
    /// How often it had changed.
    pub changes: u64,
    /// How often it could not be read.
    pub failures: u64,
    /// How often the connection for notifications was lost or could not be made.
    pub disconnects: u64,
}

/// Watches a database until it is dropped.
#[derive(Debug)]
pub struct Watch {
    generations: watch::Receiver<i64>,
    counts: Arc<Mutex<WatchStats>>,
    task: JoinHandle<()>,
}

const CHANNEL: &str = "tollgate_rules";
const MIN_POLL: Duration = Duration::from_millis(10);
const MAX_POLL: Duration = Duration::from_secs(60);
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(10);

impl Database {
    /// Starts to watch, and counts in `counts`. `known` is the generation that the caller has loaded; if it has changed by now, that is
    /// reported at once. Must be called within a tokio runtime.
    #[must_use]
    pub fn watch(&self, known: i64, config: WatchConfig, counts: Arc<Mutex<WatchStats>>) -> Watch {
        let default = match self.pool {
            Pool::Sqlite(_) => Duration::from_millis(500),
            Pool::Postgres(_) => Duration::from_secs(30),
        };
        let poll = config.poll.unwrap_or(default).clamp(MIN_POLL, MAX_POLL);
        let (sender, generations) = watch::channel(known);
        let watcher = Watcher {
            database: self.clone(),
            wake: Notify::new(),
            counts: Arc::clone(&counts),
        };
        Watch {
            generations,
            counts,
            task: tokio::spawn(async move { watcher.run(poll, &sender).await }),
        }
    }
}

impl Watch {
    /// Waits for a generation that the caller has not seen, and returns it. Several changes in a row may be reported as one.
    pub async fn changed(&mut self) -> i64 {
        match self.generations.changed().await {
            Ok(()) => *self.generations.borrow_and_update(),
            // The task ends only with the runtime.
            Err(_) => std::future::pending().await,
        }
    }

    /// What was counted so far.
    pub fn stats(&self) -> WatchStats {
        *self.counts.lock()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Watcher {
    database: Database,
    /// Notified when the generation should be read.
    wake: Notify,
    counts: Arc<Mutex<WatchStats>>,
}

impl Watcher {
    async fn run(&self, poll: Duration, sender: &watch::Sender<i64>) {
        match &self.database.pool {
            Pool::Sqlite(_) => self.poll(poll, sender).await,
            Pool::Postgres(pool) => {
                tokio::join!(self.poll(poll, sender), self.listen(pool));
            }
        }
    }

    /// Reads the generation when woken, and from time to time.
    async fn poll(&self, every: Duration, sender: &watch::Sender<i64>) {
        let mut is_failing = false;
        loop {
            match self.database.generation_number().await {
                Ok(number) => {
                    self.counts.lock().polls += 1;
                    if std::mem::take(&mut is_failing) {
                        tracing::info!("looking for changes of the rules again");
                    }
                    let has_changed =
                        sender.send_if_modified(|known| std::mem::replace(known, number) != number);
                    self.counts.lock().changes += u64::from(has_changed);
                }
                Err(error) => {
                    self.counts.lock().failures += 1;
                    if !std::mem::replace(&mut is_failing, true) {
                        tracing::warn!(%error, "cannot look for changes of the rules, those in force stay");
                    }
                }
            }
            // A change that is missed during a failure shows at the next poll.
            let _ = tokio::time::timeout(every, self.wake.notified()).await;
        }
    }

    /// Wakes the poll at every notification, and whenever one may have been missed.
    async fn listen(&self, pool: &PgPool) {
        let mut pause = MIN_PAUSE;
        let mut is_failing = false;
        loop {
            match listener(pool).await {
                Ok(mut listener) => {
                    pause = MIN_PAUSE;
                    if std::mem::take(&mut is_failing) {
                        tracing::info!("the database notifies of changes of the rules again");
                    }
                    self.wake.notify_one();
                    // None: the connection was lost. It is made below, in one place.
                    while let Ok(Some(_)) = listener.try_recv().await {
                        self.wake.notify_one();
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        let error = self.database.address.failed("listen for changes", &error);
                        tracing::warn!(%error, "the database does not notify of changes of the rules, which are found later by polling");
                    }
                }
            }
            self.counts.lock().disconnects += 1;
            self.wake.notify_one();
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }
}

async fn listener(pool: &PgPool) -> Result<PgListener, sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.eager_reconnect(false);
    listener.listen(CHANNEL).await?;
    Ok(listener)
}
