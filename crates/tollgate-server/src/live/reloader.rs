//! Follows the file and the database, and puts new policies into force.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;
use tollgate_config::document::Node;
use tollgate_config::{Config, ConfigFile, RulesFrom};
use tollgate_http::file_watch::{FileWatch, read_again, read_settled};
use tollgate_tower::policy::Policy;

use super::rules_database::RulesDatabase;
use super::{LiveConfig, LiveState, StartError};
use crate::database::{Loaded, WatchStats};

const MIN_INTERVAL: Duration = Duration::from_millis(1);

/// Where a policy comes from, for the log.
const FROM_FILE: &str = "the configuration file";
const FROM_DATABASE: &str = "the database";
const FROM_CACHE: &str = "the cache";

pub(super) struct Reloader {
    live: LiveConfig,
    state: Arc<LiveState>,
    watch: FileWatch,
    /// The file as it was read last, valid or not.
    file: ConfigFile,
    /// The content of the file with the body of denials, if there is one.
    denied: Option<Result<String, String>>,
    /// Why the file cannot be read.
    unreadable: Option<String>,
    /// The configuration at the start, which listeners and connections are made with.
    started: Arc<Config>,
    /// The configuration in force.
    config: Arc<Config>,
    pending: Option<PendingConfig>,
    /// The database, if it has the rules.
    database: Option<RulesDatabase>,
}

/// A valid configuration that is not in force yet.
#[derive(Clone)]
struct PendingConfig {
    config: Arc<Config>,
    /// The sections whose changes need a restart.
    needs_restart: String,
}

impl Reloader {
    pub(super) async fn start(
        live: LiveConfig,
    ) -> Result<(Self, Arc<LiveState>, Arc<Config>), StartError> {
        // Before the file is read, so that no change is missed.
        let watch = FileWatch::of(&live.file);
        let file = ConfigFile::read(&live.file).map_err(StartError::unavailable)?;
        let config = Arc::new(file.parse().map_err(StartError::invalid)?);
        let counts = Arc::<Mutex<WatchStats>>::default();
        let settings =
            (config.database.clone()).filter(|_| config.rules_from == RulesFrom::Database);
        let mut database = settings
            .map(|settings| RulesDatabase::new(settings, live.writes_cache, Arc::clone(&counts)));
        let (policy, from) = match &mut database {
            None => (
                compile(&config, None).await.map_err(StartError::invalid)?,
                FROM_FILE,
            ),
            Some(database) => first_of_database(database, &config).await?,
        };
        let state = LiveState {
            watch: counts,
            ..LiveState::new(policy)
        };
        state.stats.lock().from_cache = from == FROM_CACHE;
        log_generation(&state.policy.load(), from);
        let state = Arc::new(state);
        let reloader = Self {
            live,
            state: Arc::clone(&state),
            watch,
            file,
            denied: config.policy.denied_file(),
            unreadable: None,
            started: Arc::clone(&config),
            config: Arc::clone(&config),
            pending: None,
            database,
        };
        Ok((reloader, state, config))
    }

