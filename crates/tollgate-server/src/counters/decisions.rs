//! How many decisions there were, by the rule that bound them and what came of them.
//!
//! A count lies in a cache line of its thread's own, so that threads do not wait for each other; it is found by the rule's name, which is a
//! pointer. Rules come and go with generations: what was counted stays, and beyond a bound new rules are counted together.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tollgate::{Decision, Name, Source, Verdict};

use crate::database::MOST_RULES;
use crate::sharded::Sharded;

/// What is counted of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Allowed,
    Delayed,
    Denied,
    NeverFits,
    Closed,
    /// By a shadow, which bound nothing.
    Shadow,
    /// Of those that were delayed.
    TooLate,
}

/// What comes of a decision: each is counted as one of these.
pub(crate) const OUTCOMES: [(Counted, &str); 5] = [
    (Counted::Allowed, "allowed"),
    (Counted::Delayed, "delayed"),
    (Counted::Denied, "denied"),
    (Counted::NeverFits, "never_fits"),
    (Counted::Closed, "closed"),
];

/// Under which rule those are counted for which there is no room.
pub(crate) const OTHER: &str = "other rules";

/// Decisions, by rule and outcome.
#[derive(Debug, Default)]
pub struct Decisions {
    known: ArcSwap<Rules>,
    /// Held by who adds a rule.
    adding: Mutex<()>,
    /// Decisions that no rule bound.
    none: RuleCounts,
    /// Decisions by rules beyond the bound.
    other: RuleCounts,
}

type Rules = HashMap<Name, Arc<RuleCounts>, BuildHasherDefault<AddressHasher>>;

/// One rule's counts.
#[derive(Debug, Default)]
pub(crate) struct RuleCounts(Sharded<[AtomicU64; 8], 8>);

impl Decisions {
    pub(crate) fn count(&self, decision: &Decision) {
        let outcome = outcome(decision);
        match decision.tier() {
            None => self.none.add(outcome),
            Some(tier) => self.of_rule(tier.rule(), |counts| counts.add(outcome)),
        }
        for tier in decision.tiers() {
            if tier.is_shadow() && !tier.verdict().allowed() {
                self.of_rule(tier.rule(), |counts| counts.add(Counted::Shadow));
            }
        }
    }

    /// A request was let into a queue and could not wait for so long.
    pub(crate) fn count_too_late(&self, decision: &Decision) {
        if let Some(tier) = decision.tier() {
            self.of_rule(tier.rule(), |counts| counts.add(Counted::TooLate));
        }
    }

    fn of_rule(&self, rule: Name, count: impl Fn(&RuleCounts)) {
        match self.known.load().get(&rule) {
            Some(counts) => count(counts),
            None => match self.add(rule) {
                Some(counts) => count(&counts),
                None => count(&self.other),
            },
        }
    }

    /// The counts of a rule that is new, if there is room.
    #[cold]
    fn add(&self, rule: Name) -> Option<Arc<RuleCounts>> {
        let _adding = self.adding.lock();
        let known = self.known.load_full();
        if let Some(counts) = known.get(&rule) {
            return Some(Arc::clone(counts));
        }
        if known.len() >= MOST_RULES {
            return None;
        }
        let mut more = Rules::clone(&known);
        let counts = Arc::clone(more.entry(rule).or_default());
        self.known.store(Arc::new(more));
        Some(counts)
    }

    /// Room for rules before they are met, so that they count from zero on in whatever looks at them.
    pub(crate) fn expect(&self, rules: impl Iterator<Item = Name>) {
        let _adding = self.adding.lock();
        let known = self.known.load_full();
        let mut more: Option<Rules> = None;
        for rule in rules {
            let all = more.as_ref().unwrap_or(&known);
            if !all.contains_key(&rule) && all.len() < MOST_RULES {
                let more = more.get_or_insert_with(|| Rules::clone(&known));
                more.insert(rule, Arc::default());
            }
        }
        if let Some(more) = more {
            self.known.store(Arc::new(more));
        }
    }

    /// Everything, by the names of the rules; empty for no rule.
    pub(crate) fn all(&self) -> Vec<(&'static str, Arc<RuleCounts>)> {
        let known = self.known.load();
        let mut all: Vec<_> = (known.iter())
            .map(|(rule, counts)| (rule.as_str(), Arc::clone(counts)))
            .collect();
        all.sort_unstable_by_key(|(rule, _)| *rule);
        all
    }

    /// What no rule bound, and what is counted together.
    pub(crate) fn rest(&self) -> [(&'static str, &RuleCounts); 2] {
        [("", &self.none), (OTHER, &self.other)]
    }
}

impl RuleCounts {
    fn add(&self, counted: Counted) {
        self.0.mine()[counted as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn get(&self, counted: Counted) -> u64 {
        let lanes = self.0.all();
        lanes.map(|lane| lane[counted as usize].load(Relaxed)).sum()
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

/// For names, which hash as where they lie.
#[derive(Debug, Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The upper bits choose within a group of slots, the lower ones the group.
        self.0 = (self.0 ^ number)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(26);
    }
}

#[cfg(test)]
mod tests {
    use tollgate::{LocalLimiter, Request, Rule, RuleSet};

    use super::*;

    fn of(decisions: &Decisions, rule: &str, counted: Counted) -> u64 {
        let all = decisions.all();
        let found = all.iter().find(|(name, _)| *name == rule);
        found.map_or(0, |(_, counts)| counts.get(counted))
    }

    #[test]
    fn every_decision_is_counted_once_by_the_rule_that_bound_it() {
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
        // What it would deny: whatever came when it was empty.
        assert_eq!(of(&decisions, "watched", Counted::Shadow), 4_004 - 2);
        decisions.count(
            &limiter
                .matched(&RuleSet::default().matching(&Request::new()))
                .decide(),
        );
        assert_eq!(decisions.rest()[0].1.get(Counted::Allowed), 1);
    }

    #[test]
    fn rules_beyond_the_bound_are_counted_together() {
        let decisions = Decisions::default();
        let name = |n: usize| Name::new(&format!("bound-{n}")).unwrap();
        decisions.expect((0..MOST_RULES + 5).map(name));
        assert_eq!(decisions.all().len(), MOST_RULES);
        decisions.of_rule(name(MOST_RULES + 1), |counts| counts.add(Counted::Denied));
        assert_eq!(decisions.rest()[1].1.get(Counted::Denied), 1);
        decisions.of_rule(name(7), |counts| counts.add(Counted::Denied));
        assert_eq!(of(&decisions, "bound-7", Counted::Denied), 1);
    }
}
