//! Several requests that pass together or not at all: Envoy's descriptors, which describe one call from several sides.

use std::fmt;

use smallvec::SmallVec;

use super::charge_target::{Charges, charges};
use crate::bucket::Bucket;
use crate::decision::{Decision, Tier, TierList};
#[cfg(feature = "redis")]
use crate::rule::OnFailure;
use crate::rule::{MatchedRules, MatchedView};
use crate::store::Charge;
#[cfg(feature = "redis")]
use std::time::Duration;

/// The decision about several requests that pass together or not at all: see [`Limiter::all_of`](crate::Limiter::all_of).
///
/// ```
/// use tollgate::{Dimension, LocalLimiter, Request, Rule, RuleSet};
///
/// let rules = RuleSet::new([Rule::new("client", "1/h burst 2".parse()?)?.per([Dimension::Client])])?;
/// let (small, large) = (Request::new().client("a"), Request::new().client("b").cost(3));
/// let matched = [rules.matching(&small), rules.matching(&large)];
/// let joint = LocalLimiter::new().all_of(&matched)?.decide();
/// assert!(!joint.whole.allowed());
/// assert!(joint.each[0].allowed() && !joint.each[1].allowed());
/// assert_eq!(joint.each[0].remaining(), Some(2), "nothing was charged");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a denial that is ignored limits nothing"]
#[non_exhaustive]
pub struct JointDecision {
    /// The decision about all requests, with every bucket once. They pass if it [allows](Decision::allowed) them.
    pub whole: Decision,
    /// One decision for each request, by its own buckets. Of a [remembered](crate::Source::Remembered) denial, only the request that
    /// met it has a tier.
    pub each: Vec<Decision>,
}

impl JointDecision {
    /// This decision after what it charged was given back, with the figures that `now` found: see [`Decision::after_refund`].
    pub fn after_refund(self, now: &Self) -> Self {
        let each = self.each.into_iter().zip(&now.each);
        Self {
            whole: self.whole.after_refund(&now.whole),
            each: each
                .map(|(decision, now)| decision.after_refund(now))
                .collect(),
        }
    }
}

/// The largest number of buckets that a store charges in one step.
const MAX_BUCKETS: usize = 255;

/// More buckets than can be charged in one atomic step.
///
/// ```
/// use tollgate::{Dimension, LocalLimiter, Request, Rule, RuleSet};
///
/// let rules = RuleSet::new([Rule::new("client", "1/s".parse()?)?.per([Dimension::Client])])?;
/// let clients: Vec<String> = (0..300).map(|n| n.to_string()).collect();
/// let requests: Vec<Request<'_>> = clients.iter().map(|client| Request::new().client(client)).collect();
/// let matched: Vec<_> = requests.iter().map(|request| rules.matching(request)).collect();
/// let error = LocalLimiter::new().all_of(&matched).unwrap_err();
/// assert_eq!(error.to_string(), "the requests have 300 buckets; at most 255 can be charged together");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyBuckets {
    buckets: usize,
}

impl fmt::Display for TooManyBuckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { buckets } = self;
        write!(
            f,
            "the requests have {buckets} buckets; at most {MAX_BUCKETS} can be charged together"
        )
    }
}

impl std::error::Error for TooManyBuckets {}

/// All buckets of several requests, each once.
#[derive(Clone, Debug)]
pub(super) struct JointTarget<'a> {
    pub(super) charges: Charges<'a>,
    /// The requests, and which of the charges each of them has.
    requests: Vec<(MatchedView<'a>, SmallVec<[usize; 4]>)>,
}

impl<'a> JointTarget<'a> {
    pub(super) fn of(all: &'a [MatchedRules<'_>]) -> Result<Self, TooManyBuckets> {
        let mut target = Self {
            charges: Charges::new(),
            requests: Vec::with_capacity(all.len()),
        };
        for matched in all {
            let view = matched.view();
            let own = charges(&view, view.request.tokens()).into_iter();
            let positions = own.map(|charge| target.add(charge)).collect();
            target.requests.push((view, positions));
        }
        match target.charges.len() {
            buckets if buckets > MAX_BUCKETS => Err(TooManyBuckets { buckets }),
            _ => Ok(target),
        }
    }

    /// A bucket that several requests have is charged once, with the highest cost: one call is one call.
    fn add(&mut self, charge: Charge<'a>) -> usize {
        let known = (self.charges.iter()).position(|known| is_same(&known.bucket, &charge.bucket));
        match known {
            Some(position) => {
                let cost = &mut self.charges[position].cost;
                *cost = charge.cost.max(*cost);
                position
            }
            None => {
                self.charges.push(charge);
                self.charges.len() - 1
            }
        }
    }

    /// What the rule of each charge does while the store is unavailable.
    #[cfg(feature = "redis")]
    pub(super) fn policies(&self) -> SmallVec<[OnFailure; 4]> {
        let mut policies = smallvec::smallvec![OnFailure::default(); self.charges.len()];
        for (view, positions) in &self.requests {
            for (rule, position) in view.rules.iter().zip(positions) {
                policies[*position] = rule.failure_policy();
            }
        }
        policies
    }

    /// The shortest deadline that one of the requests has of its own.
    #[cfg(feature = "redis")]
    pub(super) fn deadline(&self) -> Option<Duration> {
        let requests = self.requests.iter();
        let deadlines = requests.filter_map(|(view, _)| view.request.own_deadline());
        deadlines.min()
    }

    /// The decision about all requests, with one for each.
    pub(super) fn decided(&self, whole: Decision) -> JointDecision {
        let each = self.each(&whole, |position| whole.tiers().get(position).cloned());
        self.joint(whole, each)
    }

    /// The same if only one charge was looked at, because it was known to be denied.
    #[cfg(feature = "redis")]
    pub(super) fn remembered(&self, denied: usize, whole: Decision) -> JointDecision {
        let tier = |position| {
            let is_denied = position == denied;
            whole.tiers().first().filter(|_| is_denied).cloned()
        };
        let each = self.each(&whole, tier);
        self.joint(whole, each)
    }

    fn joint(&self, whole: Decision, each: Vec<Decision>) -> JointDecision {
        let generation = (self.requests.first()).map_or(0, |(view, _)| view.generation());
        let cost = whole.cost();
        JointDecision {
            whole: whole.by(generation, cost),
            each,
        }
    }

    fn each(&self, whole: &Decision, tier: impl Fn(usize) -> Option<Tier>) -> Vec<Decision> {
        let (at_us, source) = (whole.at_us(), whole.source());
        (self.requests.iter())
            .map(|(view, positions)| {
                let tiers = TierList::of(positions.iter().filter_map(|position| tier(*position)));
                Decision::of_many_by_themselves(tiers, at_us, source)
                    .by(view.generation(), view.request.tokens())
                    .stepped(whole.step_s())
            })
            .collect()
    }

    /// Each charge with the decision that tells what became of it; none for charges by another generation of the rules.
    pub(super) fn charged<'t>(
        &'t self,
        joint: &'t JointDecision,
    ) -> impl Iterator<Item = (&'t Charge<'a>, &'t Decision)> {
        let of = move |position: usize| {
            let mut pairs = self.requests.iter().zip(&joint.each);
            let (_, decision) = pairs.find(|((view, positions), decision)| {
                positions.contains(&position) && decision.generation() == view.generation()
            })?;
            Some((&self.charges[position], decision))
        };
        (0..self.charges.len()).filter_map(of)
    }
}

fn is_same(one: &Bucket<'_>, other: &Bucket<'_>) -> bool {
    one.rule() == other.rule() && one.parts().eq(other.parts())
}
