//! What a reset forgets: the usage of the clients that a request names.
//!
//! To reset a client does not reset what it shares with others, such as a bucket for all requests or one for a route. Only a request
//! that names no client resets that.

use crate::request::Request;
use crate::rule::{MatchedView, Rule};
use crate::store::MemoryStore;
use crate::usage::Usage;

use super::charge_target::{Buckets, ChargeTarget, key_charge};
use super::inspection::{key_usage, look_in_memory};

#[cfg(feature = "redis")]
use {
    super::inspection::{Found, stored_key_usage},
    crate::dimension::Part,
    crate::store::{Charge, RedisError, RedisStore},
};

/// The rules whose buckets are reset and can be named.
///
/// Those that apply to the request, and also those that do not but count by nothing but what it has: a client is reset with what it
/// did elsewhere.
pub(super) fn reset_rules<'a>(view: &MatchedView<'a>) -> Vec<&'a Rule> {
    let request = view.request;
    let names_client = request.identifies_caller();
    let goes_beyond = names_client || request.is_empty();
    let applies = |rule: &Rule| view.rules.iter().any(|known| std::ptr::eq(*known, rule));
    (view.set.families().iter())
        .filter_map(|family| family.rule_for(request))
        .filter(|rule| applies(rule) || (goes_beyond && rule.is_named_by(request)))
        .filter(|rule| match names_client {
            true => counts_for_client_in(rule, request),
            // Not those of clients without a name, which were not meant.
            false => rule.has_subject_in(request),
        })
        .collect()
}

/// Whether the bucket of this rule is one of a client that the request names.
fn counts_for_client_in(rule: &Rule, request: &Request<'_>) -> bool {
    let mut per = rule.dimensions().iter();
    per.any(|dimension| dimension.is_caller() && request.value(*dimension).is_some())
}

/// Resets the usage in this process, and returns what it was.
pub(super) fn reset_memory(store: &MemoryStore, target: &ChargeTarget<'_>) -> Vec<Usage> {
    let mut usages;
    match target.buckets() {
        Buckets::Matched(view) => {
            let rules = reset_rules(&view);
            usages = look_in_memory(store, &view, &rules);
            for rule in rules {
                store.reset_one(&rule.bucket(view.request));
            }
        }
        Buckets::Key { key, limit } => {
            let charge = key_charge(key, limit, 0);
            usages = vec![key_usage(store, charge)];
            store.reset_one(&charge.bucket);
        }
    }
    usages.retain(Usage::is_used);
    usages
}

/// Resets these buckets in a shared store with everything else of the same subjects, and returns what it was.
#[cfg(feature = "redis")]
pub(super) async fn reset_store(
    store: &RedisStore,
    view: &MatchedView<'_>,
    rules: &[&Rule],
) -> Result<Vec<Usage>, RedisError> {
    let mut found = Found::of_rules(rules.iter().copied(), store, view.request);
    for subject in subjects(view.request) {
        found.add_all_of(subject, store, view).await?;
    }
    let mut usages = found.look(store, view).await?;
    usages.retain(Usage::is_used);
    store.forget(found.into_addresses()).await?;
    Ok(usages)
}

/// Resets the bucket of a key in a shared store, and returns what it was.
#[cfg(feature = "redis")]
pub(super) async fn reset_stored_key(
    store: &RedisStore,
    charge: Charge<'_>,
) -> Result<Vec<Usage>, RedisError> {
    let usage = stored_key_usage(store, charge).await?;
    store.forget(vec![store.address(&charge.bucket)]).await?;
    Ok(Some(usage).filter(Usage::is_used).into_iter().collect())
}

/// The subjects of which everything is reset, also what no rule can name any more. `None` stands for the buckets for all requests.
#[cfg(feature = "redis")]
fn subjects<'a>(request: &'a Request<'_>) -> impl Iterator<Item = Option<Part<'a>>> {
    let names_client = request.identifies_caller();
    let parts = request.parts();
    (parts.filter(move |part| part.dimension.is_caller() == names_client))
        .map(Some)
        .chain(request.is_empty().then_some(None))
}
