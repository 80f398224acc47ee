//! What a check is about, borrowed from nothing: for what happens after its request is gone.

use smallvec::SmallVec;

use super::charge_target::{Buckets, ChargeTarget, Charges};
use super::{Backend, Limiter};
use crate::bucket::Bucket;
use crate::decision::Decision;
use crate::dimension::Dimension;
use crate::limit::Limit;
use crate::name::Name;
use crate::request::{OwnedRequest, Request};
use crate::store::Charge;
#[cfg(feature = "redis")]
use {
    crate::rule::OnFailure,
    std::time::{Duration, Instant},
};

/// The buckets of a check and what they are charged, borrowed from nothing: made by [`Check::into_owned`](crate::Check::into_owned),
/// to give back a charge when the request and its rules are gone. No rules are matched again, so it does not matter whether they have
/// changed.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{Limiter, Request, Rule, RuleSet};
///
/// let limiter = Limiter::in_memory().with_rules([Rule::new("queue", "1/s queue 5".parse()?)?])?;
/// let (decision, charged) = {
///     let request = Request::new().client("merchant_123");
///     let check = limiter.request(&request);
///     (check.decide().await, check.into_owned())
/// };
/// assert_eq!(decision.remaining(), Some(4));
///
/// limiter.set_rules(RuleSet::default());
/// charged.refund(&limiter, decision).await;
/// assert_eq!(charged.peek(&limiter).await.remaining(), Some(5));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OwnedCheck(OwnedTarget);

impl OwnedCheck {
    pub(super) fn of(target: &ChargeTarget<'_>) -> Self {
        Self(OwnedTarget::of(target))
    }

    /// Returns what a [decision](crate::Check::<Limiter>::decide) of the check would be, and charges nothing.
    ///
    /// # Cancel safety
    /// Nothing is changed, whenever the future is dropped.
    pub async fn peek(&self, limiter: &Limiter) -> Decision {
        let target = &self.0;
        let request = target.request.borrowed();
        let charges = target.charges(&request);
        let decision = match &limiter.backend {
            Backend::Memory(local) => local.peek_charges(&charges),
            #[cfg(feature = "redis")]
            Backend::Shared(shared) => {
                let (policies, deadline) = (&target.policies, target.deadline);
                (shared.ask(&charges, policies, false, Instant::now(), deadline)).await
            }
        };
        decision.by(target.generation, target.cost)
    }

    /// Gives back what a decision of the check charged, as far as it still counts: see [`Check::refund`](crate::Check::<Limiter>::refund).
    /// A decision of another check is left as it is.
    ///
    /// # Cancel safety
    /// As [`Check::refund`](crate::Check::<Limiter>::refund): over a shared store, a refund that was begun goes on by itself.
    #[cfg_attr(
        not(feature = "redis"),
        expect(clippy::unused_async, reason = "a shared store is async")
    )]
    pub async fn refund(&self, limiter: &Limiter, decision: Decision) {
        let target = &self.0;
        let made = (decision.generation(), decision.cost());
        if made != (target.generation, target.cost) {
            return;
        }
        let request = target.request.borrowed();
        let charges = target.charges(&request);
        match &limiter.backend {
            Backend::Memory(local) => local.give_back(&charges, &decision),
            #[cfg(feature = "redis")]
            Backend::Shared(shared) => shared.refund(&charges, &decision).await,
        }
    }
}

/// What is charged, borrowed from nothing: for a task that outlives the request.
#[derive(Clone, Debug)]
pub(super) struct OwnedTarget {
    pub(super) request: OwnedRequest,
    charges: SmallVec<[OwnedCharge; 2]>,
    #[cfg(feature = "redis")]
    pub(super) policies: SmallVec<[OnFailure; 4]>,
    pub(super) cost: u64,
    pub(super) generation: u64,
    #[cfg(feature = "redis")]
    pub(super) deadline: Option<Duration>,
}

#[derive(Clone, Debug)]
struct OwnedCharge {
    bucket: OwnedBucket,
    limit: Limit,
    cost: u64,
    shadow: bool,
}

#[derive(Clone, Debug)]
enum OwnedBucket {
    OfRule(Name, SmallVec<[Dimension; 2]>),
    OfKey(Box<[u8]>),
}

impl OwnedTarget {
    pub(super) fn of(target: &ChargeTarget<'_>) -> Self {
        let (request, buckets): (_, SmallVec<[OwnedBucket; 2]>) = match target.buckets() {
            Buckets::Matched(view) => {
                let bucket = |rule: &&crate::rule::Rule| {
                    OwnedBucket::OfRule(rule.id(), rule.dimensions().iter().copied().collect())
                };
                (
                    OwnedRequest::of(view.request),
                    view.rules.iter().map(bucket).collect(),
                )
            }
            Buckets::Key { key, .. } => (
                OwnedRequest::of(&Request::new()),
                [OwnedBucket::OfKey(key.into())].into_iter().collect(),
            ),
        };
        let charges = target.charges().into_iter().zip(buckets);
        Self {
            request,
            charges: charges
                .map(|(charge, bucket)| OwnedCharge {
                    bucket,
                    limit: *charge.limit,
                    cost: charge.cost,
                    shadow: charge.shadow,
                })
                .collect(),
            #[cfg(feature = "redis")]
            policies: target.policies(),
            cost: target.cost(),
            generation: target.generation(),
            #[cfg(feature = "redis")]
            deadline: target.deadline(),
        }
    }

    /// The charges of the request, which is [borrowed](OwnedRequest::borrowed) from here.
    pub(super) fn charges<'a>(&'a self, request: &'a Request<'a>) -> Charges<'a> {
        let charge = |owned: &'a OwnedCharge| Charge {
            bucket: match &owned.bucket {
                OwnedBucket::OfRule(rule, per) => Bucket::new(*rule, per, request),
                OwnedBucket::OfKey(key) => Bucket::of_key(key),
            },
            limit: &owned.limit,
            cost: owned.cost,
            shadow: owned.shadow,
        };
        self.charges.iter().map(charge).collect()
    }
}