    pub(super) async fn run(mut self) {
        let mut polls = tokio::time::interval(self.live.poll.max(MIN_INTERVAL));
        // A timer of its own, because constant writes to the folder of the file must not delay retries.
        let mut retries = tokio::time::interval(self.live.retry_after.max(MIN_INTERVAL));
        for ticks in [&mut polls, &mut retries] {
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        loop {
            let is_unavailable = (self.database.as_ref())
                .is_some_and(|database| database.is_behind || !database.is_open());
            let changed = async {
                match &mut self.database {
                    Some(database) => database.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.watch.changed.notified() => self.reload_file().await,
                _ = polls.tick() => self.reload_file().await,
                () = changed => self.reload_database().await,
                _ = retries.tick(), if is_unavailable => self.reload_database().await,
                () = self.state.reload.notified() => {
                    self.reload_file().await;
                    self.reload_database().await;
                }
            }
        }
    }

    async fn reload_file(&mut self) {
        let denied = self.config.policy.denied_file();
        let first = ConfigFile::read(&self.live.file);
        if first.as_ref().is_ok_and(|file| *file == self.file) && denied == self.denied {
            self.report_readable();
            return;
        }
        let read = || ConfigFile::read(&self.live.file);
        let mut file = read_settled(first, read).await;
        let is_faulty = !file.as_ref().is_ok_and(|file| file.parse().is_ok());
        if is_faulty && let Some(next) = read_again(&file, read).await {
            file = next;
        }
        let file = match file {
            Ok(file) => file,
            Err(why) => {
                if self.unreadable.as_ref() != Some(&why) {
                    self.state.stats.lock().failures += 1;
                    tracing::error!("{why}: the configuration in force stays");
                    self.unreadable = Some(why);
                }
                return;
            }
        };
        self.report_readable();
        let denied = self.config.policy.denied_file();
        if file == self.file && denied == self.denied {
            return;
        }
        (self.file, self.denied) = (file, denied);
        self.pending = None;
        let mut config = match self.file.parse() {
            Ok(config) => config,
            Err(problems) => return self.refuse(FROM_FILE, &problems),
        };
        if config.rules_from != self.config.rules_from {
            let why = "where the rules come from (rules_from) changes only with a restart";
            return self.refuse(FROM_FILE, why);
        }
        let needs_restart = self.started.sections_needing_restart(&config).join(", ");
        // The rules stay those of the database, scope and cache that are followed.
        config.database.clone_from(&self.started.database);
        let config = Arc::new(config);
        self.pending = Some(PendingConfig {
            config,
            needs_restart,
        });
        self.adopt(FROM_FILE).await;
    }

    fn report_readable(&mut self) {
        if self.unreadable.take().is_some() {
            tracing::info!("{} can be read again", self.file.name());
        }
    }

    async fn reload_database(&mut self) {
        let Some(database) = &mut self.database else {
            return;
        };
        let was_open = database.is_open();
        let loaded = match database.load().await {
            Ok(loaded) => loaded,
            Err(error) => {
                self.state.stats.lock().failures += 1;
                if was_open && !std::mem::replace(&mut database.is_behind, true) {
                    tracing::warn!(%error, "the rules have changed and cannot be read, those in force stay");
                }
                return;
            }
        };
        if std::mem::take(&mut database.is_behind) {
            tracing::info!("the rules can be read from the database again");
        }
        if loaded.has_same_content(&database.in_force) && !self.state.stats.lock().from_cache {
            database.pending = None;
            return;
        }
        // Changes of other scopes are notified too, and must not refuse the same content again.
        let pending = database.pending.as_ref();
        if pending.is_some_and(|pending| loaded.has_same_content(pending)) {
            return;
        }
        database.pending = Some(loaded);
        self.adopt(FROM_DATABASE).await;
    }

    /// Puts all that is pending into force; or else only what came last. What is refused stays pending, because it may be valid with
    /// what comes next.
    async fn adopt(&mut self, from: &str) {
        let config = self.pending.clone();
        let content = (self.database.as_ref()).and_then(|database| database.pending.clone());
        let last = match (from, &config, &content) {
            (FROM_FILE, _, Some(_)) => Some((config.clone(), None)),
            (FROM_DATABASE, Some(_), _) => Some((None, content.clone())),
            _ => None,
        };
        let mut problems = String::new();
        for (config, content) in std::iter::once((config, content)).chain(last) {
            let next = config.as_ref().map_or(&self.config, |it| &it.config);
            let in_force = self.database.as_ref().map(|database| &database.in_force);
            match compile(next, content.as_ref().or(in_force)).await {
                Ok(policy) => return self.put_into_force(policy, config, content, from).await,
                Err(why) => problems = why,
            }
        }
        self.refuse(from, &problems);
    }

    async fn put_into_force(
        &mut self,
        policy: Policy,
        config: Option<PendingConfig>,
        content: Option<Loaded>,
        from: &str,
    ) {
        let generation = self.state.policy.load().generation() + 1;
        let policy = policy.with_generation(generation);
        log_generation(&policy, from);
        self.state.policy.store(Arc::new(policy));
        if let Some(pending) = config {
            self.pending = None;
            self.denied = pending.config.policy.denied_file();
            self.config = pending.config;
            if !pending.needs_restart.is_empty() {
                let sections = pending.needs_restart;
                tracing::warn!("changes in {sections} take effect only after a restart");
            }
        }
        if let (Some(content), Some(database)) = (content, &mut self.database) {
            database.pending = None;
            database.in_force = content;
            self.state.stats.lock().from_cache = false;
            database.write_cache().await;
        }
    }

    fn refuse(&self, from: &str, problems: &str) {
        self.state.stats.lock().refused += 1;
        let generation = self.state.policy.load().generation();
        tracing::error!(
            generation,
            "{from} is refused, the last valid generation stays in force:\n{problems}"
        );
    }
}

fn log_generation(policy: &Policy, from: &str) {
    tracing::info!(
        generation = policy.generation(),
        rules = policy.rules().rules().count(),
        clients = policy.clients().len(),
        "a new generation of rules is in force, from {from}"
    );
    if policy.rules().rules().next().is_none() {
        tracing::warn!("there are no rules, every request is admitted");
    }
}

/// The first policy, from the database or else from its cache.
async fn first_of_database(
    database: &mut RulesDatabase,
    config: &Arc<Config>,
) -> Result<(Policy, &'static str), StartError> {
    let error = match database.load().await {
        Ok(loaded) => match compile(config, Some(&loaded)).await {
            Ok(policy) => {
                database.in_force = loaded;
                database.write_cache().await;
                return Ok((policy, FROM_DATABASE));
            }
            Err(problems) => StartError::invalid(problems),
        },
        Err(error) => StartError::unavailable(format!("there are no rules to enforce: {error}; ")),
    };
    let loaded = match database.read_cache() {
        Some(Ok(loaded)) => {
            tracing::warn!(%error, "the rules of the database cannot be used, using the last valid ones from the cache");
            loaded
        }
        _ if error.is_invalid => return Err(error),
        Some(Err(why)) => {
            return Err(StartError::unavailable(format!(
                "{}and {why}",
                error.message
            )));
        }
        None => {
            let help =
                "with `database: { cache: FILE }` the last valid rules are kept for such a start";
            return Err(StartError::unavailable(error.message + help));
        }
    };
    let policy = compile(config, Some(&loaded)).await;
    database.in_force = loaded;
    // It is read again soon.
    database.close();
    Ok((policy.map_err(StartError::invalid)?, FROM_CACHE))
}

/// Compiles a policy on a thread that serves no requests.
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
