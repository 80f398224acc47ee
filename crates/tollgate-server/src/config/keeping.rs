//! What is kept beside usage: rules and violations in a database, and the log.

use std::path::PathBuf;
use std::time::Duration;

use tollgate::Name;

use super::secret::{Secret, Url};
use super::values::name;
use crate::document::reading::{Fields, Place, choice, duration, number, text, truth};
use crate::document::{Problems, Spot};

pub(super) const DATABASE: &[&str] = &["url", "poll", "scope", "cache"];
pub(super) const AUDIT: &[&str] = &["enabled", "retention", "queue"];
pub(super) const LOG: &[&str] = &["level", "format"];

/// The database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseConfig {
    /// `sqlite:FILE` or `postgres://…`.
    pub url: Url,
    /// How often to look for changes that nobody told of.
    pub poll: Duration,
    /// Whose rules these are, if several share the database.
    pub scope: Name,
    /// Where to keep the last good rules, for a start while the database is away.
    pub cache: Option<PathBuf>,
}

/// The record of violations. It is kept in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// How long rows are kept.
    pub retention: Duration,
    /// How many rows may wait to be written; more are counted and dropped.
    pub queue: usize,
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

pub(super) fn database(place: &Place<'_>, problems: &mut Problems) -> Option<DatabaseConfig> {
    let fields = Fields::of(place, DATABASE, problems)?;
    let url = fields.required("url", "url: \"sqlite:tollgate.db\"", problems, url);
    let poll = Duration::from_millis(100)..=Duration::from_secs(3_600);
    let poll = fields.or("poll", Duration::from_secs(1), problems, duration(poll));
    let scope = match fields.has("scope") {
        true => fields.optional("scope", problems, name),
        false => Name::new("default").ok(),
    };
    let cache = fields.optional("cache", problems, text(4_096, "the path of a file"));
    Some(DatabaseConfig {
        url: url?,
        poll,
        scope: scope?,
        cache: cache.map(PathBuf::from),
    })
}

fn url(place: &Place<'_>, problems: &mut Problems) -> Option<Url> {
    let scalar = place.scalar("an address such as sqlite:tollgate.db", problems)?;
    let url = Url::new(Secret::new(
        scalar.text.clone(),
        !scalar.is_from_environment(),
    ));
    let rest = url.expose().split_once(':').map_or("", |(_, rest)| rest);
    let is_there = match url.scheme() {
        "sqlite" => !rest.trim_start_matches('/').is_empty(),
        "postgres" | "postgresql" => {
            rest.starts_with("//") && url.hosts().any(|host| !host.is_empty())
        }
        _ => false,
    };
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

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            retention: DAY * 30,
            queue: 10_000,
        }
    }
}

pub(super) fn audit(place: &Place<'_>, problems: &mut Problems) -> Option<AuditDraft> {
    let fields = Fields::of(place, AUDIT, problems)?;
    let default = AuditConfig::default();
    let retention = Duration::from_secs(3_600)..=DAY * 3_650;
    let queue = fields.optional("queue", problems, number(100..=1_000_000));
    Some(AuditDraft {
        spot: place.spot(),
        enabled: fields.or("enabled", true, problems, truth),
        config: AuditConfig {
            retention: fields.or(
                "retention",
                default.retention,
                problems,
                duration(retention),
            ),
            queue: queue
                .and_then(|n| usize::try_from(n).ok())
                .unwrap_or(default.queue),
        },
    })
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
