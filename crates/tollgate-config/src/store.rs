//! The store of usage: this process's memory, or Redis.

use tollgate::store::{MemoryConfig, RedisClock, RedisConfig, RedisStore};
use tollgate::{Clock, Instances, SharedConfig};

use super::secret::{Secret, Url};
use super::values::{DAY, MILLISECOND, MINUTE, SECOND, name};
use crate::document::Location;
use crate::document::reading::{Fields, Input, choice, duration, number, or_word};

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
    let url = fields.read("redis", url);
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
fn url(input: &Input<'_>) -> Option<Url> {
    let scalar = input.scalar("an address such as redis://127.0.0.1:6379")?;
    if RedisStore::open(&scalar.text, RedisConfig::default()).is_ok() {
        return Some(Url::new(Secret::configured(scalar)));
    }
    let help = "redis://[user:password@]host[:port][/db], rediss:// for TLS, unix:///path, \
                redis+sentinel://host,host/service or redis+cluster://host,host";
    input.reject("this is not the address of a Redis or Valkey server", help)
}
