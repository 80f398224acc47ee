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
    crate::rule::Family,
    crate::store::{Address, Record, RedisError, RedisStore},
    std::time::Duration,
};

/// In one look; no more fit into a request to the store.
#[cfg(feature = "redis")]
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
    let request = met.request();
    let (rules, charges): (Vec<&Rule>, Vec<Charge<'_>>) =
        asked(&met).map(|rule| (rule, look(rule, &met))).unzip();
    let tier = |charge| Tier::new(charge, Outcome::NONE);
    let mut tiers: Vec<Tier> = charges.iter().map(tier).collect();
    store.visit_all(&charges, &mut tiers, false);
    (rules.into_iter().zip(tiers))
        .map(|(rule, tier)| (rule, Usage::of_tier(WhichBucket::Asked, tier)))
        .filter(|(rule, usage)| is_worth_saying(usage, rule, request))
        .map(|(_, usage)| usage)
        .collect()
}

/// A bucket in the store, and the rule to look at it by.
#[cfg(feature = "redis")]
struct Sight<'a> {
    rule: &'a Rule,
    address: Address,
    bucket: WhichBucket,
}

/// What is kept in a store that is shared.
#[cfg(feature = "redis")]
pub(super) async fn inspect_store(
    store: &RedisStore,
    rules: &RuleSet,
    request: &Request<'_>,
) -> Result<Vec<Usage>, RedisError> {
    let met = rules.meet(request);
    let request = met.request();
    let mut sights: Vec<Sight<'_>> = asked(&met)
        .map(|rule| Sight {
            rule,
            address: store.address(&rule.bucket(request)),
            bucket: WhichBucket::Asked,
        })
        .collect();
    let mut strangers = Vec::new();
    let subjects = request.parts().map(Some).chain([None]);
    for subject in subjects {
        for record in store.records(subject).await? {
            if sights.iter().any(|sight| sight.address == record.address) {
                continue;
            }
            let mut families = rules.families().iter();
            let family = families.find(|family| record.address.is_of(family.id()));
            match family.and_then(|family| rule_of(&record, family, store, request)) {
                Some(rule) => sights.push(Sight {
                    rule,
                    bucket: WhichBucket::Other(record.address.short_id()),
                    address: record.address,
                }),
                None => strangers.push((family.map(Family::id), record)),
            }
        }
    }
    let mut usages = Vec::with_capacity(sights.len() + strangers.len());
    let mut now_us = 0;
    if sights.is_empty() {
        // Only to hear the time.
        now_us = store.look(&[], Vec::new()).await?.at_us;
    }
    for sights in sights.chunks(MOST_AT_ONCE) {
        // Where to look is said by the address; the charge says how.
        let charges: Vec<Charge<'_>> = (sights.iter())
            .map(|sight| look(sight.rule, &met))
            .collect();
        let addresses = sights.iter().map(|sight| sight.address.clone()).collect();
        let taken = store.look(&charges, addresses).await?;
        now_us = taken.at_us.max(now_us);
        for ((sight, charge), outcome) in sights.iter().zip(&charges).zip(taken.outcomes) {
            let usage = Usage::of_tier(sight.bucket, Tier::new(charge, outcome));
            if is_worth_saying(&usage, sight.rule, request) {
                usages.push(usage);
            }
        }
    }
    let strangers = strangers.into_iter().map(|(rule, record)| {
        let left = Duration::from_micros(record.until_us.saturating_sub(now_us));
        Usage::of_stranger(rule, record.address.short_id(), left)
    });
    usages.extend(strangers.filter(Usage::is_used));
    Ok(usages)
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
