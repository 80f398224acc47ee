//! What was used by those whom a request names.
//!
//! First what the request itself meets, by the rules. A shared store also knows what else its subjects used: each of their records
//! says by a hash which rule it belongs to, and is then looked at by that rule's figures like any other bucket.

use crate::decision::Tier;
use crate::request::Request;
use crate::rule::{Met, Rule, RuleSet};
use crate::store::{Charge, MemoryStore, Outcome};
use crate::usage::{Usage, WhichBucket};

#[cfg(feature = "redis")]
use {
    crate::dimension::{Dimension, Part},
    crate::name::Name,
    crate::rule::Family,
    crate::store::{Address, Record, RedisError, RedisStore},
    std::time::Duration,
};

/// In one look; no more fit into a request to the store.
const MOST_AT_ONCE: usize = 255;

/// The rules that count for somebody whom the request names, or for everybody.
fn asked<'a>(met: &'a Met<'_>) -> impl Iterator<Item = &'a Rule> {
    let rules = met.rules().iter().copied();
    rules.filter(|rule| rule.has_subject_in(met.request()))
}

/// A bucket, to be looked at.
fn look<'a>(rule: &'a Rule, met: &'a Met<'_>) -> Charge<'a> {
    Charge {
        cost: 0,
        ..super::local::charge(rule, met)
    }
}

/// What a request leaves out stands for all requests without it: their bucket matters only if something is used.
fn is_worth_saying(usage: &Usage, rule: &Rule, request: &Request<'_>) -> bool {
    usage.is_used() || (usage.bucket() == WhichBucket::Asked && rule.is_named_by(request))
}

/// What is kept in this process.
pub(super) fn inspect_memory(
    store: &MemoryStore,
    rules: &RuleSet,
    request: &Request<'_>,
) -> Vec<Usage> {
    let met = rules.meet(request);
    let rules: Vec<&Rule> = asked(&met).collect();
    let usages = look_in_memory(store, &met, &rules);
    (rules.into_iter().zip(usages))
        .filter(|(rule, usage)| is_worth_saying(usage, rule, met.request()))
        .map(|(_, usage)| usage)
        .collect()
}

/// What is used of these rules by the request.
pub(super) fn look_in_memory(store: &MemoryStore, met: &Met<'_>, rules: &[&Rule]) -> Vec<Usage> {
    let mut usages = Vec::with_capacity(rules.len());
    for rules in rules.chunks(MOST_AT_ONCE) {
        let charges: Vec<Charge<'_>> = rules.iter().map(|rule| look(rule, met)).collect();
        let tier = |charge| Tier::new(charge, Outcome::NONE);
        let mut tiers: Vec<Tier> = charges.iter().map(tier).collect();
        store.visit_all(&charges, &mut tiers, false);
        usages.extend((rules.iter().zip(tiers)).map(|(rule, tier)| {
            let subject = rule.dimensions().first().copied();
            Usage::of_tier(WhichBucket::Asked, subject, tier)
        }));
    }
    usages
}

/// What was found in a store that is shared.
#[cfg(feature = "redis")]
pub(super) struct Found<'a> {
    sights: Vec<Sight<'a>>,
    strangers: Vec<Stranger>,
}

/// A bucket in the store, and the rule to look at it by.
#[cfg(feature = "redis")]
struct Sight<'a> {
    rule: &'a Rule,
    address: Address,
    bucket: WhichBucket,
    /// Under whom it was found.
    subject: Option<Dimension>,
}

/// A bucket in the store whose figures nobody can say.
#[cfg(feature = "redis")]
struct Stranger {
    /// If it is one of ours: then it is not known by which plan it counts.
    rule: Option<Name>,
    record: Record,
    subject: Option<Dimension>,
}

/// What is kept in a store that is shared.
#[cfg(feature = "redis")]
pub(super) async fn inspect_store(
    store: &RedisStore,
    rules: &RuleSet,
    request: &Request<'_>,
) -> Result<Vec<Usage>, RedisError> {
    let met = rules.meet(request);
    let mut found = Found::asked(asked(&met), store, met.request());
    let everybody = None;
    for subject in met.request().parts().map(Some).chain([everybody]) {
        found.add_all_of(subject, store, rules, &met).await?;
    }
    found.look(store, &met).await
}

