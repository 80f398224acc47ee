//! The policy in force, and how the next one takes its place.
//!
//! A [`Live`] policy follows the configuration file, and the database if the rules are there. Whatever changes, the next policy
//! is compiled whole and takes the place of the last one whole. One that is wrong is refused, logged and counted, and the last good one stays;
//! a database that is away changes nothing.

mod cache;
mod error;
mod keeper;
mod source;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tollgate_tower::policy::Policy;

use crate::database::{WatchCounts, WatchStats};
pub use error::StartError;
use keeper::Keeper;
use tollgate_config::Config;

/// What to follow.
#[derive(Clone, Debug)]
pub struct LiveConfig {
    /// The configuration file.
    pub file: PathBuf,
    /// How often to look at the file though nobody says that it changed: where the file system does not tell.
    pub look_every: Duration,
    /// How long to wait before the database is asked again that could not be.
    pub retry_after: Duration,
    /// Whether to write the cache, if there is to be one. Not by who only looks: it may be somebody else's.
    pub keep_cache: bool,
}

impl LiveConfig {
    /// This file, with what is usual.
    #[must_use]
    pub fn of(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            look_every: Duration::from_secs(5),
            retry_after: Duration::from_secs(1),
            keep_cache: true,
        }
    }
}

/// A policy that follows its file and its database, until it is dropped.
#[derive(Debug)]
pub struct Live {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What became of the policies so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveStats {
    /// The number of the policy in force.
    pub generation: u64,
    /// How many were refused.
    pub refused: u64,
    /// How often the file or the database could not be read.
    pub failures: u64,
    /// Whether the policy in force is from the cache, as the database could not be asked yet.
    pub from_cache: bool,
    /// What was seen of the database by whoever watches it for changes; zeros without one, and until it could be reached.
    pub watch: WatchStats,
}

#[derive(Debug)]
struct Shared {
    policy: ArcSwap<Policy>,
    refused: AtomicU64,
    failures: AtomicU64,
    /// 1 if the policy is from the cache.
    from_cache: AtomicU64,
    /// What the watch counts, once there is one.
    watched: OnceLock<WatchCounts>,
    /// Somebody wants everything to be looked at.
    again: Notify,
}

impl Live {
    /// Reads the file, and the rules from wherever it says, and follows both from then on. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the file is wrong, or the rules are in a database that cannot be asked and no cache has the last good ones.
    pub async fn start(live: LiveConfig) -> Result<(Self, Arc<Config>), StartError> {
        let (keeper, shared, config) = Keeper::start(live).await?;
        let task = tokio::spawn(keeper.run());
        Ok((Self { shared, task }, config))
    }

    /// A policy that follows nothing and stays as it is. Must be called within a tokio runtime.
    #[must_use]
    pub fn fixed(policy: Policy) -> Self {
        let shared = Shared {
            policy: ArcSwap::from_pointee(policy.with_generation(1)),
            refused: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            from_cache: AtomicU64::new(0),
            watched: OnceLock::new(),
            again: Notify::new(),
        };
        Self {
            shared: Arc::new(shared),
            task: tokio::spawn(std::future::ready(())),
        }
    }

    /// The policy in force. Whoever decides holds one throughout.
    #[must_use]
    pub fn policy(&self) -> Guard<Arc<Policy>> {
        self.shared.policy.load()
    }

    /// Looks at the file and the database, whether they say that they changed or not.
    pub fn reload(&self) {
        self.shared.again.notify_one();
    }

    /// What became of the policies so far.
    #[must_use]
    pub fn stats(&self) -> LiveStats {
        LiveStats {
            generation: self.shared.policy.load().generation(),
            refused: self.shared.refused.load(Relaxed),
            failures: self.shared.failures.load(Relaxed),
            from_cache: self.shared.from_cache.load(Relaxed) == 1,
            watch: (self.shared.watched.get()).map_or_else(WatchStats::default, WatchCounts::stats),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.task.abort();
    }
}
