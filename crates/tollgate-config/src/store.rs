//! Where usage is kept.

use std::time::Duration;

use tollgate::store::{MemoryConfig, RedisClock, RedisConfig, RedisStore};
use tollgate::{BreakerConfig, Clock, Instances, SharedConfig};

use super::secret::{Secret, Url};
use super::values::name;
use crate::document::reading::{Fields, Place, choice, duration, number, shown};
use crate::document::{Problems, Spot};

pub(super) const STORE: &[&str] = &[
    "redis",
    "deadline",
    "connect_timeout",
    "breaker",
    "instances",
    "prefix",
    "clock",
    "clock_tolerance",
    "remembered_denials",
    "max_keys",
    "max_log_entries",
];
pub(super) const BREAKER: &[&str] = &["failures", "within", "min_silence", "open_for"];

/// The fields that say something about Redis, and those that say something about memory.
const FOR_REDIS: [&str; 8] = [
    "deadline",
    "connect_timeout",
    "breaker",
    "instances",
    "prefix",
    "clock",
    "clock_tolerance",
    "remembered_denials",
];
const FOR_MEMORY: [&str; 2] = ["max_keys", "max_log_entries"];

/// Where usage is kept.
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
    /// Where it is.
    pub url: Url,
    /// How to talk to it.
    pub config: RedisConfig,
    /// What to do when it fails.
    pub shared: SharedConfig,
}

/// The store, and where it was said, for warnings.
#[derive(Debug)]
pub(super) struct StoreDraft {
    pub(super) store: StoreConfig,
    pub(super) url_spot: Spot,
    /// Fields that change nothing.
    pub(super) idle: Vec<Spot>,
}

impl Default for StoreDraft {
    fn default() -> Self {
        Self {
            store: StoreConfig::Memory(MemoryConfig::default()),
            url_spot: Spot::default(),
            idle: Vec::new(),
        }
    }
}

pub(super) fn store(place: &Place<'_>, problems: &mut Problems) -> Option<StoreDraft> {
    let fields = Fields::of(place, STORE, problems)?;
    let idle: &[&str] = match fields.has("redis") {
        true => &FOR_MEMORY,
        false => &FOR_REDIS,
    };
    let idle = idle.iter().filter(|name| fields.has(name));
    let idle = idle.map(|name| fields.spot_of(name)).collect();
    let memory = memory(&fields, problems);
    let (config, shared) = (redis(&fields, problems), shared(&fields, problems));
    let url = fields.optional("redis", problems, url);
    let store = match (fields.has("redis"), url) {
        (false, _) => StoreConfig::Memory(memory),
        (true, Some(url)) => StoreConfig::Redis(Box::new(RedisSettings {
            url,
            config,
            shared,
        })),
        (true, None) => return None,
    };
    Some(StoreDraft {
        store,
        url_spot: fields.spot_of("redis"),
        idle,
    })
}

fn memory(fields: &Fields<'_>, problems: &mut Problems) -> MemoryConfig {
    let default = MemoryConfig::default();
    let mut count = |name, default: usize, most| {
        let said = fields.optional(name, problems, number(1..=most));
        said.map_or(default, |n| usize::try_from(n).unwrap_or(default))
    };
    MemoryConfig {
        max_keys: count("max_keys", default.max_keys, 100_000_000),
        max_log_entries: count("max_log_entries", default.max_log_entries, 1_000_000_000),
        ..default
    }
}

fn redis(fields: &Fields<'_>, problems: &mut Problems) -> RedisConfig {
    let default = RedisConfig::default();
    let time = |most| duration(Duration::from_millis(1)..=Duration::from_secs(most));
    RedisConfig {
        prefix: fields
            .optional("prefix", problems, name)
            .map_or(default.prefix.clone(), |name| name.to_string()),
        clock: clock(fields, problems),
        deadline: fields.or("deadline", default.deadline, problems, time(60)),
        connect_timeout: fields.or(
            "connect_timeout",
            default.connect_timeout,
            problems,
            time(60),
        ),
        ..default
    }
}

/// Whose time counts: Redis's, or that of this process, as far as it may be behind.
fn clock(fields: &Fields<'_>, problems: &mut Problems) -> RedisClock {
    let whose = [("store", false), ("caller", true)];
    let is_callers = fields.optional("clock", problems, choice(&whose));
    let range = Duration::from_millis(1)..=Duration::from_secs(10);
    let said = fields.optional("clock_tolerance", problems, duration(range));
    if is_callers == Some(true) {
        return RedisClock::Caller {
            clock: Clock::system(),
            tolerance: said.unwrap_or(RedisClock::TOLERANCE),
        };
    }
    // Where the clock was said and cannot be read, the tolerance may be right.
    let is_the_stores = is_callers == Some(false) || !fields.has("clock");
    if let Some(tolerance) = fields.get("clock_tolerance").filter(|_| is_the_stores) {
        tolerance
            .error(
                problems,
                "it is about the callers' clocks, and the store's counts",
            )
            .help("say clock: caller as well, or leave the tolerance out");
    }
    RedisClock::Server
}

fn shared(fields: &Fields<'_>, problems: &mut Problems) -> SharedConfig {
    let default = SharedConfig::default();
    let denials = fields.optional("remembered_denials", problems, number(0..=10_000_000));
    SharedConfig {
        instances: fields.or("instances", default.instances, problems, instances),
        breaker: fields.or("breaker", default.breaker, problems, breaker),
        remembered_denials: denials
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(default.remembered_denials),
    }
}

fn breaker(place: &Place<'_>, problems: &mut Problems) -> Option<BreakerConfig> {
    let fields = Fields::of(place, BREAKER, problems)?;
    let default = BreakerConfig::default();
    let time = || duration(Duration::from_millis(1)..=Duration::from_secs(86_400));
    let failures = fields.optional("failures", problems, number(1..=1_000));
    Some(BreakerConfig {
        failures: failures.map_or(default.failures, |n| u32::try_from(n).unwrap_or(u32::MAX)),
        within: fields.or("within", default.within, problems, time()),
        min_silence: fields.or("min_silence", default.min_silence, problems, time()),
        open_for: fields.or("open_for", default.open_for, problems, time()),
    })
}

fn instances(place: &Place<'_>, problems: &mut Problems) -> Option<Instances> {
    let scalar = place.scalar("a number of processes, or counted", problems)?;
    if scalar.text == "counted" {
        return Some(Instances::counted());
    }
    if scalar.text.starts_with(|c: char| c.is_ascii_digit()) {
        let many = number(1..=10_000)(place, problems)?;
        return Some(Instances::Fixed(u32::try_from(many).unwrap_or(u32::MAX)));
    }
    let message = format!(
        "{} is neither a number of processes nor counted",
        shown(scalar)
    );
    place.error(problems, message);
    None
}

/// The engine itself says whether it could connect there. It does not try.
fn url(place: &Place<'_>, problems: &mut Problems) -> Option<Url> {
    let scalar = place.scalar("an address such as redis://127.0.0.1:6379", problems)?;
    let said = &scalar.text;
    match RedisStore::open(said, RedisConfig::default()) {
        Ok(_) => Some(Url::new(Secret::configured(
            said.clone(),
            !scalar.is_from_environment(),
        ))),
        Err(_) => {
            place
                .error(problems, "this is not the address of a Redis or Valkey")
                .help(
                    "redis://[user:password@]host[:port][/db], rediss:// for TLS, unix:///path, \
                     redis+sentinel://host,host/service or redis+cluster://host,host",
                );
            None
        }
    }
}
