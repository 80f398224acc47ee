//! Rules and the memory of this process together: decides at once.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use super::charge_target::{ChargeTarget, Subject, charge, charges, key_charge};
use super::check::{Check, JointCheck};
use super::inspection::inspect_memory;
use super::joint::{JointDecision, JointTarget, TooManyBuckets};
use super::reset::reset_memory;
use crate::decision::{Decision, Source, Tier, TierList};
use crate::limit::Limit;
use crate::request::Request;
use crate::rule::{MatchedRules, MatchedView, Rule, RuleSet, RuleSetError};
use crate::store::{Charge, MemoryStats, MemoryStore, Outcome, Refund};
use crate::usage::Usage;
#[cfg(feature = "metrics")]
use {super::counters::DecisionCounters, std::sync::OnceLock};

/// A limiter for one process: it keeps usage in memory and is not async.
///
/// It has the same rules, the same methods and the same answers as a [`Limiter`](crate::Limiter), which is the one to use if several
/// processes share their limits, now or later. It cannot wait: [`until_ready`](Check::<crate::Limiter>::until_ready) needs a timer. Code
/// without a runtime can sleep for [`Decision::retry_after`] and ask again.
///
/// ```
/// use tollgate::{Dimension, LocalLimiter, Request, Rule};
///
/// // A key and a limit:
/// let limiter = LocalLimiter::new();
/// let decision = limiter.check("client-7", &"10/s burst 50".parse()?, 1);
/// assert!(decision.allowed());
/// assert_eq!(decision.remaining(), Some(49));
///
/// // Or rules, all of which must have room:
/// let limiter = LocalLimiter::new().with_rules([
///     Rule::new("client", "10/s burst 50".parse()?)?.per([Dimension::Client]),
///     Rule::new("everyone", "5000/s".parse()?)?,
/// ])?;
/// let decision = limiter.decide(&Request::new().client("merchant_123"));
/// if let Err(denied) = decision.into_result() {
///     println!("{denied}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct LocalLimiter {
    store: MemoryStore,
    rules: ArcSwap<RuleSet>,
    /// Once metrics are registered.
    #[cfg(feature = "metrics")]
    counters: OnceLock<Box<DecisionCounters>>,
}

impl LocalLimiter {
    /// A limiter without rules, over a store with the default configuration.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A limiter without rules, over this store.
    ///
    /// ```
    /// use tollgate::LocalLimiter;
    /// use tollgate::store::{MemoryConfig, MemoryStore};
    ///
    /// let store = MemoryStore::with_config(MemoryConfig::default().max_keys(10_000_000));
    /// let limiter = LocalLimiter::with_store(store);
    /// # let _ = limiter;
    /// ```
    #[must_use]
    pub fn with_store(store: MemoryStore) -> Self {
        Self {
            store,
            ..Self::default()
        }
    }

    /// Decides by these rules.
    ///
    /// # Errors
    /// When the rules do not form a [`RuleSet`].
    pub fn with_rules(self, rules: impl IntoIterator<Item = Rule>) -> Result<Self, RuleSetError> {
        self.set_rules(RuleSet::new(rules)?);
        Ok(self)
    }

