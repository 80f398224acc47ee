//! Follows the file and the database, and puts the next policy in force.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tollgate_tower::policy::Policy;

use super::file::FileSign;
use super::{LiveConfig, Shared, StartError, cache};
use crate::config::{Config, ConfigFile, DatabaseSettings, RulesFrom};
use crate::database::{Database, DatabaseError, Loaded, Watch};
use crate::document::Node;

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
    /// If the rules are there.
    database: Option<Followed>,
}

/// The database that has the rules.
struct Followed {
    /// As they were at the start.
    settings: DatabaseSettings,
    /// `None` until it could be reached.
    open: Option<(Database, Watch)>,
    /// Whether it has said something that could not be read yet.
    is_behind: bool,
    /// The last good ones.
    loaded: Loaded,
}

/// Where a policy comes from, for the log.
const FROM_FILE: &str = "the configuration file";
const FROM_DATABASE: &str = "the database";
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
            RulesFrom::Database if let Some(settings) = &config.database => {
                let (policy, followed, from) = first_of_database(&config, settings).await?;
                (policy, Some(followed), from)
            }
            // Rules of a database that is not configured are none: the configuration says so.
            _ => (first_policy(&config, None).await?, None, FROM_FILE),
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
            database,
        };
        Ok((keeper, shared, config))
    }

    pub(super) async fn run(mut self) {
        let mut looks = tokio::time::interval(self.live.look_every);
        loop {
            let retry_after = match &self.database {
                Some(followed) if followed.is_behind || followed.open.is_none() => {
                    self.live.retry_after
                }
                _ => Duration::MAX,
            };
            tokio::select! {
                () = self.sign.heard.notified() => {
                    tokio::time::sleep(SETTLE).await;
                    self.look_at_file().await;
                }
                _ = looks.tick() => self.look_at_file().await,
                () = changed(&mut self.database) => self.look_at_database().await,
                () = tokio::time::sleep(retry_after) => self.look_at_database().await,
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
        let before = std::mem::replace(&mut self.file, file);
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
        let loaded = self.database.as_ref().map(|followed| &followed.loaded);
        match compile(&config, loaded).await {
            Ok(policy) => {
                self.config = config;
                self.put(policy, FROM_FILE);
                say_what_waits(&before, &self.file);
            }
            Err(problems) => self.refuse(FROM_FILE, &problems),
        }
    }

    async fn look_at_database(&mut self) {
        let Some(followed) = &mut self.database else {
            return;
        };
        let settings = &followed.settings;
        let was_open = followed.open.is_some();
        let loaded = match &followed.open {
            Some((database, _)) => database.load(settings.scope.as_str()).await,
            None => match open(settings).await {
                Ok((database, loaded)) => {
                    let watch = database.watch(loaded.generation_number, settings.watch);
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
            return;
        }
        match compile(&self.config, Some(&loaded)).await {
            Ok(policy) => {
                followed.loaded = loaded;
                self.shared.from_cache.store(0, Relaxed);
                self.put(policy, FROM_DATABASE);
                self.keep().await;
            }
            Err(problems) => self.refuse(FROM_DATABASE, &problems),
        }
    }

    /// Writes the cache, if there is to be one.
    async fn keep(&self) {
        if let Some(followed) = &self.database {
            keep(&followed.settings, &followed.loaded).await;
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

/// What is read at the start only.
const AT_START: [&str; 7] = [
    "gateway", "service", "admin", "store", "database", "audit", "log",
];

fn say_what_waits(before: &ConfigFile, after: &ConfigFile) {
    let (Ok(before), Ok(after)) = (before.document(), after.document()) else {
        return;
    };
    let section = |node: &Node, name: &str| node.get(name).map(Node::to_json);
    let is_other = |name: &&str| section(&before, name) != section(&after, name);
    let waiting: Vec<&str> = AT_START.into_iter().filter(is_other).collect();
    if !waiting.is_empty() {
        tracing::warn!(
            "{} changed in the configuration, which takes effect at the next start",
            waiting.join(", ")
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
    config: &Arc<Config>,
    settings: &DatabaseSettings,
) -> Result<(Policy, Followed, &'static str), StartError> {
    let failed = match open(settings).await {
        Ok((database, loaded)) => {
            let number = loaded.generation_number;
            match compile(config, Some(&loaded)).await {
                Ok(policy) => {
                    keep(settings, &loaded).await;
                    let watch = database.watch(number, settings.watch);
                    let followed = Followed {
                        settings: settings.clone(),
                        open: Some((database, watch)),
                        is_behind: false,
                        loaded,
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
    let Some(file) = settings.cache.clone() else {
        return Err(failed);
    };
    match cache::read(&file, settings.scope.as_str()) {
        Ok(loaded) => {
            let policy = first_policy(config, Some(&loaded)).await?;
            tracing::warn!(
                error = %failed,
                "the rules of the database are of no use now: going on with the last good ones, from the cache"
            );
            let followed = Followed {
                settings: settings.clone(),
                open: None,
                is_behind: false,
                loaded,
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

async fn open(settings: &DatabaseSettings) -> Result<(Database, Loaded), DatabaseError> {
    let database = Database::open(settings.url.expose()).await?;
    let loaded = database.load(settings.scope.as_str()).await?;
    Ok((database, loaded))
}

async fn keep(settings: &DatabaseSettings, loaded: &Loaded) {
    let Some(file) = settings.cache.clone() else {
        return;
    };
    let (scope, loaded) = (settings.scope, loaded.clone());
    let written =
        tokio::task::spawn_blocking(move || (cache::write(&file, scope.as_str(), &loaded), file));
    if let Ok((Err(error), file)) = written.await {
        tracing::warn!(%error, "cannot keep the rules in the cache {}", file.display());
    }
}

/// Makes a policy of what the file and the database say, apart from those who decide meanwhile.
async fn compile(config: &Arc<Config>, loaded: Option<&Loaded>) -> Result<Policy, String> {
    let (config, loaded) = (Arc::clone(config), loaded.cloned());
    let compiled = tokio::task::spawn_blocking(move || {
        let Some(loaded) = loaded else {
            return Ok(config.policy.policy());
        };
        let [rules, clients] = [&loaded.rules, &loaded.clients]
            .map(|documents| documents.iter().map(Node::from_json).collect::<Vec<_>>());
        match config.policy.with_documents(&rules, &clients) {
            Ok(policy) => Ok(policy.policy()),
            Err(problems) => Err(problems.render(FROM_DATABASE, "")),
        }
    });
    match compiled.await {
        Ok(compiled) => compiled,
        Err(error) => Err(format!("the rules could not be compiled: {error}")),
    }
}
