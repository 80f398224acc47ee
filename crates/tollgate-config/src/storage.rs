//! Where things are kept: usage in memory or Redis, rules and violations in a database; the audit trail, and the log.

use std::path::PathBuf;
use std::time::Duration;

use tollgate::store::{MemoryConfig, RedisClock, RedisConfig, RedisStore};
use tollgate::{Clock, Instances, Name, SharedConfig};

use super::secret::{Secret, Url};
use super::values::{DAY, HOUR, MILLISECOND, MINUTE, SECOND, file, name};
use crate::document::Location;
use crate::document::reading::{Fields, Input, boolean, choice, duration, listed, number, or_word};
use crate::encryption::{Encryption, SSL_MODES};

/// The scope of a database that serves one installation.
pub const DEFAULT_SCOPE: &str = "default";

/// The database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseSettings {
    /// `sqlite:FILE` or `postgres://…`.
    pub url: Url,
    /// How changes are noticed.
    pub watch: WatchConfig,
    /// The installation whose rules these are, if several share the database.
    pub scope: Name,
    /// A file for the last good rules, for a start while the database is unavailable.
    pub cache: Option<PathBuf>,
}

/// Where rules and clients come from: one place at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RulesFrom {
    /// From the configuration file.
    #[default]
    File,
    /// From the database.
    Database,
}

/// How changes in the database are noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchConfig {
    /// Time between two reads of the generation counter, from 10 ms to 60 s. By default 30 s in PostgreSQL, which notifies of
    /// changes, and 500 ms in SQLite, which cannot.
    pub poll: Option<Duration>,
}

/// The audit trail: how much to hold, how often to write, how long to keep.
#[derive(Clone, Debug)]
pub struct AuditConfig {
    /// The scope that rows are written under.
    pub scope: String,
    /// How often complete seconds are collected for writing.
    pub collect_every: Duration,
    /// Maximum number of folds (a bucket in a second) that are held until then. A fold takes about 400 bytes, and at most 3 KB.
    pub max_folds: usize,
    /// Maximum number of rows that wait while the database is unavailable.
    pub max_backlog: usize,
    /// Maximum number of rows that are written at once.
    pub batch: usize,
    /// Pause before a failed write is tried again.
    pub retry_after: Duration,
    /// How long to keep violations; `None`: no limit.
    pub retention: Option<Duration>,
    /// How often to remove older ones.
    pub sweep_every: Duration,
    /// Maximum number of rows that are removed at once, which bounds how long others wait.
    pub max_sweep: u32,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            scope: DEFAULT_SCOPE.to_owned(),
            collect_every: Duration::from_secs(1),
            max_folds: 32_768,
            max_backlog: 100_000,
            batch: 1_000,
            retry_after: Duration::from_millis(500),
            retention: Some(DAY * 30),
            sweep_every: MINUTE,
            max_sweep: 1_000,
        }
    }
}

/// The program's own log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogConfig {
    /// The least severe level that is logged.
    pub level: LogLevel,
    /// The format of its lines.
    pub format: LogFormat,
}

/// Severity of log messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names explain themselves")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// Format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

pub(super) fn database(fields: &Fields<'_>) -> Option<DatabaseSettings> {
    let url = fields.required("url", "url: \"sqlite:tollgate.db\"", database_url);
    let poll = fields.read("poll", duration(Duration::from_millis(10)..=MINUTE));
    let mut scope = Name::new(DEFAULT_SCOPE).ok();
    fields.set("scope", &mut scope, |input| Some(name(input)));
    Some(DatabaseSettings {
        cache: fields.read("cache", file("the path of a file")),
        url: url?,
        watch: WatchConfig { poll },
        scope: scope?,
    })
}

fn database_url(input: &Input<'_>) -> Option<Url> {
    let scalar = input.scalar("an address such as sqlite:tollgate.db")?;
    let url = Url::new(Secret::configured(scalar));
    let rest = url.expose().split_once(':').map_or("", |(_, rest)| rest);
    let is_database = match url.scheme() {
        "sqlite" => {
            let file = rest.strip_prefix("//").unwrap_or(rest);
            let file = file.split('?').next().unwrap_or_default();
            // What is only in memory would be lost.
            !file.is_empty() && !file.contains(":memory:") && !rest.contains("mode=memory")
        }
        "postgres" | "postgresql" => {
            rest.starts_with("//") && url.hosts().any(|host| !host.is_empty())
        }
        _ => false,
    };
    if !is_database || scalar.text.contains(char::is_control) {
        let help =
            "sqlite:FILE for one machine, or postgres://user:password@host/database for several";
        return input.reject("this is not the address of a database", help);
    }
    if !Encryption::of_url(url.expose()).has_known_mode() {
        let help = format!("use {}", listed(&SSL_MODES, "or"));
        return input.reject("there is no such sslmode", &help);
    }
    Some(url)
}

