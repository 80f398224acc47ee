//! Counters of decisions by rule, and of denials by client. Decisions are counted where they are made, without a lock
//! (`make bench-metrics`): a value per thread keeps threads from writing to the same memory.
//!
//! A count of decisions is found by the rule's name, which hashes as a pointer. Rules come and go with generations: counts stay,
//! and beyond a maximum new rules are counted together.

mod top;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use arc_swap::ArcSwap;
use foldhash::fast::FixedState;
use parking_lot::Mutex;
use tollgate::{Decision, Name, Source, Verdict};

use crate::database::MAX_RULES;

pub(crate) use top::TopDenied;

/// One `T` per shard. Threads beyond `SHARDS` share them.
#[derive(Debug)]
pub(crate) struct Sharded<T, const SHARDS: usize>([CacheLine<T>; SHARDS]);

#[derive(Debug, Default)]
#[repr(align(64))]
struct CacheLine<T>(T);

impl<T, const SHARDS: usize> Sharded<T, SHARDS> {
    pub(crate) fn mine(&self) -> &T {
        &self.0[thread_number() % SHARDS].0
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|shard| &shard.0)
    }
}

impl<T: Default, const SHARDS: usize> Default for Sharded<T, SHARDS> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| CacheLine::default()))
    }
}

fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Relaxed);
    }
    // Any shard will do while a thread ends.
    NUMBER.try_with(|number| *number).unwrap_or_default()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Allowed,
    Delayed,
    Denied,
    NeverFits,
    Closed,
    /// Denials by a shadow, which bound nothing.
    Shadow,
    /// Delayed requests that did not wait.
    TooLate,
}

/// The outcomes of a decision, each with its label.
pub(crate) const OUTCOMES: [(Counted, &str); 5] = [
    (Counted::Allowed, "allowed"),
    (Counted::Delayed, "delayed"),
    (Counted::Denied, "denied"),
    (Counted::NeverFits, "never_fits"),
    (Counted::Closed, "closed"),
];

/// The label of rules beyond the maximum.
pub(crate) const OTHER: &str = "other rules";

#[derive(Debug, Default)]
pub(crate) struct Decisions {
    known: ArcSwap<Rules>,
    /// Held while rules are added.
    adding: Mutex<()>,
    /// Decisions that no rule bound.
    none: RuleCounts,
    /// Decisions by rules beyond the maximum.
    other: RuleCounts,
}

type Rules = HashMap<Name, Arc<RuleCounts>, FixedState>;

#[derive(Debug, Default)]
pub(crate) struct RuleCounts(Sharded<[AtomicU64; 8], 8>);

impl Decisions {
    pub(crate) fn count(&self, decision: &Decision) {
        let outcome = outcome(decision);
        match decision.tier() {
            None => self.none.add(outcome),
            Some(tier) => self.add(tier.rule(), outcome),
        }
        for tier in decision.tiers() {
            if tier.is_shadow() && !tier.verdict().allowed() {
                self.add(tier.rule(), Counted::Shadow);
            }
        }
    }

    /// Counts a request that was queued and did not wait.
    pub(crate) fn count_too_late(&self, decision: &Decision) {
        if let Some(tier) = decision.tier() {
            self.add(tier.rule(), Counted::TooLate);
        }
    }

    fn add(&self, rule: Name, counted: Counted) {
        if let Some(counts) = self.known.load().get(&rule) {
            return counts.add(counted);
        }
        self.register([rule].into_iter());
        self.known
            .load()
            .get(&rule)
            .map_or(&self.other, |counts| &**counts)
            .add(counted);
    }

    /// Adds rules, as far as there is room, so that metrics show them before they count anything.
    #[cold]
    pub(crate) fn register(&self, rules: impl Iterator<Item = Name>) {
        let _adding = self.adding.lock();
        let known = self.known.load_full();
        let mut all = Arc::clone(&known);
        for rule in rules {
            if !all.contains_key(&rule) && all.len() < MAX_RULES {
                Arc::make_mut(&mut all).insert(rule, Arc::default());
            }
        }
        if !Arc::ptr_eq(&known, &all) {
            self.known.store(all);
        }
    }

