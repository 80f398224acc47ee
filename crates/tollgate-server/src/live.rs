//! The policy in force, which follows the configuration file and the database.
//!
//! A new policy is compiled apart from requests and replaces the old one as a whole. An invalid one is refused, logged and counted, and the
//! last valid one stays in force; an unavailable database changes nothing.

mod reloader;
mod rules_database;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tollgate_config::Config;
use tollgate_tower::policy::Policy;

use crate::database::WatchStats;
use crate::failure::Failure;
use reloader::Reloader;

/// What to follow.
#[derive(Clone, Debug)]
pub struct LiveConfig {
    /// The configuration file.
    pub file: PathBuf,
    /// How often to read the file even without a notification, which not every file system sends.
    pub poll: Duration,
    /// Pause before an unavailable database is tried again.
    pub retry_after: Duration,
    /// Whether to write the configured cache. Commands do not, because it may belong to another user.
    pub writes_cache: bool,
}

impl LiveConfig {
    /// Follows this file, with default settings.
    #[must_use]
    pub fn of(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            poll: Duration::from_secs(5),
            retry_after: Duration::from_secs(1),
            writes_cache: true,
        }
    }
}

/// The policy in force. It is followed until this is dropped.
#[derive(Debug)]
pub struct Live {
    state: Arc<LiveState>,
    task: JoinHandle<()>,
}

/// What became of the policies so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveStats {
    /// The generation in force.
    pub generation: u64,
    /// Number of refused generations.
    pub refused: u64,
    /// How often the file or the database could not be read.
    pub failures: u64,
    /// Whether the rules in force are from the cache, because the database has not been available yet.
    pub from_cache: bool,
    /// What the watch on the database has counted; zeros without one.
    pub watch: WatchStats,
}

#[derive(Debug)]
struct LiveState {
    policy: ArcSwap<Policy>,
    /// Without the generation and what the watch has counted.
    stats: Mutex<LiveStats>,
    watch: Arc<Mutex<WatchStats>>,
    /// Notified to reload everything.
    reload: Notify,
}

impl LiveState {
    fn new(policy: Policy) -> Self {
        Self {
            policy: ArcSwap::from_pointee(policy.with_generation(1)),
            stats: Mutex::default(),
            watch: Arc::default(),
            reload: Notify::new(),
        }
    }
}

impl Live {
    /// Reads the file, and the rules from the file or the database, and follows both. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the file is invalid, or the rules are in an unavailable database and there is no valid cache.
    pub async fn start(live: LiveConfig) -> Result<(Self, Arc<Config>), StartError> {
        let (reloader, state, config) = Reloader::start(live).await?;
        let task = tokio::spawn(reloader.run());
        Ok((Self { state, task }, config))
    }

    /// A policy that never changes. Must be called within a tokio runtime.
    #[must_use]
    pub fn fixed(policy: Policy) -> Self {
        Self {
            state: Arc::new(LiveState::new(policy)),
            task: tokio::spawn(std::future::ready(())),
        }
    }

    /// The policy in force.
    pub fn policy(&self) -> Guard<Arc<Policy>> {
        self.state.policy.load()
    }

    /// Reloads the file and the database, whether they notify of a change or not.
    pub fn reload(&self) {
        self.state.reload.notify_one();
    }

    /// What became of the policies so far.
    pub fn stats(&self) -> LiveStats {
        LiveStats {
            generation: self.state.policy.load().generation(),
            watch: *self.state.watch.lock(),
            ..*self.state.stats.lock()
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Why there is no policy at the start.
#[derive(Debug)]
pub struct StartError {
    message: String,
    /// Whether the configuration or the content of the database is invalid. The message has all problems, with their places.
    is_invalid: bool,
}

impl StartError {
    fn invalid(problems: impl Into<String>) -> Self {
        Self {
            message: problems.into(),
            is_invalid: true,
        }
    }

    fn unavailable(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            is_invalid: false,
        }
    }

    /// The failure of a command with this configuration file.
    pub(crate) fn into_failure(self, file: &Path) -> Failure {
        match self.is_invalid {
            true => Failure::invalid(file.display(), &self.message),
            false => Failure::Unavailable(self.message),
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message.trim_end())
    }
}

impl std::error::Error for StartError {}
