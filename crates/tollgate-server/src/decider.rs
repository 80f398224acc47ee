//! The one way from a request to a decision, for all listeners: the policy in force, the limiter, and the records of decisions.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tollgate::store::{MemoryStore, RedisError, RedisStore};
use tollgate::{Decision, Dimension, JointDecision, Limiter, MatchedRules, Part, Rule};
use tollgate_config::StoreConfig;
use tollgate_tower::TollgateLayer;
use tollgate_tower::layer::Observer;
use tollgate_tower::policy::Policy;

use crate::audit::{Trail, Violation};
use crate::counters::{Decisions, TopDenied};
use crate::live::Live;
use crate::traces::Tracer;

/// Decides about requests and records the decisions. Clones share everything.
#[derive(Clone, Debug)]
pub struct Decider {
    live: Arc<Live>,
    limiter: Arc<Limiter>,
    records: Arc<Records>,
    tracer: Option<Tracer>,
}

#[derive(Debug)]
struct Records {
    trail: Option<Trail>,
    decisions: Decisions,
    top: TopDenied,
}

impl Decider {
    /// A decider with this policy and limiter, which records denials in this audit trail.
    #[must_use]
    pub fn new(live: Live, limiter: Limiter, trail: Option<Trail>) -> Self {
        Self {
            live: Arc::new(live),
            limiter: Arc::new(limiter),
            records: Arc::new(Records {
                trail,
                decisions: Decisions::default(),
                top: TopDenied::default(),
            }),
            tracer: None,
        }
    }

    #[must_use]
    pub(crate) fn with_tracer(mut self, tracer: Tracer) -> Self {
        self.tracer = Some(tracer);
        self
    }

    pub(crate) fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_ref()
    }

    /// Decides about a request by the rules that it matches.
    pub async fn decide_on(&self, met: &MatchedRules<'_>) -> Decision {
        let decision = self.limiter.matched(met).decide().await;
        self.records.decided(met, &decision);
        decision
    }

    /// Decides about several descriptions of one call, all or none. `None` if they match more buckets than can be charged at once.
    pub(crate) async fn decide_together(&self, all: &[MatchedRules<'_>]) -> Option<JointDecision> {
        let joint = self.limiter.all_of(all).ok()?.decide().await;
        for (met, decision) in all.iter().zip(&joint.each) {
            self.records.decided(met, decision);
        }
        Some(joint)
    }

    /// Refunds a call that cannot wait for its delay, and counts it as too late. The returned decision has the figures after the refund, if
    /// the store makes it and reports them within `timeout`; a refund that takes longer goes on by itself.
    pub(crate) async fn turn_away(
        &self,
        all: &[MatchedRules<'_>],
        joint: JointDecision,
        timeout: Duration,
    ) -> JointDecision {
        let Ok(check) = self.limiter.all_of(all) else {
            return joint;
        };
        let refunded = async {
            check.refund(joint.clone()).await;
            check.peek().await
        };
        let joint = match tokio::time::timeout(timeout, refunded).await {
            Ok(after) => joint.after_refund(&after),
            Err(_) => joint,
        };
        self.records.too_late(&joint.whole);
        joint
    }

    /// The decider as middleware, which decides, delays and denies.
    pub(crate) fn layer(&self) -> TollgateLayer {
        let live = Arc::clone(&self.live);
        TollgateLayer::new(Arc::clone(&self.limiter))
            .policy_source(move || Arc::clone(&live.policy()))
            .observer(Arc::clone(&self.records))
    }

    /// The policy in force. A request is decided by one policy, whatever comes into force meanwhile.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.live.policy())
    }

    /// How the policy comes into force.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// The limiter.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// The audit trail.
    pub fn trail(&self) -> Option<&Trail> {
        self.records.trail.as_ref()
    }

    pub(crate) fn decisions(&self) -> &Decisions {
        &self.records.decisions
    }

    pub(crate) fn top_denied(&self) -> &TopDenied {
        &self.records.top
    }
}

impl Observer for Records {
    fn decided(&self, met: &MatchedRules<'_>, decision: &Decision) {
        self.decisions.count(decision);
        if decision.allowed() {
            return;
        }
        if let Some(tier) = decision.tier() {
            self.top.count(met, tier.rule());
        }
        if let Some(trail) = &self.trail {
            record_violation(trail, met, decision);
        }
    }

    fn too_late(&self, decision: &Decision) {
        self.decisions.count_too_late(decision);
    }
}

/// The configured limiter.
///
/// # Errors
/// When the address or the options of the store are invalid. It is not connected to yet.
pub fn limiter(store: &StoreConfig) -> Result<Limiter, RedisError> {
    match store {
        StoreConfig::Memory(config) => Ok(Limiter::new(MemoryStore::with_config(config.clone()))),
        StoreConfig::Redis(redis) => {
            let store = RedisStore::open(redis.url.expose(), redis.config.clone())?;
            Ok(Limiter::builder(store).shared(redis.shared).build())
        }
    }
}

fn record_violation(trail: &Trail, met: &MatchedRules<'_>, decision: &Decision) {
    let Some(tier) = decision.tier() else { return };
    let mut rules = met.rules().iter();
    let Some(rule) = rules.find(|rule| rule.id() == tier.rule()) else {
        return;
    };
    let values = bucket_values(met, rule);
    let per: Vec<_> = values
        .iter()
        .map(|(name, value)| (*name, &**value))
        .collect();
    trail.record(&Violation {
        rule: rule.id().as_str(),
        per: &per,
        plan: met.plan(),
        client: met.client(),
        ip: met.ip(),
        method: met.method(),
        route: met.route(),
        at: decision.at(),
        remaining: tier.remaining(),
        cost: met.cost(),
        source: decision.source(),
        generation: decision.generation(),
    });
}

/// The dimensions and values that identify a request's bucket of a rule, such as `client` and `merchant_123`.
pub(crate) fn bucket_values<'a>(
    met: &'a MatchedRules<'_>,
    rule: &'a Rule,
) -> Vec<(&'static str, Cow<'a, str>)> {
    let named = |part: Part<'a>| {
        let value = match (part.dimension, part.value) {
            (_, None) => "-".into(),
            // In the bucket, it is bytes.
            (Dimension::Ip, _) => met.ip().map_or("-".into(), |ip| ip.to_string().into()),
            (_, Some(text)) => String::from_utf8_lossy(text),
        };
        (dimension_name(part.dimension), value)
    };
    met.bucket(rule).parts().map(named).collect()
}

pub(crate) fn dimension_name(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Client => "client",
        Dimension::Ip => "ip",
        Dimension::Route => "route",
        Dimension::Method => "method",
        Dimension::Plan => "plan",
        Dimension::Attribute(name) => name.as_str(),
        // No rule counts by any other.
        _ => "key",
    }
}
