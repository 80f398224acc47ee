//! Follows the file and the database, and puts the next policy in force.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::time::Instant;
use tollgate_tower::policy::Policy;

use super::file::FileSign;
use super::source::{FROM_DATABASE, compile, keep, open, watch};
use super::{LiveConfig, Shared, StartError, cache};
use crate::config::{Config, ConfigFile, RulesFrom};
use crate::database::{Database, Loaded, Watch};

/// An editor may write in several steps: nobody reads in between.
const SETTLE: Duration = Duration::from_millis(20);

pub(super) struct Keeper {
    live: LiveConfig,
    shared: Arc<Shared>,
    sign: FileSign,
    /// As it was read last, right or wrong.
    file: ConfigFile,
    /// Why the file could not be read, while it cannot.
    unreadable: Option<String>,
    /// The last good one.
    config: Arc<Config>,
    /// Right by itself, and not with what is in the database: that may change.
    next_config: Option<Arc<Config>>,
    /// If the rules are there.
    database: Option<Followed>,
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
        let sign = FileSign::of(&live.file);
        let file = ConfigFile::read(&live.file).map_err(StartError::File)?;
        let config = Arc::new(file.parse().map_err(StartError::Wrong)?);
        let (policy, database, from) = match config.rules_from {
            RulesFrom::File => (first_policy(&config, None).await?, None, FROM_FILE),
            RulesFrom::Database => {
                let (policy, followed, from) =
                    first_of_database(&config, live.writes_cache).await?;
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
            again: Notify::new(),
        });
        let keeper = Self {
            live,
            shared: Arc::clone(&shared),
            sign,
            file,
            unreadable: None,
            config: Arc::clone(&config),
            next_config: None,
            database,
        };
        Ok((keeper, shared, config))
    }

    pub(super) async fn run(mut self) {
        let mut looks = tokio::time::interval(self.live.look_every);
        // Kept over turns: a folder in which something is written all the time must not put it off for ever.
        let mut retry_at = None;
        loop {
            match &self.database {
                Some(followed) if followed.is_behind || followed.open.is_none() => {
                    retry_at.get_or_insert_with(|| Instant::now() + self.live.retry_after);
                }
                _ => retry_at = None,
            }
            tokio::select! {
                () = self.sign.heard.notified() => {
                    tokio::time::sleep(SETTLE).await;
                    self.look_at_file().await;
                }
                _ = looks.tick() => self.look_at_file().await,
                () = changed(&mut self.database) => self.look_at_database().await,
                () = until(retry_at) => {
                    retry_at = None;
                    self.look_at_database().await;
                }
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
        self.unreadable = None;
        if file == self.file {
            return;
        }
        self.file = file;
        self.next_config = None;
        let config = match self.file.parse() {
            Ok(config) => Arc::new(config),
            Err(problems) => return self.refuse(FROM_FILE, &problems),
        };
        if config.rules_from != self.config.rules_from {
            return self.refuse(
                FROM_FILE,
                "where the rules come from (rules_from) changes at the next start only",
            );
        }
        if self.database.is_some() && !is_same_place(&config, &self.config) {
            return self.refuse(
                FROM_FILE,
                "the database and the scope of the rules (database: url, scope) change at the next start only",
            );
        }
        self.next_config = Some(config);
        self.adopt(FROM_FILE).await;
    }

    /// Puts in force what has changed: with whatever else is new, or else with the last good of it.
    async fn adopt(&mut self, from: &str) {
        let is_of_file = from == FROM_FILE;
        let has_others = match is_of_file {
            true => (self.database.as_ref()).is_some_and(|followed| followed.next.is_some()),
            false => self.next_config.is_some(),
        };
        let mut problems = String::new();
        for with_all in [true, false].into_iter().take(1 + usize::from(has_others)) {
            let config = (self.next_config.as_ref()).filter(|_| with_all || is_of_file);
            let config = Arc::clone(config.unwrap_or(&self.config));
            let next = self.database.as_ref().and_then(|all| all.next.as_ref());
            let next = next.filter(|_| with_all || !is_of_file);
            let loaded = self.database.as_ref().map(|followed| &followed.loaded);
            match compile(&config, next.or(loaded)).await {
                Ok(policy) => {
                    let is_loaded = next.is_some();
                    if with_all || is_of_file {
                        self.next_config = None;
                    }
                    self.config = config;
                    self.put(policy, from);
                    if is_loaded {
                        self.keep_next().await;
                    }
                    return;
                }
                Err(why) => problems = why,
            }
        }
        self.refuse(from, &problems);
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
                // Once; the watch says when it is back.
                if was_open && !std::mem::replace(&mut followed.is_behind, true) {
                    tracing::warn!(%error, "the rules have changed and cannot be read: those in force stay");
                }
                return;
            }
        };
        followed.is_behind = false;
        let is_same =
            (&loaded.rules, &loaded.clients) == (&followed.loaded.rules, &followed.loaded.clients);
        if is_same && self.shared.from_cache.load(Relaxed) == 0 {
            followed.next = None;
            return;
        }
        followed.next = Some(loaded);
        self.adopt(FROM_DATABASE).await;
    }

    /// What the database has now is good: writes the cache, if there is to be one.
    async fn keep_next(&mut self) {
        self.shared.from_cache.store(0, Relaxed);
        if let Some(followed) = &mut self.database
            && let Some(next) = followed.next.take()
        {
            followed.loaded = next;
            if self.live.writes_cache {
                keep(&self.config, &followed.loaded).await;
            }
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

/// Whether both have their rules in the same place.
fn is_same_place(one: &Config, other: &Config) -> bool {
    let place = |config: &Config| {
        let settings = config.database.as_ref();
        settings.map(|settings| (settings.url.clone(), settings.scope))
    };
    place(one) == place(other)
}

/// Waits until then, if there is a time.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
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
    config: &Arc<Config>,
    writes_cache: bool,
) -> Result<(Policy, Followed, &'static str), StartError> {
    let failed = match open(config).await {
        Ok((database, loaded)) => {
            let number = loaded.generation_number;
            match compile(config, Some(&loaded)).await {
                Ok(policy) => {
                    if writes_cache {
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
