//! The database of rules and violations, the audit trail, and the log.

use std::path::PathBuf;
use std::time::Duration;

use tollgate::Name;

use super::secret::{Secret, Url};
use super::values::{DAY, HOUR, MINUTE, file, name};
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
    let url = fields.required("url", "url: \"sqlite:tollgate.db\"", url);
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

fn url(input: &Input<'_>) -> Option<Url> {
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