    /// Decides by these rules from now on. Each decision is by one set as a whole, the old or the new one; usage carries over.
    pub fn set_rules(&self, rules: impl Into<Arc<RuleSet>>) {
        self.rules.store(rules.into());
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> Arc<RuleSet> {
        self.rules.load_full()
    }

    /// Charges `cost` to the bucket of `key`, which has this limit. A cost of 0 looks without charging.
    ///
    /// A key has one bucket, whatever limit it is checked against: usage carries over when the limit changes. For two limits at once,
    /// use rules, or two keys.
    pub fn check(&self, key: impl AsRef<[u8]>, limit: &Limit, cost: u64) -> Decision {
        self.take_key(key.as_ref(), limit, cost)
    }

    /// Charges what a request costs to the buckets of all rules that apply to it, or to none.
    pub fn decide(&self, request: &Request<'_>) -> Decision {
        self.decide_by(&self.rules.load().matching(request).view(), None)
    }

    /// A check of a request, by the limiter's own rules.
    pub fn request<'a>(&'a self, request: &'a Request<'_>) -> Check<'a, Self> {
        Check::new(self, Subject::Request(request))
    }

    /// A check of a request whose rules were [matched](RuleSet::matching) before.
    pub fn matched<'a>(&'a self, matched: &'a MatchedRules<'_>) -> Check<'a, Self> {
        Check::new(self, Subject::Matched(matched.view()))
    }

    /// A check of a key against a limit. It costs 1 unless a [cost](Check::cost) is set.
    pub fn key<'a, K: AsRef<[u8]> + ?Sized>(
        &'a self,
        key: &'a K,
        limit: &'a Limit,
    ) -> Check<'a, Self> {
        let key = key.as_ref();
        Check::new(self, Subject::Key { key, limit })
    }

    /// A check of several requests that pass together or not at all. A bucket that several of them have is charged once, with the
    /// highest cost of them.
    ///
    /// # Errors
    /// When they have more than 255 buckets.
    pub fn all_of<'a>(
        &'a self,
        all: &'a [MatchedRules<'_>],
    ) -> Result<JointCheck<'a, Self>, TooManyBuckets> {
        JointCheck::new(self, all)
    }

    /// What the store holds.
    #[must_use]
    pub fn memory_stats(&self) -> MemoryStats {
        self.store.stats()
    }

    pub(super) fn current_rules(&self) -> Guard<Arc<RuleSet>> {
        self.rules.load()
    }

    #[inline(always)]
    pub(super) fn take_key(&self, key: &[u8], limit: &Limit, cost: u64) -> Decision {
        let charge = key_charge(key, limit, cost);
        let decision = self.store.take_one(&charge, |outcome| {
            Decision::of_one(&charge, outcome).stepped(self.store.clock_step_s())
        });
        self.count(&decision);
        decision
    }

    #[inline]
    pub(super) fn decide_by(&self, view: &MatchedView<'_>, cost: Option<u64>) -> Decision {
        let cost = cost.unwrap_or(view.request.tokens());
        // Numbered where it is made: a decision is large, and to change it later is to copy it.
        let decision = match *view.rules {
            [rule] => {
                let charge = charge(rule, view, cost);
                self.store.take_one(&charge, |outcome| {
                    Decision::of_one(&charge, outcome)
                        .by(view.generation(), cost)
                        .stepped(self.store.clock_step_s())
                })
            }
            [a, b] => self.decide_by_few(view, cost, [a, b]),
            [a, b, c] => self.decide_by_few(view, cost, [a, b, c]),
            [a, b, c, d] => self.decide_by_few(view, cost, [a, b, c, d]),
            _ => self
                .visit_all(&charges(view, cost), true)
                .by(view.generation(), cost),
        };
        self.count(&decision);
        decision
    }

    /// The same for as many rules as most requests have: nothing is copied on the way from the rules to the tiers.
    #[inline(never)]
    fn decide_by_few<const N: usize>(
        &self,
        view: &MatchedView<'_>,
        cost: u64,
        rules: [&Rule; N],
    ) -> Decision {
        let charges = rules.map(|rule| charge(rule, view, cost));
        let mut outcomes = [Outcome::NONE; N];
        let (admitted, at_us) = self.store.take_few(&charges, &mut outcomes);
        let tiers = charges.iter().zip(&outcomes);
        let tiers = TierList::of(tiers.map(|(charge, outcome)| Tier::new(charge, *outcome)));
        Decision::of_many(tiers, admitted, at_us, Source::Store)
            .by(view.generation(), cost)
            .stepped(self.store.clock_step_s())
    }

    pub(super) fn peek_at(&self, target: &ChargeTarget<'_>) -> Decision {
        let decision = self.peek_charges(&target.charges());
        decision.by(target.generation(), target.cost())
    }

    pub(super) fn peek_charges(&self, charges: &[Charge<'_>]) -> Decision {
        self.visit_all(charges, false)
    }

    /// Charges these buckets, or none.
    #[cfg(feature = "tokio")]
    pub(super) fn decide_charges(
        &self,
        charges: &[Charge<'_>],
        target: &ChargeTarget<'_>,
    ) -> Decision {
        let decision = self.visit_all(charges, true);
        let decision = decision.by(target.generation(), target.cost());
        self.count(&decision);
        decision
    }

    pub(super) fn inspect_at(&self, target: &ChargeTarget<'_>) -> Vec<Usage> {
        inspect_memory(&self.store, target)
    }

    pub(super) fn reset_at(&self, target: &ChargeTarget<'_>) -> Vec<Usage> {
        reset_memory(&self.store, target)
    }

    pub(super) fn decide_jointly(&self, target: &JointTarget<'_>) -> JointDecision {
        let joint = target.decided(self.visit_all(&target.charges, true));
        joint.each.iter().for_each(|decision| self.count(decision));
        joint
    }

    pub(super) fn peek_jointly(&self, target: &JointTarget<'_>) -> JointDecision {
        target.decided(self.visit_all(&target.charges, false))
    }

    /// Counts a decision, if metrics are registered.
    #[inline(always)]
    fn count(&self, decision: &Decision) {
        #[cfg(feature = "metrics")]
        if let Some(counters) = self.counters.get() {
            counters.count(decision);
        }
        #[cfg(not(feature = "metrics"))]
        let _ = decision;
    }

    /// The counters, which count from now on.
    #[cfg(feature = "metrics")]
    pub(super) fn counters(&self) -> &DecisionCounters {
        self.counters
            .get_or_init(|| Box::new(DecisionCounters::new()))
    }

    fn visit_all(&self, charges: &[Charge<'_>], charging: bool) -> Decision {
        let tier = |charge| Tier::new(charge, Outcome::NONE);
        let mut tiers = TierList::of(charges.iter().map(tier));
        let (admitted, at_us) = (self.store).visit_all(charges, tiers.as_mut_slice(), charging);
        Decision::of_many(tiers, admitted, at_us, Source::Store).stepped(self.store.clock_step_s())
    }

    pub(super) fn give_back(&self, charges: &[Charge<'_>], decision: &Decision) {
        for charge in charges {
            let mut tiers = decision.tiers().iter();
            if let Some(tier) = tiers.find(|tier| tier.rule() == charge.bucket.rule())
                && tier.gives_back()
                && tier.limit() == charge.limit
            {
                self.store.refund_one(&Refund {
                    bucket: charge.bucket,
                    limit: charge.limit,
                    cost: charge.cost,
                    charged_at_us: tier.at_us(),
                });
            }
        }
    }
}
