//! What goes on, in one document for people and programs.

use std::time::Instant;

use serde_json::{Value, json};

use super::{Health, Inside};
use tollgate_config::{RulesFrom, StoreConfig};

/// Everything; secrets are not among it.
pub(super) fn status(health: &Health, inside: &Inside) -> Value {
    let policy = inside.decider.policy();
    let live = inside.decider.live().stats();
    let (_, report) = health.report(Some(inside));
    let longest_stall = health.stalls.longest(Instant::now());
    let listens = inside
        .listens
        .iter()
        .map(|(name, at)| json!({ "name": name, "address": at }));
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "uptime_seconds": health.started.elapsed().as_secs(),
        "listens": listens.collect::<Vec<_>>(),
        "health": report,
        "process": {
            "stalls": health.stalls.count(),
            "longest_stall_ms": longest_stall.as_secs_f64() * 1_000.0,
        },
        "rules": {
            "from": match inside.config.rules_from {
                RulesFrom::File => "file",
                RulesFrom::Database => "database",
            },
            "generation": live.generation,
            "rules": policy.rules().rules().count(),
            "clients": policy.clients().len(),
            "refused": live.refused,
            "read_failures": live.failures,
        },
        "store": store(inside),
    })
}

fn store(inside: &Inside) -> Value {
    let limiter = inside.decider.limiter();
    let mut store = match &inside.config.store {
        StoreConfig::Memory(_) => json!({ "kind": "memory" }),
        StoreConfig::Redis(redis) => json!({ "kind": "redis", "address": redis.url.to_string() }),
    };
    if let Some(memory) = limiter.memory_stats() {
        store["keys"] = memory.keys.into();
        store["live_keys"] = memory.live_keys.into();
    }
    if let Some(shared) = limiter.shared_stats() {
        store["breaker_open"] = shared.breaker_is_open.into();
        store["decisions_by_store"] = shared.by_store.into();
        store["decisions_remembered"] = shared.remembered.into();
        store["decisions_by_fallback"] = shared.by_fallback.into();
        store["missed_deadlines"] = shared.missed_deadlines.into();
        store["share_last_minute"] = shared.store_share().into();
        store["instances"] = shared.instances.into();
        store["instances_assumed"] = shared.instances_are_assumed.into();
    }
    store
}
