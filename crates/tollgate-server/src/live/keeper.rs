//! Follows the file and the database, and puts the next policy in force.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use tollgate_config::{Config, ConfigFile, RulesFrom};
use tollgate_http::file_watch::FileWatch;
use tollgate_tower::policy::Policy;

use super::source::{FROM_DATABASE, compile, keep, open, watch};
use super::{LiveConfig, Shared, StartError, cache};
use crate::database::{Database, Loaded, Watch};

/// An editor may write in several steps: nobody reads in between.
const SETTLE: Duration = Duration::from_millis(20);

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(1);

pub(super) struct Keeper {
    live: LiveConfig,
    shared: Arc<Shared>,
    watch: FileWatch,
    /// As it was read last, right or wrong.
    file: ConfigFile,
    /// What was in the file with the body of denials, if that is in a file of its own.
    denied: Option<Result<String, String>>,
    /// Why the file could not be read, while it cannot.
    unreadable: Option<String>,
    /// The one that the program was started with, which its doors and connections are made of.
    started: Arc<Config>,
    /// The last good one.
    config: Arc<Config>,
    /// Right by itself, and not in force yet.
    next: Option<NextConfig>,
    /// If the rules are there.
    database: Option<Followed>,
}

/// A configuration that is right by itself.
#[derive(Clone)]
struct NextConfig {
    config: Arc<Config>,
    /// What changes at the next start only.
    waiting: String,
}

/// The database that has the rules.
struct Followed {
    /// `None` until it could be reached.
    open: Option<(Database, Watch)>,
    /// Whether it has said something that could not be read yet.
    is_behind: bool,
    /// The last good ones.
    loaded: Loaded,
    /// What it has now, while that is wrong together with the file: that may change.
    next: Option<Loaded>,
}

/// Where a policy comes from, for the log.
const FROM_FILE: &str = "the configuration file";
const FROM_CACHE: &str = "the cache";

impl Keeper {
    pub(super) async fn start(
        live: LiveConfig,
    ) -> Result<(Self, Arc<Shared>, Arc<Config>), StartError> {
        // Before it is read, so that no change falls in between.
        let watch = FileWatch::of(&live.file);
        let file = ConfigFile::read(&live.file).map_err(StartError::File)?;
        let config = Arc::new(file.parse().map_err(StartError::Wrong)?);
        let (policy, database, from) = match config.rules_from {
            RulesFrom::File => (first_policy(&config, None).await?, None, FROM_FILE),
            RulesFrom::Database => {
                let (policy, followed, from) = first_of_database(&live, &config).await?;
                (policy, Some(followed), from)
            }
        };
        let policy = policy.with_generation(1);
        say(&policy, from);
        let shared = Arc::new(Shared {
            policy: ArcSwap::from_pointee(policy),
            refused: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            from_cache: AtomicU64::new(u64::from(from == FROM_CACHE)),
            watched: OnceLock::new(),
            again: Notify::new(),
        });
        let keeper = Self {
            live,
            shared: Arc::clone(&shared),
            watch,
            file,
            denied: config.policy.denied_file(),
            unreadable: None,
            started: Arc::clone(&config),
            config: Arc::clone(&config),
            next: None,
            database,
        };
        keeper.count_looks();
        Ok((keeper, shared, config))
    }