/// Whether there is to be an audit trail, and how.
pub(super) fn audit(fields: &Fields<'_>) -> Option<(bool, AuditConfig)> {
    let (mut enabled, mut audit) = (true, AuditConfig::default());
    fields.set("enabled", &mut enabled, boolean);
    let retention = or_word("forever", None, |input| {
        duration(HOUR..=DAY * 3_650)(input).map(Some)
    });
    fields.set("retention", &mut audit.retention, retention);
    fields.set("queue", &mut audit.max_backlog, number(100..=10_000_000));
    Some((enabled, audit))
}

pub(super) fn log(fields: &Fields<'_>) -> Option<LogConfig> {
    let mut log = LogConfig::default();
    let words = [
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("trace", LogLevel::Trace),
    ];
    fields.set("level", &mut log.level, choice(&words));
    let words = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    fields.set("format", &mut log.format, choice(&words));
    Some(log)
}

/// Where usage is stored.
#[derive(Clone, Debug)]
pub enum StoreConfig {
    /// In this process.
    Memory(MemoryConfig),
    /// In Redis or Valkey.
    Redis(Box<RedisSettings>),
}

/// Usage in Redis or Valkey.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// The address.
    pub url: Url,
    /// Deadlines, prefix and clock.
    pub config: RedisConfig,
    /// Handling of failures.
    pub shared: SharedConfig,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self::Memory(MemoryConfig::default())
    }
}

/// The store, and the locations of fields that have no effect with it.
pub(super) fn store(fields: &Fields<'_>) -> Option<(StoreConfig, Vec<Location>)> {
    let url = fields.read("redis", redis_url);
    // The fields that each of the two functions asks for are those of its store.
    let asked = |from: usize| fields.asked().split_off(from);
    let (config, shared) = redis(fields);
    let for_redis = asked(1);
    let memory = memory(fields);
    let for_memory = asked(1 + for_redis.len());
    let (store, others) = match (fields.has("redis"), url) {
        (false, _) => (StoreConfig::Memory(memory), for_redis),
        (true, url) => {
            let settings = RedisSettings {
                url: url?,
                config,
                shared,
            };
            (StoreConfig::Redis(Box::new(settings)), for_memory)
        }
    };
    let unused = others.into_iter().filter(|name| fields.has(name));
    let unused = unused.map(|name| fields.location_of(name)).collect();
    Some((store, unused))
}

fn memory(fields: &Fields<'_>) -> MemoryConfig {
    let mut config = MemoryConfig::default();
    fields.set("max_keys", &mut config.max_keys, number(1..=100_000_000));
    let entries = number(1..=1_000_000_000);
    fields.set("max_log_entries", &mut config.max_log_entries, entries);
    config
}

fn redis(fields: &Fields<'_>) -> (RedisConfig, SharedConfig) {
    let mut config = RedisConfig::default();
    let mut shared = SharedConfig::default();
    let time = duration(MILLISECOND..=MINUTE);
    fields.set("deadline", &mut config.deadline, &time);
    fields.set("connect_timeout", &mut config.connect_timeout, &time);
    fields.section("breaker", |fields| {
        let (breaker, time) = (&mut shared.breaker, duration(MILLISECOND..=DAY));
        fields.set("failures", &mut breaker.failures, number(1..=1_000));
        fields.set("within", &mut breaker.within, &time);
        fields.set("min_silence", &mut breaker.min_silence, &time);
        fields.set("open_for", &mut breaker.open_for, &time);
    });
    let instances = or_word("counted", Instances::counted(), |input| {
        number(1..=10_000)(input).map(Instances::Fixed)
    });
    fields.set("instances", &mut shared.instances, instances);
    fields.set("prefix", &mut config.prefix, |input| {
        Some(name(input)?.to_string())
    });
    config.clock = clock(fields);
    let remembered = &mut shared.remembered_denials;
    fields.set("remembered_denials", remembered, number(0..=10_000_000));
    (config, shared)
}

/// Whose time counts: that of Redis, or that of this process within a tolerance.
fn clock(fields: &Fields<'_>) -> RedisClock {
    let words = [("store", false), ("caller", true)];
    let is_callers = match fields.has("clock") {
        true => fields.read("clock", choice(&words)),
        false => Some(false),
    };
    let tolerance = fields.read("clock_tolerance", duration(MILLISECOND..=SECOND * 10));
    if is_callers == Some(true) {
        return RedisClock::Caller {
            clock: Clock::system(),
            tolerance: tolerance.unwrap_or(RedisClock::TOLERANCE),
        };
    }
    if is_callers == Some(false)
        && let Some(tolerance) = fields.get("clock_tolerance")
    {
        tolerance
            .error("this has no effect while the clock of the store counts")
            .help("add clock: caller, or remove it");
    }
    RedisClock::Server
}

/// The engine checks the address, without connecting.
fn redis_url(input: &Input<'_>) -> Option<Url> {
    let scalar = input.scalar("an address such as redis://127.0.0.1:6379")?;
    if RedisStore::open(&scalar.text, RedisConfig::default()).is_ok() {
        return Some(Url::new(Secret::configured(scalar)));
    }
    let help = "redis://[user:password@]host[:port][/db], rediss:// for TLS, unix:///path, \
                redis+sentinel://host,host/service or redis+cluster://host,host";
    input.reject("this is not the address of a Redis or Valkey server", help)
}
