//! What is kept beside usage: rules and violations in a database, and the log.

use std::path::PathBuf;
use std::time::Duration;

use tollgate::Name;

use super::secret::{Secret, Url};
use super::values::name;
use crate::document::reading::{Fields, Place, choice, duration, listed, number, text, truth};
use crate::document::{Problems, Spot};
use crate::encryption::{Encryption, SSL_MODES};

/// The scope of a database that several installations do not share.
pub const DEFAULT_SCOPE: &str = "default";

pub(super) const DATABASE: &[&str] = &["url", "poll", "scope", "cache"];
pub(super) const AUDIT: &[&str] = &["enabled", "retention", "queue"];
pub(super) const LOG: &[&str] = &["level", "format"];

/// The database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseSettings {
    /// `sqlite:FILE` or `postgres://…`.
    pub url: Url,
    /// How to look for changes.
    pub watch: WatchConfig,
    /// Whose rules these are, if several share the database.
    pub scope: Name,
    /// Where to keep the last good rules, for a start while the database is away.
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

/// How the database is watched for changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchConfig {
    /// How often to read the generation counter, at least 10 ms and at most 60 s. By default every 30 s in PostgreSQL, which
    /// notifies of changes, and every 500 ms in SQLite, which cannot.
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
    pub most_folds: usize,
    /// Maximum number of rows that wait while the database is unavailable.
    pub most_backlog: usize,
    /// Maximum number of rows that are written at once.
    pub batch: usize,
    /// Pause before a failed write is tried again.
    pub retry_after: Duration,
    /// How long to keep violations; `None`: no limit.
    pub retention: Option<Duration>,
    /// How often to remove older ones.
    pub sweep_every: Duration,
    /// Maximum number of rows that are removed at once, which bounds how long others wait.
    pub sweep_at_most: u32,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            scope: DEFAULT_SCOPE.to_owned(),
            collect_every: Duration::from_secs(1),
            most_folds: 32_768,
            most_backlog: 100_000,
            batch: 1_000,
            retry_after: Duration::from_millis(500),
            retention: Some(Duration::from_secs(30 * 86_400)),
            sweep_every: Duration::from_secs(60),
            sweep_at_most: 1_000,
        }
    }
}

/// The log of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogConfig {
    /// From which level on.
    pub level: LogLevel,
    /// In which form.
    pub format: LogFormat,
}

/// From which level on to log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
}

const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn database(place: &Place<'_>, problems: &mut Problems) -> Option<DatabaseSettings> {
    let fields = Fields::of(place, DATABASE, problems)?;
    let url = fields.required("url", "url: \"sqlite:tollgate.db\"", problems, url);
    let poll = duration(Duration::from_millis(10)..=Duration::from_secs(60));
    let poll = fields.optional("poll", problems, poll);
    let scope = match fields.has("scope") {
        true => fields.optional("scope", problems, name),
        false => Name::new(DEFAULT_SCOPE).ok(),
    };
    let cache = fields.optional("cache", problems, text(4_096, "the path of a file"));
    Some(DatabaseSettings {
        url: url?,
        watch: WatchConfig { poll },
        scope: scope?,
        cache: cache.map(PathBuf::from),
    })
}

fn url(place: &Place<'_>, problems: &mut Problems) -> Option<Url> {
    let scalar = place.scalar("an address such as sqlite:tollgate.db", problems)?;
    let url = Url::new(Secret::configured(
        scalar.text.clone(),
        !scalar.is_from_environment(),
    ));
    let rest = url.expose().split_once(':').map_or("", |(_, rest)| rest);
    let is_there = match url.scheme() {
        // What is only in memory is lost.
        "sqlite" => {
            let file = rest.strip_prefix("//").unwrap_or(rest);
            let file = file.split('?').next().unwrap_or_default();
            !file.is_empty() && !file.contains(":memory:") && !rest.contains("mode=memory")
        }
        "postgres" | "postgresql" => {
            rest.starts_with("//") && url.hosts().any(|host| !host.is_empty())
        }
        _ => false,
    };
    if is_there && !Encryption::of_url(url.expose()).has_known_mode() {
        place
            .error(problems, "there is no such sslmode")
            .help(format!("use {}", listed(&SSL_MODES, "or")));
        return None;
    }
    if is_there && !scalar.text.contains(char::is_control) {
        return Some(url);
    }
    place
        .error(problems, "this is not the address of a database")
        .help("sqlite:FILE for one machine, or postgres://user:password@host/database for several");
    None
}

/// What was said of the audit trail.
#[derive(Debug)]
pub(super) struct AuditDraft {
    pub(super) spot: Spot,
    pub(super) enabled: bool,
    pub(super) config: AuditConfig,
}

pub(super) fn audit(place: &Place<'_>, problems: &mut Problems) -> Option<AuditDraft> {
    let fields = Fields::of(place, AUDIT, problems)?;
    let default = AuditConfig::default();
    let queue = fields.optional("queue", problems, number(100..=10_000_000));
    Some(AuditDraft {
        spot: place.spot(),
        enabled: fields.or("enabled", true, problems, truth),
        config: AuditConfig {
            retention: fields.or("retention", default.retention, problems, retention),
            most_backlog: queue
                .and_then(|n| usize::try_from(n).ok())
                .unwrap_or(default.most_backlog),
            ..default
        },
    })
}

fn retention(place: &Place<'_>, problems: &mut Problems) -> Option<Option<Duration>> {
    if place.peek().is_some_and(|scalar| scalar.text == "forever") {
        return Some(None);
    }
    let range = Duration::from_secs(3_600)..=DAY * 3_650;
    duration(range)(place, problems).map(Some)
}

pub(super) fn log(place: &Place<'_>, problems: &mut Problems) -> Option<LogConfig> {
    let fields = Fields::of(place, LOG, problems)?;
    let levels = [
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("trace", LogLevel::Trace),
    ];
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    Some(LogConfig {
        level: fields.or("level", LogLevel::default(), problems, choice(&levels)),
        format: fields.or("format", LogFormat::default(), problems, choice(&formats)),
    })
}
