//! What the clients that a request names have used.
//!
//! First the buckets of the request itself, by the rules. A shared store also knows what else its subjects used: each of their records
//! has a hash of the rule that it belongs to, and is then looked at by that rule's limit like any other bucket.

use crate::decision::Tier;
use crate::dimension::Dimension;
use crate::request::Request;
use crate::rule::{MatchedView, Rule};
use crate::store::{Charge, MemoryStore, Outcome};
use crate::usage::{BucketKind, Usage};

use super::charge_target::{Buckets, ChargeTarget, charge, key_charge};

#[cfg(feature = "redis")]
use {
    crate::dimension::Part,
    crate::name::Name,
    crate::rule::Family,
    crate::store::{Address, Record, RedisError, RedisStore},
    std::time::Duration,
};

/// Buckets in one look; no more fit into a call to the store.
const MAX_AT_ONCE: usize = 255;

/// The rules that count by something the request has, or for all requests.
fn inspected<'a>(view: &MatchedView<'a>) -> impl Iterator<Item = &'a Rule> {
    let (rules, request) = (view.rules.iter().copied(), view.request);
    rules.filter(move |rule| rule.has_subject_in(request))
}

/// What a request lacks stands for all requests without it: their bucket matters only if something is used.
fn is_worth_showing(usage: &Usage, rule: &Rule, request: &Request<'_>) -> bool {
    usage.is_used() || (usage.bucket() == BucketKind::Matched && rule.is_named_by(request))
}

/// The usage in this process.
pub(super) fn inspect_memory(store: &MemoryStore, target: &ChargeTarget<'_>) -> Vec<Usage> {
    let view = match target.buckets() {
        Buckets::Matched(view) => view,
        Buckets::Key { key, limit } => return vec![key_usage(store, key_charge(key, limit, 0))],
    };
    let rules: Vec<&Rule> = inspected(&view).collect();
    let usages = look_in_memory(store, &view, &rules);
    (rules.into_iter().zip(usages))
        .filter(|(rule, usage)| is_worth_showing(usage, rule, view.request))
        .map(|(_, usage)| usage)
        .collect()
}

/// The usage of a key in this process.
pub(super) fn key_usage(store: &MemoryStore, charge: Charge<'_>) -> Usage {
    let mut tier = Tier::new(&charge, Outcome::NONE);
    store.visit_all(&[charge], std::slice::from_mut(&mut tier), false);
    Usage::of_tier(BucketKind::Matched, Some(Dimension::Key), tier)
}

/// The request's usage of these rules.
pub(super) fn look_in_memory(
    store: &MemoryStore,
    view: &MatchedView<'_>,
    rules: &[&Rule],
) -> Vec<Usage> {
    let mut usages = Vec::with_capacity(rules.len());
    for rules in rules.chunks(MAX_AT_ONCE) {
        let charges: Vec<Charge<'_>> = rules.iter().map(|rule| charge(rule, view, 0)).collect();
        let tier = |charge| Tier::new(charge, Outcome::NONE);
        let mut tiers: Vec<Tier> = charges.iter().map(tier).collect();
        store.visit_all(&charges, &mut tiers, false);
        usages.extend((rules.iter().zip(tiers)).map(|(rule, tier)| {
            let subject = rule.dimensions().first().copied();
            Usage::of_tier(BucketKind::Matched, subject, tier)
        }));
    }
    usages
}

/// Buckets that were found in a shared store.
#[cfg(feature = "redis")]
pub(super) struct Found<'a> {
    known: Vec<KnownBucket<'a>>,
    unknown: Vec<UnknownBucket>,
}

/// A bucket in the store, and the rule to look at it by.
#[cfg(feature = "redis")]
struct KnownBucket<'a> {
    rule: &'a Rule,
    address: Address,
    bucket: BucketKind,
    /// Where it was found.
    subject: Option<Dimension>,
}

/// A bucket in the store whose limit is not known.
#[cfg(feature = "redis")]
struct UnknownBucket {
    /// If it is one of ours: then it is not known which plan's.
    rule: Option<Name>,
    record: Record,
    subject: Option<Dimension>,
}

/// The usage in a shared store.
#[cfg(feature = "redis")]
pub(super) async fn inspect_store(
    store: &RedisStore,
    target: &ChargeTarget<'_>,
) -> Result<Vec<Usage>, RedisError> {
    let view = match target.buckets() {
        Buckets::Matched(view) => view,
        Buckets::Key { key, limit } => {
            let usage = stored_key_usage(store, key_charge(key, limit, 0)).await?;
            return Ok(vec![usage]);
        }
    };
    let mut found = Found::of_rules(inspected(&view), store, view.request);
    let of_all_requests = None;
    for subject in view.request.parts().map(Some).chain([of_all_requests]) {
        found.add_all_of(subject, store, &view).await?;
    }
    found.look(store, &view).await
}

