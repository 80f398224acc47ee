//! Rules and this process's memory together: answers at once.

use std::sync::Arc;

use arc_swap::ArcSwap;
use smallvec::SmallVec;

use super::inspection::inspect_memory;
use super::reset::reset_memory;
use super::together::{Joint, Together};
use crate::bucket::Bucket;
use crate::decision::{Decision, Source, Tier, TierList};
use crate::limit::Limit;
use crate::request::Request;
use crate::rule::{Met, Rule, RuleSet, RuleSetError};
use crate::store::{Charge, MemoryConfig, MemoryStats, MemoryStore, Outcome, Refund};
use crate::usage::Usage;

/// A limiter for one process: it keeps usage in memory, and answers without waiting.
///
/// The same rules and the same answers as a [`Limiter`](crate::Limiter), which is what to use when several processes share their limits,
/// now or some day.
///
/// ```
/// use tollgate::{Dimension, LocalLimiter, Request, Rule};
///
/// // Just a key and a limit:
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
}

pub(super) type Charges<'a> = SmallVec<[Charge<'a>; 4]>;

impl LocalLimiter {
    /// A limiter without rules.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A limiter without rules, set up as told.
    #[must_use]
    pub fn with(config: MemoryConfig) -> Self {
        Self {
            store: MemoryStore::with(config),
            rules: ArcSwap::default(),
        }
    }

    /// Decides by these rules.
    ///
    /// # Errors
    /// When the rules do not fit together.
    pub fn with_rules(self, rules: impl IntoIterator<Item = Rule>) -> Result<Self, RuleSetError> {
        self.set_rules(RuleSet::new(rules)?);
        Ok(self)
    }

    /// Decides by these rules from now on. Each decision is by one set as a whole, the old or the new one; what was used stays used.
    pub fn set_rules(&self, rules: impl Into<Arc<RuleSet>>) {
        self.rules.store(rules.into());
    }

    /// The rules by which it decides.
    #[must_use]
    pub fn rules(&self) -> Arc<RuleSet> {
        self.rules.load_full()
    }

    /// Takes `cost` from the bucket of `key`, which holds `limit`. A cost of 0 looks without taking.
    ///
    /// One key is one bucket, whatever limit it is checked against: what was used stays used when the limit changes. For
    /// two limits at once, use rules, or two keys.
    pub fn check(&self, key: impl AsRef<[u8]>, limit: &Limit, cost: u64) -> Decision {
        self.take_one(&key_charge(key.as_ref(), limit, cost))
    }

    /// Takes a request's cost from the buckets of all rules it meets, or from none.
    pub fn decide(&self, request: &Request<'_>) -> Decision {
        self.decide_on(&self.rules.load().meet(request))
    }

    /// Takes the cost of a request from all buckets it was found to [meet](RuleSet::meet), or from none: for who keeps rules
    /// together with something else that belongs to them.
    pub fn decide_on(&self, met: &Met<'_>) -> Decision {
        // Numbered where it is made: a decision is large, and to change it later is to copy it.
        match *met.rules() {
            [rule] => {
                let charge = charge(rule, met);
                (self.store).take_one(&charge, |outcome| {
                    Decision::of_one(&charge, outcome)
                        .by(met.generation(), met.cost())
                        .stepped(self.store.clock_step_s())
                })
            }
            [a, b] => self.decide_on_few(met, [a, b]),
            [a, b, c] => self.decide_on_few(met, [a, b, c]),
            [a, b, c, d] => self.decide_on_few(met, [a, b, c, d]),
            _ => self
                .visit_all(&charges(met), true)
                .by(met.generation(), met.cost()),
        }
    }

    /// The same for as many rules as most requests meet: nothing is copied on the way from the rules to the tiers.
    #[inline(never)]
    fn decide_on_few<const N: usize>(&self, met: &Met<'_>, rules: [&Rule; N]) -> Decision {
        let charges = rules.map(|rule| charge(rule, met));
        let mut outcomes = [Outcome::NONE; N];
        let (admitted, at_us) = self.store.take_few(&charges, &mut outcomes);
        let tiers = charges.iter().zip(&outcomes);
        let tiers = TierList::of(tiers.map(|(charge, outcome)| Tier::new(charge, *outcome)));
        Decision::of_many(tiers, admitted, at_us, Source::Store)
            .by(met.generation(), met.cost())
            .stepped(self.store.clock_step_s())
    }

    /// Says what [`decide`](Self::decide) would, and takes nothing.
    pub fn peek(&self, request: &Request<'_>) -> Decision {
        self.peek_on(&self.rules.load().meet(request))
    }

    /// Says what [`decide_on`](Self::decide_on) would, and takes nothing.
    pub fn peek_on(&self, met: &Met<'_>) -> Decision {
        let decision = self.visit_all(&charges(met), false);
        decision.by(met.generation(), met.cost())
    }

