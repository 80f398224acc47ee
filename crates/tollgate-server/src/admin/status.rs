//! The state of the program: its readiness for load balancers, and its status for operators.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tollgate::SharedStats;
use tollgate_config::{RulesFrom, StoreConfig};

use super::Program;
use crate::stalls::Stalls;

/// Below this share of decisions by Redis, limits are not reliably shared.
pub(crate) const MIN_STORE_SHARE: f64 = 0.99;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has no rules yet.
    #[default]
    Starting,
    /// It enforces limits.
    Ready,
    /// It is shutting down.
    Stopping,
}

#[derive(Debug)]
pub(crate) struct Health {
    started: Instant,
    pub(crate) stalls: Arc<Stalls>,
    stage: Mutex<Stage>,
    /// The database of the rules cannot be read.
    pub(crate) database_fails: AtomicBool,
    /// The audit trail cannot be written, or loses violations.
    pub(crate) audit_fails: AtomicBool,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            stalls: Arc::default(),
            stage: Mutex::default(),
            database_fails: AtomicBool::new(false),
            audit_fails: AtomicBool::new(false),
        }
    }
}

impl Health {
    pub(crate) fn set(&self, stage: Stage) {
        *self.stage.lock() = stage;
    }

    /// Whether the program is ready, and the state of its parts. It is ready even if the store or the database fails, because limits are still
    /// enforced.
    pub(super) fn report(&self, program: Option<&Program>) -> (bool, Value) {
        let (is_ready, stage) = match (*self.stage.lock(), program) {
            (Stage::Stopping, _) => (false, "stopping"),
            (Stage::Ready, Some(_)) => (true, "ready"),
            _ => (false, "starting"),
        };
        let mut report = json!({ "ready": is_ready, "stage": stage });
        if let Some(program) = program {
            report["parts"] = self.parts(program);
        }
        (is_ready, report)
    }

    fn parts(&self, program: &Program) -> Value {
        let live = program.decider.live().stats();
        let mut parts = json!({
            "rules": { "ok": !live.from_cache, "generation": live.generation, "from_cache": live.from_cache },
        });
        parts["store"] = match program.decider.limiter().shared_stats() {
            None => json!({ "ok": true, "kind": "memory" }),
            Some(shared) => redis(&shared),
        };
        if program.config.rules_from == RulesFrom::Database {
            let fails = self.database_fails.load(Relaxed) || live.from_cache;
            parts["database"] = json!({ "ok": !fails });
        }
        if let Some(trail) = program.decider.trail() {
            let stats = trail.stats();
            parts["audit"] = json!({
                "ok": !self.audit_fails.load(Relaxed),
                "backlog": stats.backlog,
                "lost": stats.lost,
            });
        }
        parts
    }

    /// The status of the program. It has no secrets.
    pub(super) fn status(&self, program: &Program) -> Value {
        let policy = program.decider.policy();
        let live = program.decider.live().stats();
        let (_, health) = self.report(Some(program));
        let longest_stall = self.stalls.longest(Instant::now());
        let listens = (program.listens.iter())
            .map(|(name, address)| json!({ "name": name, "address": address }));
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "uptime_seconds": self.started.elapsed().as_secs(),
            "listens": listens.collect::<Vec<_>>(),
            "health": health,
            "process": {
                "stalls": self.stalls.count(),
                "longest_stall_ms": longest_stall.as_secs_f64() * 1_000.0,
            },
            "rules": {
                "from": match program.config.rules_from {
                    RulesFrom::File => "file",
                    RulesFrom::Database => "database",
                },
                "generation": live.generation,
                "rules": policy.rules().rules().count(),
                "clients": policy.clients().len(),
                "refused": live.refused,
                "read_failures": live.failures,
            },
            "store": store(program),
        })
    }
}

/// Redis as this process sees it. The share is that of the decisions that Redis made in the last minute; `null` if there were none.
fn redis(shared: &SharedStats) -> Value {
    let share = shared.store_share();
    let is_shared = share.is_none_or(|share| share >= MIN_STORE_SHARE);
    json!({
        "ok": !shared.breaker_is_open && is_shared,
        "kind": "redis",
        "decided_by": if shared.breaker_is_open { "this process" } else { "the store" },
        "share_last_minute": share,
        "instances": shared.instances,
        "instances_assumed": shared.instances_are_assumed,
    })
}

fn store(program: &Program) -> Value {
    let limiter = program.decider.limiter();
    let mut store = match &program.config.store {
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
