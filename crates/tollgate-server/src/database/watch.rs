//! Tells when to look again.
//!
//! The truth is the generation number, and only that: PostgreSQL's notifications merely say when to read it, and it is
//! read from time to time anyway. So a message that is lost or a connection that is cut costs time, and nothing is missed.
//! A database that is gone changes nothing. One that comes back from a backup is noticed if its number is another by then;
//! if just as many changes were made since, it is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPool};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use tollgate_config::WatchConfig;

use super::{Database, DatabaseError, Pool};

/// What a watch has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchStats {
    /// How often the number was read.
    pub looks: u64,
    /// How often it was another.
    pub changes: u64,
    /// How often it could not be read.
    pub failures: u64,
    /// How often the listener's connection was lost or could not be made.
    pub deaf: u64,
}

/// Watches a database until it is dropped.
#[derive(Debug)]
pub struct Watch {
    numbers: watch::Receiver<i64>,
    counted: WatchCounts,
    task: JoinHandle<()>,
}

/// What a watch counts, for others to look at.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchCounts(Arc<Counted>);

impl WatchCounts {
    pub(crate) fn stats(&self) -> WatchStats {
        WatchStats {
            looks: self.0.looks.load(Relaxed),
            changes: self.0.changes.load(Relaxed),
            failures: self.0.failures.load(Relaxed),
            deaf: self.0.deaf.load(Relaxed),
        }
    }
}

#[derive(Debug, Default)]
struct Counted {
    looks: AtomicU64,
    changes: AtomicU64,
    failures: AtomicU64,
    deaf: AtomicU64,
}

const CHANNEL: &str = "tollgate_rules";
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl Database {
    /// Starts to watch. `known` is the number of the generation that the caller has loaded: if it is another by now,
    /// the caller hears at once. Must be called within a tokio runtime.
    #[must_use]
    pub fn watch(&self, known: i64, config: WatchConfig) -> Watch {
        let usual = match self.pool {
            Pool::Sqlite(_) => Duration::from_millis(500),
            Pool::Postgres(_) => Duration::from_secs(30),
        };
        let poll = config.poll.unwrap_or(usual).clamp(SHORTEST, LONGEST);
        let (sender, numbers) = watch::channel(known);
        let counted = WatchCounts::default();
        let watching = watch_database(self.clone(), poll, sender, Arc::clone(&counted.0));
        Watch {
            numbers,
            counted,
            task: tokio::spawn(watching),
        }
    }
}

impl Watch {
    /// Waits until the number is one that the caller has not seen, and says it. Several changes in a row may be one.
    pub async fn changed(&mut self) -> i64 {
        match self.numbers.changed().await {
            Ok(()) => *self.numbers.borrow_and_update(),
            // Only a runtime that is ending stops the task while we live.
            Err(_) => std::future::pending().await,
        }
    }

    /// What was seen so far.
    #[must_use]
    pub fn stats(&self) -> WatchStats {
        self.counted.stats()
    }

    /// The same for as long as somebody wants to look.
    pub(crate) fn counts(&self) -> WatchCounts {
        self.counted.clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch_database(
    database: Database,
    poll: Duration,
    sender: watch::Sender<i64>,
    counted: Arc<Counted>,
) {
    let heard = Notify::new();
    let looking = look(&database, poll, &heard, &sender, &counted);
    match &database.pool {
        Pool::Sqlite(_) => looking.await,
        Pool::Postgres(pool) => {
            tokio::select! {
                () = looking => {}
                () = listen(&database, pool, &heard, &counted) => {}
            }
        }
    }
}

/// Reads the number when told to, and from time to time.
async fn look(
    database: &Database,
    poll: Duration,
    heard: &Notify,
    sender: &watch::Sender<i64>,
    counted: &Counted,
) {
    let mut health = Health::of(
        "cannot look for changes of the rules: those in force stay",
        "looking for changes of the rules again",
    );
    loop {
        match database.generation_number().await {
            Ok(number) => {
                counted.looks.fetch_add(1, Relaxed);
                health.is_well();
                let is_other =
                    sender.send_if_modified(|known| std::mem::replace(known, number) != number);
                counted.changes.fetch_add(u64::from(is_other), Relaxed);
            }
            Err(error) => {
                counted.failures.fetch_add(1, Relaxed);
                health.is_ill(&error);
            }
        }
        // What is missed while it is ill shows at the next look, whoever wakes us.
        let _ = tokio::time::timeout(poll, heard.notified()).await;
    }
}

/// Says so once when it goes, and once when it comes back.
struct Health {
    ill: bool,
    when_ill: &'static str,
    when_well: &'static str,
}

impl Health {
    fn of(when_ill: &'static str, when_well: &'static str) -> Self {
        Self {
            ill: false,
            when_ill,
            when_well,
        }
    }

    fn is_ill(&mut self, error: &DatabaseError) {
        if !std::mem::replace(&mut self.ill, true) {
            tracing::warn!(%error, "{}", self.when_ill);
        }
    }

    fn is_well(&mut self) {
        if std::mem::take(&mut self.ill) {
            tracing::info!("{}", self.when_well);
        }
    }
}

/// Wakes whoever reads the number, at every notification and whenever one may have been missed.
async fn listen(database: &Database, pool: &PgPool, heard: &Notify, counted: &Counted) {
    let mut pause = FIRST_PAUSE;
    let mut health = Health::of(
        "the database does not tell of changes of the rules: they are found by looking, and so later",
        "the database tells of changes of the rules again",
    );
    loop {
        match listener(pool).await {
            Ok(mut listener) => {
                pause = FIRST_PAUSE;
                health.is_well();
                heard.notify_one();
                // None: the connection broke. It is made anew below, so that there is one way to begin.
                while let Ok(Some(_)) = listener.try_recv().await {
                    heard.notify_one();
                }
            }
            Err(error) => health.is_ill(&database.address.failed("listen for changes", &error)),
        }
        counted.deaf.fetch_add(1, Relaxed);
        heard.notify_one();
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn listener(pool: &PgPool) -> Result<PgListener, sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.eager_reconnect(false);
    listener.listen(CHANNEL).await?;
    Ok(listener)
}