/// The usage of a key in a shared store.
#[cfg(feature = "redis")]
pub(super) async fn stored_key_usage(
    store: &RedisStore,
    charge: Charge<'_>,
) -> Result<Usage, RedisError> {
    let addresses = vec![store.address(&charge.bucket)];
    let taken = store.look(&[charge], addresses).await?;
    let outcome = taken.outcomes.first().copied().unwrap_or(Outcome::NONE);
    let tier = Tier::new(&charge, outcome);
    Ok(Usage::of_tier(
        BucketKind::Matched,
        Some(Dimension::Key),
        tier,
    ))
}

#[cfg(feature = "redis")]
impl<'a> Found<'a> {
    /// The buckets of these rules, used or not.
    pub(super) fn of_rules(
        rules: impl Iterator<Item = &'a Rule>,
        store: &RedisStore,
        request: &Request<'_>,
    ) -> Self {
        let known = |rule: &'a Rule| KnownBucket {
            rule,
            address: store.address(&rule.bucket(request)),
            bucket: BucketKind::Matched,
            subject: rule.dimensions().first().copied(),
        };
        Self {
            known: rules.map(known).collect(),
            unknown: Vec::new(),
        }
    }

    /// Adds all other buckets of a subject; those for all requests if there is none.
    pub(super) async fn add_all_of(
        &mut self,
        subject: Option<Part<'_>>,
        store: &RedisStore,
        view: &MatchedView<'a>,
    ) -> Result<(), RedisError> {
        let records = store.records(subject).await?;
        let subject = subject.map(|part| part.dimension);
        for record in records {
            let mut known = self.known.iter();
            if known.any(|known| known.address == record.address) {
                continue;
            }
            let mut families = view.set.families().iter();
            let family = families.find(|family| record.address.is_of(family.id()));
            match family.and_then(|family| rule_of(&record, family, store, view.request)) {
                Some(rule) => self.known.push(KnownBucket {
                    rule,
                    bucket: BucketKind::Other(record.address.short_id()),
                    address: record.address,
                    subject,
                }),
                None => self.unknown.push(UnknownBucket {
                    rule: family.map(Family::id),
                    record,
                    subject,
                }),
            }
        }
        Ok(())
    }

    /// The usage of all that was found, as far as it is worth showing.
    pub(super) async fn look(
        &self,
        store: &RedisStore,
        view: &MatchedView<'_>,
    ) -> Result<Vec<Usage>, RedisError> {
        let mut usages = Vec::with_capacity(self.known.len() + self.unknown.len());
        let mut now_us = 0;
        if self.known.is_empty() {
            // Only for the store's time.
            now_us = store.look(&[], Vec::new()).await?.at_us;
        }
        for known in self.known.chunks(MAX_AT_ONCE) {
            // The address says where to look, and the charge by which limit.
            let charges: Vec<Charge<'_>> = (known.iter())
                .map(|known| charge(known.rule, view, 0))
                .collect();
            let addresses = known.iter().map(|known| known.address.clone()).collect();
            let taken = store.look(&charges, addresses).await?;
            now_us = taken.at_us.max(now_us);
            for ((known, charge), outcome) in known.iter().zip(&charges).zip(taken.outcomes) {
                let tier = Tier::new(charge, outcome);
                let usage = Usage::of_tier(known.bucket, known.subject, tier);
                if is_worth_showing(&usage, known.rule, view.request) {
                    usages.push(usage);
                }
            }
        }
        let unknown = self.unknown.iter().map(|unknown| {
            let record = &unknown.record;
            let left = Duration::from_micros(record.until_us.saturating_sub(now_us));
            let id = record.address.short_id();
            Usage::without_limit(unknown.rule, id, unknown.subject, left)
        });
        usages.extend(unknown.filter(Usage::is_used));
        Ok(usages)
    }

    /// The addresses of all that was found.
    pub(super) fn into_addresses(self) -> Vec<Address> {
        let known = self.known.into_iter().map(|known| known.address);
        let unknown = self.unknown.into_iter();
        (known.chain(unknown.map(|unknown| unknown.record.address))).collect()
    }
}

/// The rule of this id whose plan a record counts for, if that can be told.
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
        return family.rule_for(request);
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
