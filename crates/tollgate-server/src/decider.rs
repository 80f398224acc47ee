//! The one way from a request to a decision, for every door of the program: the policy in force, the limiter, and whoever is to hear
//! of what was decided.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use tollgate::store::{RedisError, RedisStore};
use tollgate::{Decision, Dimension, Joint, Limiter, Met, Part, Request, Rule};
use tollgate_tower::TollgateLayer;
use tollgate_tower::layer::Observer;
use tollgate_tower::policy::{Head, Policy, Refusal};

use crate::audit::{Trail, Violation};
use crate::counters::{Decisions, Top};
use crate::live::Live;
use crate::traces::Tracer;
use tollgate_config::StoreConfig;

/// Decides about requests, and takes note of those it denies. A clone is the same door.
#[derive(Clone, Debug)]
pub struct Decider {
    live: Arc<Live>,
    limiter: Arc<Limiter>,
    notes: Arc<Notes>,
    tracer: Option<Tracer>,
}

/// Who is told of decisions.
#[derive(Debug)]
struct Notes {
    trail: Option<Trail>,
    decisions: Decisions,
    top: Top,
}

impl Decider {
    /// A door with this policy, over this store, with this trail if there is one.
    #[must_use]
    pub fn new(live: Live, limiter: Limiter, trail: Option<Trail>) -> Self {
        Self {
            live: Arc::new(live),
            limiter: Arc::new(limiter),
            notes: Arc::new(Notes {
                trail,
                decisions: Decisions::default(),
                top: Top::default(),
            }),
            tracer: None,
        }
    }

    /// The same, with traces of what is asked of it.
    #[must_use]
    pub(crate) fn with_tracer(mut self, tracer: Tracer) -> Self {
        self.tracer = Some(tracer);
        self
    }

    /// Who traces requests, if they are.
    #[must_use]
    pub(crate) fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_ref()
    }

    /// Decides about a request that came from `peer`, the other end of the connection.
    ///
    /// # Errors
    /// When it can be read in more than one way: such a request is to be refused.
    pub async fn decide(&self, head: &Head<'_>, peer: IpAddr) -> Result<Decision, Refusal> {
        let policy = self.policy();
        let view = policy.view(head, peer)?;
        Ok(self.decide_on(&policy, &view.request()).await)
    }

    /// Decides about a request that somebody else has seen, by this policy.
    pub async fn decide_on(&self, policy: &Policy, request: &Request<'_>) -> Decision {
        let met = policy.rules().meet(request);
        let decision = self.limiter.decide_on(&met).await;
        self.notes.decided(&met, &decision);
        decision
    }

    /// Decides about what is one call seen from several sides, all or none. `None` if they meet more buckets than can be taken from at once.
    pub async fn decide_together(&self, all: &[Met<'_>]) -> Option<Joint> {
        let joint = self.limiter.decide_together(all).await?;
        for (met, decision) in all.iter().zip(&joint.each) {
            self.notes.decided(met, decision);
        }
        Some(joint)
    }

    /// Gives back what a call took that cannot wait for its delay, and counts it as too late. The decision that is returned has the figures after
    /// that, if they are found within `look`.
    pub async fn turn_away(&self, all: &[Met<'_>], joint: Joint, look: Duration) -> Joint {
        self.limiter.refund_together(all, joint.clone()).await;
        let found = tokio::time::timeout(look, self.limiter.peek_together(all)).await;
        let joint = match found {
            Ok(Some(found)) => joint.given_back(&found),
            _ => joint,
        };
        self.notes.too_late(&joint.whole);
        joint
    }

    /// The same as middleware, which decides, makes wait and answers.
    #[must_use]
    pub fn layer(&self) -> TollgateLayer {
        let live = Arc::clone(&self.live);
        TollgateLayer::new(Arc::clone(&self.limiter))
            .policy_source(move || Arc::clone(&live.policy()))
            .observer(Arc::clone(&self.notes))
    }

    /// The policy in force. Whoever decides holds one throughout, whatever comes in force meanwhile.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.live.policy())
    }

    /// How policies come in force.
    #[must_use]
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// What counts.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Where denials are noted, if they are.
    #[must_use]
    pub fn trail(&self) -> Option<&Trail> {
        self.notes.trail.as_ref()
    }

    /// How many decisions there were.
    #[must_use]
    pub fn decisions(&self) -> &Decisions {
        &self.notes.decisions
    }

    /// Who is denied most often.
    #[must_use]
    pub fn top(&self) -> &Top {
        &self.notes.top
    }
}

impl Observer for Notes {
    fn decided(&self, met: &Met<'_>, decision: &Decision) {
        self.decisions.count(decision);
        if decision.allowed() {
            return;
        }
        if let Some(tier) = decision.tier() {
            self.top.count(met, tier.rule());
        }
        if let Some(trail) = &self.trail {
            note(trail, met, decision);
        }
    }

    fn too_late(&self, decision: &Decision) {
        self.decisions.count_too_late(decision);
    }
}

/// The limiter that is configured.
///
/// # Errors
/// When the address of the store, or what goes with it, cannot be right. It is not connected to yet.
pub fn limiter(store: &StoreConfig) -> Result<Limiter, RedisError> {
    match store {
        StoreConfig::Memory(config) => Ok(Limiter::in_memory_with(config.clone())),
        StoreConfig::Redis(redis) => {
            let store = RedisStore::open(redis.url.expose(), redis.config.clone())?;
            Ok(Limiter::over(store, redis.shared))
        }
    }
}

fn note(trail: &Trail, met: &Met<'_>, decision: &Decision) {
    let Some(tier) = decision.tier() else { return };
    let mut rules = met.rules().iter();
    let Some(rule) = rules.find(|rule| rule.id() == tier.rule()) else {
        return;
    };
    let values = bucket_values(met, rule);
    let per: Vec<(&str, &str)> = (values.iter())
        .map(|(dimension, value)| (&**dimension, &**value))
        .collect();
    trail.note(&Violation {
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

/// What tells the bucket apart that a request meets under a rule, for people: `client` and `merchant_123`, say.
pub(crate) fn bucket_values<'a>(
    met: &'a Met<'_>,
    rule: &'a Rule,
) -> Vec<(Cow<'static, str>, Cow<'a, str>)> {
    let bucket = met.bucket(rule);
    let named = |part: Part<'a>| (name(part.dimension), value(&part));
    bucket.parts().map(named).collect()
}

/// What a dimension is called where its values are shown.
pub(crate) fn name(dimension: Dimension) -> Cow<'static, str> {
    match dimension {
        Dimension::Client => "client".into(),
        Dimension::Ip => "ip".into(),
        Dimension::Route => "route".into(),
        Dimension::Method => "method".into(),
        Dimension::Plan => "plan".into(),
        Dimension::Attribute(name) => name.as_str().into(),
        other => other.to_string().into(),
    }
}

/// Addresses are bytes in a bucket, and everything else is text.
fn value<'a>(part: &Part<'a>) -> Cow<'a, str> {
    let Some(value) = part.value else {
        return "-".into();
    };
    if part.dimension != Dimension::Ip {
        return String::from_utf8_lossy(value);
    }
    let v4 = <[u8; 4]>::try_from(value).map(|octets| IpAddr::from(Ipv4Addr::from(octets)));
    let v6 = || <[u8; 16]>::try_from(value).map(|octets| IpAddr::from(Ipv6Addr::from(octets)));
    match v4.or_else(|_| v6()) {
        Ok(ip) => ip.to_string().into(),
        Err(_) => "-".into(),
    }
}