    pub(super) async fn run(mut self) {
        let mut looks = tokio::time::interval(self.live.look_every.max(SHORTEST));
        // On its own time: a folder in which much is written must not put it off for ever.
        let mut retries = tokio::time::interval(self.live.retry_after.max(SHORTEST));
        for ticks in [&mut looks, &mut retries] {
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        loop {
            let is_away = (self.database.as_ref())
                .is_some_and(|followed| followed.is_behind || followed.open.is_none());
            tokio::select! {
                () = self.watch.changed.notified() => {
                    tokio::time::sleep(SETTLE).await;
                    self.look_at_file().await;
                }
                _ = looks.tick() => self.look_at_file().await,
                () = changed(&mut self.database) => self.look_at_database().await,
                _ = retries.tick(), if is_away => self.look_at_database().await,
                () = self.shared.again.notified() => {
                    self.look_at_file().await;
                    self.look_at_database().await;
                }
            }
        }
    }

    async fn look_at_file(&mut self) {
        let file = match ConfigFile::read(&self.live.file) {
            Ok(file) => file,
            Err(why) => {
                if self.unreadable.as_ref() != Some(&why) {
                    self.shared.failures.fetch_add(1, Relaxed);
                    tracing::error!("{why}: what is in force stays");
                    self.unreadable = Some(why);
                }
                return;
            }
        };
        if self.unreadable.take().is_some() {
            tracing::info!("{} can be read again", file.name());
        }
        let denied = self.config.policy.denied_file();
        if file == self.file && denied == self.denied {
            return;
        }
        (self.file, self.denied) = (file, denied);
        self.next = None;
        let mut config = match self.file.parse() {
            Ok(config) => config,
            Err(problems) => return self.refuse(FROM_FILE, &problems),
        };
        if config.rules_from != self.config.rules_from {
            return self.refuse(
                FROM_FILE,
                "where the rules come from (rules_from) changes at the next start only",
            );
        }
        let waiting = self.started.sections_needing_restart(&config).join(", ");
        // The rules stay those of the database, scope and cache that are followed.
        config.database.clone_from(&self.started.database);
        let config = Arc::new(config);
        self.next = Some(NextConfig { config, waiting });
        self.adopt(FROM_FILE).await;
    }

    /// Puts in force what is new, all of it together; or else what came last, with the last good of the rest. What is wrong stays in mind: it
    /// may be right with what comes.
    async fn adopt(&mut self, from: &str) {
        let file = self.next.clone();
        let rows = (self.database.as_ref()).and_then(|followed| followed.next.clone());
        let is_one = file.is_none() || rows.is_none();
        let alone = match from {
            FROM_FILE => (file.clone(), None),
            _ => (None, rows.clone()),
        };
        let mut problems = String::new();
        for (file, rows) in [Some((file, rows)), Some(alone).filter(|_| !is_one)]
            .into_iter()
            .flatten()
        {
            let config = file.as_ref().map_or(&self.config, |next| &next.config);
            let in_force = self.database.as_ref().map(|followed| &followed.loaded);
            match compile(config, rows.as_ref().or(in_force)).await {
                Ok(policy) => {
                    self.put(policy, from);
                    return self.settle(file, rows).await;
                }
                Err(why) => problems = why,
            }
        }
        self.refuse(from, &problems);
    }

    /// These are in force now.
    async fn settle(&mut self, file: Option<NextConfig>, rows: Option<Loaded>) {
        if let Some(NextConfig { config, waiting }) = file {
            self.next = None;
            self.denied = config.policy.denied_file();
            self.config = config;
            if !waiting.is_empty() {
                tracing::warn!("what changed in {waiting} counts at the next start only");
            }
        }
        if let (Some(rows), Some(followed)) = (rows, &mut self.database) {
            followed.next = None;
            followed.loaded = rows;
            self.shared.from_cache.store(0, Relaxed);
            if self.live.keep_cache {
                keep(&self.config, &followed.loaded).await;
            }
        }
    }

    async fn look_at_database(&mut self) {
        let Some(followed) = &mut self.database else {
            return;
        };
        let Some(settings) = &self.config.database else {
            return;
        };
        let was_open = followed.open.is_some();
        let loaded = match &followed.open {
            Some((database, _)) => database.load(settings.scope.as_str()).await,
            None => match open(&self.config).await {
                Ok((database, loaded)) => {
                    let watch = watch(&self.config, &database, loaded.generation_number);
                    followed.open = Some((database, watch));
                    Ok(loaded)
                }
                Err(error) => Err(error),
            },
        };
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                self.shared.failures.fetch_add(1, Relaxed);
                // Once, until it can be read again.
                if was_open && !std::mem::replace(&mut followed.is_behind, true) {
                    tracing::warn!(%error, "the rules have changed and cannot be read: those in force stay");
                }
                return;
            }
        };
        if std::mem::take(&mut followed.is_behind) {
            tracing::info!("the rules can be read from the database again");
        }
        self.count_looks();
        let Some(followed) = &mut self.database else {
            return;
        };
        let is_same = loaded.says_the_same(Some(&followed.loaded));
        if is_same && self.shared.from_cache.load(Relaxed) == 0 {
            followed.next = None;
            return;
        }
        // It was refused already: changes of other scopes are heard of as well.
        if loaded.says_the_same(followed.next.as_ref()) {
            return;
        }
        followed.next = Some(loaded);
        self.adopt(FROM_DATABASE).await;
    }

    /// Lets others see what the watch counts, once there is one.
    fn count_looks(&self) {
        let followed = self.database.as_ref();
        if let Some((_, watch)) = followed.and_then(|followed| followed.open.as_ref()) {
            self.shared.watched.get_or_init(|| watch.counts());
        }
    }

    fn put(&self, policy: Policy, from: &str) {
        let generation = self.shared.policy.load().generation() + 1;
        let policy = policy.with_generation(generation);
        say(&policy, from);
        self.shared.policy.store(Arc::new(policy));
    }

    fn refuse(&self, from: &str, problems: &str) {
        self.shared.refused.fetch_add(1, Relaxed);
        let generation = self.shared.policy.load().generation();
        tracing::error!(
            generation,
            "{from} is refused, and the last good generation stays in force:\n{problems}"
        );
    }
}

