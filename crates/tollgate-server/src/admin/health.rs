//! How the program is, in words for who asks whether to send it requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::time::Instant;

use serde_json::{Value, json};
use tollgate::SharedStats;

use super::Inside;
use crate::stalls::Stalls;
use tollgate_config::RulesFrom;

/// Below this share of decisions by Redis, limits are not reliably shared.
pub(crate) const LEAST_SHARE: f64 = 0.99;

/// How far the program has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It has no rules yet.
    Starting,
    /// Limits are enforced.
    Ready,
    /// It is about to end.
    Stopping,
}

/// How the program is.
#[derive(Debug)]
pub struct Health {
    pub(super) started: Instant,
    /// Stalls of this process.
    pub(crate) stalls: Arc<Stalls>,
    stage: AtomicU8,
    /// The database of the rules cannot be read.
    pub(crate) database_fails: AtomicBool,
    /// The audit trail cannot be written, or loses something.
    pub(crate) audit_fails: AtomicBool,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            stalls: Arc::default(),
            stage: AtomicU8::new(Stage::Starting as u8),
            database_fails: AtomicBool::new(false),
            audit_fails: AtomicBool::new(false),
        }
    }
}

impl Health {
    /// From now on it is like this.
    pub fn set(&self, stage: Stage) {
        self.stage.store(stage as u8, Relaxed);
    }

    /// How far it has come.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self.stage.load(Relaxed) {
            0 => Stage::Starting,
            1 => Stage::Ready,
            _ => Stage::Stopping,
        }
    }

    /// Whether requests are welcome, and how each part is. A store or database that fails is no reason to say no: the limits go on.
    pub(super) fn report(&self, inside: Option<&Inside>) -> (bool, Value) {
        let (is_ready, stage) = match (self.stage(), inside) {
            (Stage::Stopping, _) => (false, "stopping"),
            (Stage::Ready, Some(_)) => (true, "ready"),
            _ => (false, "starting"),
        };
        let mut report = json!({ "ready": is_ready, "stage": stage });
        if let Some(inside) = inside {
            report["parts"] = self.parts(inside);
        }
        (is_ready, report)
    }

    fn parts(&self, inside: &Inside) -> Value {
        let live = inside.decider.live().stats();
        let mut parts = json!({
            "rules": { "ok": !live.from_cache, "generation": live.generation, "from_cache": live.from_cache },
        });
        parts["store"] = match inside.decider.limiter().shared_stats() {
            None => json!({ "ok": true, "kind": "memory" }),
            Some(shared) => redis(&shared),
        };
        if inside.config.rules_from == RulesFrom::Database {
            let is_away = self.database_fails.load(Relaxed) || live.from_cache;
            parts["database"] = json!({ "ok": !is_away });
        }
        if let Some(trail) = inside.decider.trail() {
            let stats = trail.stats();
            parts["audit"] = json!({
                "ok": !self.audit_fails.load(Relaxed),
                "backlog": stats.backlog,
                "lost": stats.lost,
            });
        }
        parts
    }
}

/// Redis as this process sees it. The share is that of the last minute's decisions which Redis took; `null` if there were none.
fn redis(shared: &SharedStats) -> Value {
    let share = shared.store_share();
    let is_shared = share.is_none_or(|share| share >= LEAST_SHARE);
    json!({
        "ok": !shared.breaker_is_open && is_shared,
        "kind": "redis",
        "decided_by": if shared.breaker_is_open { "this process" } else { "the store" },
        "share_last_minute": share,
        "instances": shared.instances,
        "instances_assumed": shared.instances_are_assumed,
    })
}