    pub(crate) fn all(&self) -> Vec<(&'static str, Arc<RuleCounts>)> {
        let known = self.known.load();
        let mut all: Vec<_> = (known.iter())
            .map(|(rule, counts)| (rule.as_str(), Arc::clone(counts)))
            .collect();
        all.sort_unstable_by_key(|(rule, _)| *rule);
        all
    }

    /// The counters of decisions that no rule bound, and of rules beyond the maximum.
    pub(crate) fn others(&self) -> [(&'static str, &RuleCounts); 2] {
        [("", &self.none), (OTHER, &self.other)]
    }
}

impl RuleCounts {
    fn add(&self, counted: Counted) {
        self.0.mine()[counted as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn get(&self, counted: Counted) -> u64 {
        let shards = self.0.all();
        (shards.map(|counts| counts[counted as usize].load(Relaxed))).sum()
    }
}

fn outcome(decision: &Decision) -> Counted {
    match (decision.verdict(), decision.source()) {
        (Verdict::Allow, _) => Counted::Allowed,
        (Verdict::AllowAfter(_), _) => Counted::Delayed,
        (_, Source::Closed) => Counted::Closed,
        (Verdict::Deny { .. }, _) => Counted::Denied,
        (Verdict::NeverFits, _) => Counted::NeverFits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use tollgate::{LocalLimiter, Request, Rule, RuleSet};

    fn of(decisions: &Decisions, rule: &str, counted: Counted) -> u64 {
        let all = decisions.all();
        let found = all.iter().find(|(name, _)| *name == rule);
        found.map_or(0, |(_, counts)| counts.get(counted))
    }

    #[test]
    fn every_decision_is_counted_once_for_the_rule_that_bound_it() {
        let decisions = Decisions::default();
        let rule = |id: &str, limit: &str| Rule::new(id, limit.parse().unwrap()).unwrap();
        let rules = [
            rule("narrow", "1/h burst 3"),
            rule("wide", "1/h burst 100"),
            rule("watched", "1/h burst 2").mode(tollgate::Mode::Shadow),
        ];
        let rules = RuleSet::new(rules).unwrap();
        let limiter = LocalLimiter::new();
        let threads = 4;
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        let request = Request::new();
                        decisions.count(&limiter.matched(&rules.matching(&request)).decide());
                    }
                    let dear = Request::new().cost(1_000);
                    decisions.count(&limiter.matched(&rules.matching(&dear)).decide());
                });
            }
        });
        assert_eq!(of(&decisions, "narrow", Counted::Allowed), 3);
        assert_eq!(of(&decisions, "narrow", Counted::Denied), 4_000 - 3);
        let never: u64 = ["narrow", "wide"]
            .map(|rule| of(&decisions, rule, Counted::NeverFits))
            .iter()
            .sum();
        assert_eq!(never, 4);
        // It would deny all that came when it was empty.
        assert_eq!(of(&decisions, "watched", Counted::Shadow), 4_004 - 2);
        decisions.count(
            &limiter
                .matched(&RuleSet::default().matching(&Request::new()))
                .decide(),
        );
        assert_eq!(decisions.others()[0].1.get(Counted::Allowed), 1);
    }

    #[test]
    fn rules_beyond_the_maximum_are_counted_together() {
        let decisions = Decisions::default();
        let name = |n: usize| Name::new(&format!("bound-{n}")).unwrap();
        decisions.register((0..MAX_RULES + 5).map(name));
        assert_eq!(decisions.all().len(), MAX_RULES);
        decisions.add(name(MAX_RULES + 1), Counted::Denied);
        assert_eq!(decisions.others()[1].1.get(Counted::Denied), 1);
        decisions.add(name(7), Counted::Denied);
        assert_eq!(of(&decisions, "bound-7", Counted::Denied), 1);
    }
}
