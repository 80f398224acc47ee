//! What a check is about: the buckets that it charges, and the cost.

use smallvec::SmallVec;

use crate::bucket::Bucket;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::request::Request;
#[cfg(feature = "redis")]
use crate::rule::OnFailure;
use crate::rule::{MatchedRules, MatchedView, Rule, RuleSet};
use crate::store::Charge;
#[cfg(feature = "tokio")]
use {crate::limit::Algorithm, std::time::Duration};

pub(super) type Charges<'a> = SmallVec<[Charge<'a>; 4]>;

/// What a check was asked about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Subject<'a> {
    /// A request, by the limiter's own rules.
    Request(&'a Request<'a>),
    /// A request and the rules that apply to it.
    Matched(MatchedView<'a>),
    /// A key, which belongs to no rule.
    Key { key: &'a [u8], limit: &'a Limit },
}

/// A subject whose rules are matched.
#[expect(
    clippy::large_enum_variant,
    reason = "it never leaves the stack of the check that made it"
)]
#[derive(Debug)]
pub(super) enum Resolved<'a> {
    Owned(MatchedRules<'a>),
    Matched(MatchedView<'a>),
    Key { key: &'a [u8], limit: &'a Limit },
}

/// What is charged, and how much.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChargeTarget<'a> {
    buckets: Buckets<'a>,
    /// Replaces the cost of the request.
    cost: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Buckets<'a> {
    Matched(MatchedView<'a>),
    Key { key: &'a [u8], limit: &'a Limit },
}

impl Subject<'_> {
    /// Matches a request by these rules, unless that was done before.
    pub(super) fn resolve<'r>(&'r self, rules: &'r RuleSet) -> Resolved<'r> {
        match *self {
            Self::Request(request) => Resolved::Owned(rules.matching(request)),
            Self::Matched(view) => Resolved::Matched(view),
            Self::Key { key, limit } => Resolved::Key { key, limit },
        }
    }
}

impl Resolved<'_> {
    pub(super) fn target(&self, cost: Option<u64>) -> ChargeTarget<'_> {
        let buckets = match self {
            Self::Owned(matched) => Buckets::Matched(matched.view()),
            Self::Matched(view) => Buckets::Matched(*view),
            Self::Key { key, limit } => Buckets::Key { key, limit },
        };
        ChargeTarget { buckets, cost }
    }
}

impl<'a> ChargeTarget<'a> {
    pub(super) fn buckets(&self) -> Buckets<'a> {
        self.buckets
    }

    /// What the request costs, to rules that set no cost of their own.
    pub(super) fn cost(&self) -> u64 {
        self.cost.unwrap_or(match self.buckets {
            Buckets::Matched(view) => view.request.tokens(),
            Buckets::Key { .. } => 1,
        })
    }

    pub(super) fn generation(&self) -> u64 {
        match self.buckets {
            Buckets::Matched(view) => view.generation(),
            Buckets::Key { .. } => 0,
        }
    }

    pub(super) fn charges(&self) -> Charges<'a> {
        self.charges_at(self.cost())
    }

    fn charges_at(&self, cost: u64) -> Charges<'a> {
        match self.buckets {
            Buckets::Matched(view) => charges(&view, cost),
            Buckets::Key { key, limit } => [key_charge(key, limit, cost)].into_iter().collect(),
        }
    }

    /// What a decision may have charged: at its own cost, and nothing if it was by another generation of the rules, which may have
    /// counted elsewhere.
    pub(super) fn charges_of(&self, decision: &Decision) -> Charges<'a> {
        match decision.generation() == self.generation() {
            true => self.charges_at(decision.cost()),
            false => Charges::new(),
        }
    }

    /// What each charge's rule does while the store is unavailable.
    #[cfg(feature = "redis")]
    pub(super) fn policies(&self) -> SmallVec<[OnFailure; 4]> {
        match self.buckets {
            Buckets::Matched(view) => view
                .rules
                .iter()
                .map(|rule| rule.failure_policy())
                .collect(),
            Buckets::Key { .. } => [OnFailure::Local].into_iter().collect(),
        }
    }

    /// The request's own deadline for the store.
    #[cfg(feature = "redis")]
    pub(super) fn deadline(&self) -> Option<Duration> {
        match self.buckets {
            Buckets::Matched(view) => view.request.own_deadline(),
            Buckets::Key { .. } => None,
        }
    }
}

#[inline(always)]
pub(super) fn charges<'a>(view: &MatchedView<'a>, cost: u64) -> Charges<'a> {
    let mut charges = Charges::new();
    charges.extend(view.rules.iter().map(|rule| charge(rule, view, cost)));
    charges
}

/// Whether a bucket of this limit can be charged now for later.
#[cfg(feature = "tokio")]
pub(super) fn reserves(limit: &Limit) -> bool {
    limit.algorithm() == Algorithm::LeakyBucket
}

/// The charge of a request that costs this much on the bucket of this rule.
#[inline(always)]
pub(super) fn charge<'a>(rule: &'a Rule, view: &MatchedView<'a>, cost: u64) -> Charge<'a> {
    Charge {
        bucket: rule.bucket(view.request),
        limit: view.limit_of(rule),
        cost: rule.cost_of(cost),
        shadow: rule.is_shadow(),
    }
}

#[inline(always)]
pub(super) fn key_charge<'a>(key: &'a [u8], limit: &'a Limit, cost: u64) -> Charge<'a> {
    Charge {
        bucket: Bucket::of_key(key),
        limit,
        cost,
        shadow: false,
    }
}