fn say(policy: &Policy, from: &str) {
    tracing::info!(
        generation = policy.generation(),
        rules = policy.rules().rules().count(),
        clients = policy.clients().len(),
        "a new generation of rules is in force, from {from}"
    );
    if policy.rules().rules().next().is_none() {
        tracing::warn!("there are no rules: every request passes");
    }
}

/// Waits for the database to say that something changed.
async fn changed(database: &mut Option<Followed>) {
    match database {
        Some(Followed {
            open: Some((_, watch)),
            ..
        }) => {
            watch.changed().await;
        }
        _ => std::future::pending().await,
    }
}

async fn first_policy(config: &Arc<Config>, loaded: Option<&Loaded>) -> Result<Policy, StartError> {
    compile(config, loaded).await.map_err(StartError::Wrong)
}

/// From the database, or else from the cache.
async fn first_of_database(
    live: &LiveConfig,
    config: &Arc<Config>,
) -> Result<(Policy, Followed, &'static str), StartError> {
    let failed = match open(config).await {
        Ok((database, loaded)) => {
            let number = loaded.generation_number;
            match compile(config, Some(&loaded)).await {
                Ok(policy) => {
                    if live.keep_cache {
                        keep(config, &loaded).await;
                    }
                    let watch = watch(config, &database, number);
                    let followed = Followed {
                        open: Some((database, watch)),
                        is_behind: false,
                        loaded,
                        next: None,
                    };
                    return Ok((policy, followed, FROM_DATABASE));
                }
                Err(problems) => StartError::Wrong(problems),
            }
        }
        Err(error) => StartError::NoRules {
            database: error.to_string(),
            cache: None,
        },
    };
    let (file, scope) = match &config.database {
        Some(settings) => (settings.cache.clone(), settings.scope),
        None => return Err(failed),
    };
    let Some(file) = file else {
        return Err(failed);
    };
    match cache::read(&file, scope.as_str()) {
        Ok(loaded) => {
            let policy = first_policy(config, Some(&loaded)).await?;
            tracing::warn!(
                error = %failed,
                "the rules of the database are of no use now: going on with the last good ones, from the cache"
            );
            let followed = Followed {
                open: None,
                is_behind: false,
                loaded,
                next: None,
            };
            Ok((policy, followed, FROM_CACHE))
        }
        Err(why) => Err(with_cache(failed, file, why)),
    }
}

fn with_cache(failed: StartError, file: PathBuf, why: String) -> StartError {
    match failed {
        StartError::NoRules { database, .. } => StartError::NoRules {
            database,
            cache: Some((file, why)),
        },
        other => other,
    }
}