    /// Says what was used by those whom the request names, and changes nothing: of each rule that counts for one of them or for
    /// everybody, the bucket that the request meets. Other buckets cannot be shown, as keys are known by their fingerprints only.
    ///
    /// ```
    /// use tollgate::{Dimension, LocalLimiter, Request, Rule};
    ///
    /// let limiter = LocalLimiter::new().with_rules([
    ///     Rule::new("client", "10/s burst 50".parse()?)?.per([Dimension::Client]),
    /// ])?;
    /// let request = Request::new().client("merchant_123");
    /// limiter.decide(&request.clone().cost(20));
    /// assert_eq!(limiter.inspect(&request)[0].used(), Some(20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn inspect(&self, request: &Request<'_>) -> Vec<Usage> {
        self.inspect_by(&self.rules.load(), request)
    }

    pub(super) fn inspect_by(&self, rules: &RuleSet, request: &Request<'_>) -> Vec<Usage> {
        inspect_memory(&self.store, rules, request)
    }

    /// Gives back what a decision took, as far as it still counts: a caller who has gone frees its place. What took
    /// nothing (a denial, a peek) gives nothing back, nor does what was taken under a limit that has changed since, or by rules of
    /// another [generation](RuleSet::generation).
    ///
    /// In a leaky bucket those behind keep their times: after a refund, as many may go at one time as were refunded.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "so that nothing is given back twice"
    )]
    pub fn refund(&self, request: &Request<'_>, decision: Decision) {
        self.give_back(
            &charges_of(&self.rules.load().meet(request), &decision),
            &decision,
        );
    }

    /// Gives back what [`decide_on`](Self::decide_on) took.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "so that nothing is given back twice"
    )]
    pub fn refund_on(&self, met: &Met<'_>, decision: Decision) {
        self.give_back(&charges_of(met, &decision), &decision);
    }

    /// Gives back what an allowed [`check`](Self::check) took.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "so that nothing is given back twice"
    )]
    pub fn refund_key(&self, key: impl AsRef<[u8]>, limit: &Limit, cost: u64, decision: Decision) {
        let charge = key_charge(key.as_ref(), limit, cost);
        self.give_back(std::slice::from_ref(&charge), &decision);
    }

    /// Forgets what was used by the callers whom the request names by client, address or attribute, and says what that was: the buckets that
    /// the request meets and that count for one of them, and those of other rules that count by nothing but what the request says. Other
    /// buckets stay, as keys are known by their fingerprints only.
    ///
    /// What callers share with others, such as a bucket for everybody or one for a route, stays as well. A request that names no caller means just
    /// that: the buckets it meets that are for everybody, or for its route, its method or its plan; and one that says nothing at all every
    /// bucket for everybody.
    ///
    /// ```
    /// use tollgate::{Dimension, LocalLimiter, Request, Rule};
    ///
    /// let limiter = LocalLimiter::new().with_rules([
    ///     Rule::new("client", "10/h burst 50".parse()?)?.per([Dimension::Client]),
    ///     Rule::new("everyone", "100/h".parse()?)?,
    /// ])?;
    /// let request = Request::new().client("merchant_123");
    /// limiter.decide(&request.clone().cost(20));
    /// assert_eq!(limiter.reset(&request)[0].used(), Some(20));
    /// let used: Vec<_> = limiter.inspect(&request).iter().map(|usage| usage.used()).collect();
    /// assert_eq!(used, [Some(0), Some(20)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reset(&self, request: &Request<'_>) -> Vec<Usage> {
        self.reset_by(&self.rules.load(), request)
    }

    pub(super) fn reset_by(&self, rules: &RuleSet, request: &Request<'_>) -> Vec<Usage> {
        reset_memory(&self.store, rules, request)
    }

    /// Forgets what was used of a key.
    pub fn reset_key(&self, key: impl AsRef<[u8]>) {
        self.store.reset_one(&Bucket::of_key(key.as_ref()));
    }

    /// What is held in memory.
    #[must_use]
    pub fn stats(&self) -> MemoryStats {
        self.store.stats()
    }

    #[inline(always)]
    fn take_one(&self, charge: &Charge<'_>) -> Decision {
        (self.store).take_one(charge, |outcome| {
            Decision::of_one(charge, outcome).stepped(self.store.clock_step_s())
        })
    }

    fn visit_all(&self, charges: &[Charge<'_>], charging: bool) -> Decision {
        let tier = |charge| Tier::new(charge, Outcome::NONE);
        let mut tiers = TierList::of(charges.iter().map(tier));
        let (admitted, at_us) = (self.store).visit_all(charges, tiers.as_mut_slice(), charging);
        Decision::of_many(tiers, admitted, at_us, Source::Store).stepped(self.store.clock_step_s())
    }

    pub(super) fn take_together(&self, together: &Together<'_, '_>) -> Joint {
        together.decided(self.visit_all(&together.charges, true))
    }

    pub(super) fn peek_together(&self, together: &Together<'_, '_>) -> Joint {
        together.decided(self.visit_all(&together.charges, false))
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

#[inline(always)]
pub(super) fn charges<'a>(met: &'a Met<'_>) -> Charges<'a> {
    let mut charges = Charges::new();
    charges.extend(met.rules().iter().map(|rule| charge(rule, met)));
    charges
}

/// What a decision may have charged: at its own cost, and nothing if it was by other rules, which may have counted elsewhere.
pub(super) fn charges_of<'a>(met: &'a Met<'_>, decision: &Decision) -> Charges<'a> {
    if decision.generation() != met.generation() {
        return Charges::new();
    }
    let mut charges = charges(met);
    for charge in &mut charges {
        charge.cost = decision.cost();
    }
    charges
}

#[inline(always)]
pub(super) fn charge<'a>(rule: &'a Rule, met: &'a Met<'_>) -> Charge<'a> {
    Charge {
        bucket: rule.bucket(met.request()),
        limit: met.limit_of(rule),
        cost: met.cost(),
        shadow: rule.is_shadow(),
    }
}

pub(super) fn key_charge<'a>(key: &'a [u8], limit: &'a Limit, cost: u64) -> Charge<'a> {
    Charge {
        bucket: Bucket::of_key(key),
        limit,
        cost,
        shadow: false,
    }
}
