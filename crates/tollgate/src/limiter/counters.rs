//! How many decisions there were, by the rule that bound them, their outcome and their source.
//!
//! The counters of a rule are found by the small number of its name, without a look-up in a map. Each is there once per shard of
//! threads, in cache lines of their own, so that threads that count do not wait for each other.

use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::decision::{Decision, Source, Tier, Verdict};
use crate::name::Name;

/// Rules in one chunk, and chunks: names beyond are counted together.
const CHUNK: usize = 64;
const CHUNKS: usize = 1_024;
/// Threads beyond this number share counters.
const SHARDS: usize = 8;

/// Counters of decisions. A decision is counted at the rule that bound it, or at no rule.
#[derive(Debug)]
pub(super) struct DecisionCounters {
    chunks: [OnceLock<Box<Chunk>>; CHUNKS],
    other: RuleCounters,
}

/// The counters of rules whose names have numbers close to each other.
type Chunk = [OnceLock<Box<RuleCounters>>; CHUNK];

/// The counters of one rule.
#[derive(Debug)]
pub(super) struct RuleCounters {
    rule: Name,
    shards: [Shard; SHARDS],
}

/// As long as two cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard([AtomicU64; COUNTED.len() + 1]);

/// What is counted: the outcome and the source of a decision.
pub(super) const COUNTED: [(&str, Source); 10] = [
    ("allowed", Source::Store),
    ("denied", Source::Store),
    ("allowed", Source::Local),
    ("denied", Source::Local),
    ("denied", Source::Remembered),
    ("delayed", Source::Store),
    ("delayed", Source::Local),
    ("never_fits", Source::Store),
    ("never_fits", Source::Local),
    ("closed", Source::Closed),
];

/// The first of these happen to every rule sooner or later.
pub(super) const USUAL: usize = 2;

/// Behind these: what a shadow would have denied.
const SHADOW: usize = COUNTED.len();

fn counted(verdict: Verdict, source: Source) -> usize {
    let is_local = source == Source::Local;
    match verdict {
        _ if source == Source::Closed => 9,
        Verdict::Allow if is_local => 2,
        Verdict::Allow => 0,
        Verdict::Deny { .. } if is_local => 3,
        Verdict::Deny { .. } if source == Source::Remembered => 4,
        Verdict::Deny { .. } => 1,
        Verdict::AllowAfter(_) if is_local => 6,
        Verdict::AllowAfter(_) => 5,
        Verdict::NeverFits if is_local => 8,
        Verdict::NeverFits => 7,
    }
}

impl DecisionCounters {
    pub(super) fn new() -> Self {
        Self {
            chunks: array::from_fn(|_| OnceLock::new()),
            other: RuleCounters::new(Name::NONE),
        }
    }

    pub(super) fn count(&self, decision: &Decision) {
        let rule = decision.tier().map_or(Name::NONE, Tier::rule);
        self.of(rule)
            .add(counted(decision.verdict(), decision.source()));
        for tier in decision.tiers() {
            if tier.is_shadow() && !tier.verdict().allowed() {
                self.of(tier.rule()).add(SHADOW);
            }
        }
    }

    #[inline]
    fn of(&self, rule: Name) -> &RuleCounters {
        let number = rule.number();
        let Some(chunk) = self.chunks.get(number / CHUNK) else {
            return &self.other;
        };
        let chunk = chunk.get_or_init(|| Box::new(array::from_fn(|_| OnceLock::new())));
        chunk[number % CHUNK].get_or_init(|| Box::new(RuleCounters::new(rule)))
    }

    /// The counters of these rules, with their names.
    pub(super) fn of_rules(
        &self,
        rules: &[Name],
    ) -> impl Iterator<Item = (&'static str, &RuleCounters)> {
        rules.iter().map(|rule| (rule.as_str(), self.of(*rule)))
    }

    /// All other counters, with the names of their rules; empty for no rule.
    pub(super) fn of_others(
        &self,
        rules: &[Name],
    ) -> impl Iterator<Item = (&'static str, &RuleCounters)> {
        let chunks = self.chunks.iter().filter_map(OnceLock::get);
        let known = chunks.flat_map(|chunk| chunk.iter().filter_map(OnceLock::get));
        known
            .filter(|counters| !rules.contains(&counters.rule))
            .map(|counters| (counters.rule.as_str(), &**counters))
    }

    /// What is counted together, because there were too many names.
    pub(super) fn other(&self) -> &RuleCounters {
        &self.other
    }
}

impl RuleCounters {
    fn new(rule: Name) -> Self {
        Self {
            rule,
            shards: array::from_fn(|_| Shard::default()),
        }
    }

    #[inline]
    fn add(&self, counted: usize) {
        self.shards[shard()].0[counted].fetch_add(1, Relaxed);
    }

    /// How many decisions of this kind of [`COUNTED`].
    pub(super) fn get(&self, counted: usize) -> u64 {
        let shards = self.shards.iter();
        shards.map(|shard| shard.0[counted].load(Relaxed)).sum()
    }

    /// How many requests a shadow would have denied.
    pub(super) fn shadow_denials(&self) -> u64 {
        self.get(SHADOW)
    }
}

/// The shard of this thread.
#[inline]
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: usize = NEXT.fetch_add(1, Relaxed) % SHARDS;
    }
    // While a thread ends, any will do.
    SHARD.try_with(|shard| *shard).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_kind_of_decision_has_a_counter_of_its_own() {
        let verdicts = [
            ("allowed", Verdict::Allow),
            ("delayed", Verdict::AllowAfter(Duration::ZERO)),
            (
                "denied",
                Verdict::Deny {
                    retry_after: Duration::ZERO,
                },
            ),
            ("never_fits", Verdict::NeverFits),
        ];
        for (name, verdict) in verdicts {
            for source in [Source::Store, Source::Local] {
                assert_eq!(COUNTED[counted(verdict, source)], (name, source));
            }
            let closed = COUNTED[counted(verdict, Source::Closed)];
            assert_eq!(closed, ("closed", Source::Closed));
        }
        let remembered = COUNTED[counted(verdicts[2].1, Source::Remembered)];
        assert_eq!(remembered, ("denied", Source::Remembered));
    }
}