#[cfg(feature = "redis")]
impl<'a> Found<'a> {
    /// The buckets of these rules, be they used or not.
    pub(super) fn asked(
        rules: impl Iterator<Item = &'a Rule>,
        store: &RedisStore,
        request: &Request<'_>,
    ) -> Self {
        let sight = |rule: &'a Rule| Sight {
            rule,
            address: store.address(&rule.bucket(request)),
            bucket: WhichBucket::Asked,
            subject: rule.dimensions().first().copied(),
        };
        Self {
            sights: rules.map(sight).collect(),
            strangers: Vec::new(),
        }
    }

    /// Whatever else lies under a subject; under everybody, if it is nobody.
    pub(super) async fn add_all_of(
        &mut self,
        subject: Option<Part<'_>>,
        store: &RedisStore,
        rules: &'a RuleSet,
        met: &Met<'_>,
    ) -> Result<(), RedisError> {
        let records = store.records(subject).await?;
        let subject = subject.map(|part| part.dimension);
        for record in records {
            let mut known = self.sights.iter();
            if known.any(|sight| sight.address == record.address) {
                continue;
            }
            let mut families = rules.families().iter();
            let family = families.find(|family| record.address.is_of(family.id()));
            match family.and_then(|family| rule_of(&record, family, store, met.request())) {
                Some(rule) => self.sights.push(Sight {
                    rule,
                    bucket: WhichBucket::Other(record.address.short_id()),
                    address: record.address,
                    subject,
                }),
                None => self.strangers.push(Stranger {
                    rule: family.map(Family::id),
                    record,
                    subject,
                }),
            }
        }
        Ok(())
    }

    /// What is used of all that was found, as far as it is worth saying.
    pub(super) async fn look(
        &self,
        store: &RedisStore,
        met: &Met<'_>,
    ) -> Result<Vec<Usage>, RedisError> {
        let mut usages = Vec::with_capacity(self.sights.len() + self.strangers.len());
        let mut now_us = 0;
        if self.sights.is_empty() {
            // Only to hear the time.
            now_us = store.look(&[], Vec::new()).await?.at_us;
        }
        for sights in self.sights.chunks(MOST_AT_ONCE) {
            // Where to look is said by the address; the charge says how.
            let charges: Vec<Charge<'_>> =
                (sights.iter()).map(|sight| look(sight.rule, met)).collect();
            let addresses = sights.iter().map(|sight| sight.address.clone()).collect();
            let taken = store.look(&charges, addresses).await?;
            now_us = taken.at_us.max(now_us);
            for ((sight, charge), outcome) in sights.iter().zip(&charges).zip(taken.outcomes) {
                let tier = Tier::new(charge, outcome);
                let usage = Usage::of_tier(sight.bucket, sight.subject, tier);
                if is_worth_saying(&usage, sight.rule, met.request()) {
                    usages.push(usage);
                }
            }
        }
        let strangers = self.strangers.iter().map(|stranger| {
            let record = &stranger.record;
            let left = Duration::from_micros(record.until_us.saturating_sub(now_us));
            let id = record.address.short_id();
            Usage::of_stranger(stranger.rule, id, stranger.subject, left)
        });
        usages.extend(strangers.filter(Usage::is_used));
        Ok(usages)
    }

    /// Where all of it lies.
    pub(super) fn into_addresses(self) -> Vec<Address> {
        let sights = self.sights.into_iter().map(|sight| sight.address);
        let strangers = self.strangers.into_iter();
        (sights.chain(strangers.map(|stranger| stranger.record.address))).collect()
    }
}

/// By which of a rule's figures a record counts, if that can be said.
#[cfg(feature = "redis")]
fn rule_of<'a>(
    record: &Record,
    family: &'a Family,
    store: &RedisStore,
    request: &Request<'_>,
) -> Option<&'a Rule> {
    let mut rules = family.rules();
    if let (Some(only), None) = (rules.next(), rules.next()) {
        return Some(only);
    }
    if !family.rules().any(Rule::counts_by_plan) {
        // Whatever its plan, a client has one bucket.
        return family.figures(request);
    }
    // Each plan has buckets of its own: it is the one whose bucket this is.
    family.rules().find(|rule| {
        let planned = match rule.plan_name() {
            Some(plan) => request.clone().plan(plan),
            None => request.clone(),
        };
        store.address(&rule.bucket(&planned)) == record.address
    })
}
