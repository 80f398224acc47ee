//! Several requests that pass together or not at all: Envoy's descriptors, which are one call seen from several sides.

use smallvec::SmallVec;

use super::local::{Charges, charges};
use crate::bucket::Bucket;
use crate::decision::{Decision, Tier, TierList};
use crate::rule::Met;
use crate::store::Charge;
#[cfg(feature = "redis")]
use crate::{request::Request, rule::OnFailure};
#[cfg(feature = "redis")]
use std::time::Duration;

/// What was decided about several requests that pass together or not at all.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Joint {
    /// About all of them: every bucket once. They pass if it [allows](Decision::allowed) it.
    pub whole: Decision,
    /// About each: what its own buckets say. Of a denial that was [remembered](crate::Source::Remembered), only the request that met it has
    /// a tier.
    pub each: Vec<Decision>,
}

impl Joint {
    /// The same after what it took was [given back](crate::Limiter::refund_together), with the figures that `now` found. See
    /// [`Decision::given_back`].
    #[must_use]
    pub fn given_back(self, now: &Self) -> Self {
        let each = self.each.into_iter().zip(&now.each);
        Self {
            whole: self.whole.given_back(&now.whole),
            each: each
                .map(|(decision, now)| decision.given_back(now))
                .collect(),
        }
    }
}

/// The most buckets that a store takes from at once.
const MOST: usize = 255;

/// All buckets of some requests, each once.
pub(super) struct Together<'a, 'm> {
    pub(super) charges: Charges<'a>,
    /// The requests, and which of the charges each of them meets.
    requests: Vec<(&'a Met<'m>, SmallVec<[usize; 4]>)>,
}

impl<'a, 'm> Together<'a, 'm> {
    /// `None` if there are more buckets than a store takes from at once.
    pub(super) fn of(all: &'a [Met<'m>]) -> Option<Self> {
        let mut together = Self {
            charges: Charges::new(),
            requests: Vec::with_capacity(all.len()),
        };
        for met in all {
            let own = charges(met).into_iter();
            let places = own.map(|charge| together.add(charge)).collect();
            together.requests.push((met, places));
        }
        (together.charges.len() <= MOST).then_some(together)
    }

    /// A bucket that is named again is charged once, with what costs most: one call is one call.
    fn add(&mut self, charge: Charge<'a>) -> usize {
        let known = (self.charges.iter()).position(|known| is_same(&known.bucket, &charge.bucket));
        match known {
            Some(place) => {
                let cost = &mut self.charges[place].cost;
                *cost = charge.cost.max(*cost);
                place
            }
            None => {
                self.charges.push(charge);
                self.charges.len() - 1
            }
        }
    }

    /// What the rule of each charge does while the store cannot be asked.
    #[cfg(feature = "redis")]
    pub(super) fn policies(&self) -> SmallVec<[OnFailure; 4]> {
        let mut policies = smallvec::smallvec![OnFailure::default(); self.charges.len()];
        for (met, places) in &self.requests {
            for (rule, place) in met.rules().iter().zip(places) {
                policies[*place] = rule.policy();
            }
        }
        policies
    }

    /// The shortest deadline that one of the requests has of its own.
    #[cfg(feature = "redis")]
    pub(super) fn deadline(&self) -> Option<Duration> {
        let requests = self.requests.iter().map(|(met, _)| met.request());
        requests.filter_map(Request::own_deadline).min()
    }

    /// What was decided about all, as one decision for each.
    pub(super) fn decided(&self, whole: Decision) -> Joint {
        let each = self.each(&whole, |place| whole.tiers().get(place).cloned());
        self.joint(whole, each)
    }

    /// The same if only one charge was looked at, as it was known to be denied.
    #[cfg(feature = "redis")]
    pub(super) fn remembered(&self, denied: usize, whole: Decision) -> Joint {
        let tier = |place| whole.tiers().first().filter(|_| place == denied).cloned();
        let each = self.each(&whole, tier);
        self.joint(whole, each)
    }

    fn joint(&self, whole: Decision, each: Vec<Decision>) -> Joint {
        let generation = (self.requests.first()).map_or(0, |(met, _)| met.generation());
        let cost = whole.cost();
        Joint {
            whole: whole.by(generation, cost),
            each,
        }
    }

    fn each(&self, whole: &Decision, tier: impl Fn(usize) -> Option<Tier>) -> Vec<Decision> {
        let (at_us, source) = (whole.at_us(), whole.source());
        (self.requests.iter())
            .map(|(met, places)| {
                let tiers = TierList::of(places.iter().filter_map(|place| tier(*place)));
                Decision::of_many_by_themselves(tiers, at_us, source)
                    .by(met.generation(), met.cost())
                    .stepped(whole.step_s())
            })
            .collect()
    }

    /// Each charge with the decision that says what became of it; none for those of other rules.
    pub(super) fn charged<'t>(
        &'t self,
        decisions: &'t [Decision],
    ) -> impl Iterator<Item = (&'t Charge<'a>, &'t Decision)> {
        let of = move |place: usize| {
            let mut pairs = self.requests.iter().zip(decisions);
            let (_, decision) = pairs.find(|((met, places), decision)| {
                places.contains(&place) && decision.generation() == met.generation()
            })?;
            Some((&self.charges[place], decision))
        };
        (0..self.charges.len()).filter_map(of)
    }
}

fn is_same(one: &Bucket<'_>, other: &Bucket<'_>) -> bool {
    one.rule() == other.rule() && one.parts().eq(other.parts())
}
