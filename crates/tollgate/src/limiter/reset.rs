//! What a reset forgets: what those used whom a request names.
//!
//! Who frees a caller does not mean what it shares with all others, such as a bucket for everybody or one for a route. That is meant only by a
//! request that names no caller.

use crate::request::Request;
use crate::rule::{Met, Rule, RuleSet};
use crate::store::MemoryStore;
use crate::usage::Usage;

use super::inspection::look_in_memory;

#[cfg(feature = "redis")]
use {
    super::inspection::Found,
    crate::dimension::Part,
    crate::store::{RedisError, RedisStore},
};

/// The rules whose buckets are meant and can be named.
///
/// Those that the request meets, and also those it does not meet but says everything they count by: a client is meant with what it did
/// elsewhere.
pub(super) fn meant<'a>(rules: &'a RuleSet, met: &Met<'_>) -> Vec<&'a Rule> {
    let request = met.request();
    let names_somebody = request.names_somebody();
    let goes_beyond = names_somebody || request.says_nothing();
    let is_met = |rule: &Rule| met.rules().iter().any(|met| std::ptr::eq(*met, rule));
    (rules.families().iter())
        .filter_map(|family| family.figures(request))
        .filter(|rule| is_met(rule) || (goes_beyond && rule.is_named_by(request)))
        .filter(|rule| match names_somebody {
            true => counts_for_somebody_in(rule, request),
            // Not those of callers without a name: nobody spoke of them.
            false => rule.has_subject_in(request),
        })
        .collect()
}

/// Whether a bucket of this rule is one of a caller whom the request names.
fn counts_for_somebody_in(rule: &Rule, request: &Request<'_>) -> bool {
    let mut per = rule.dimensions().iter();
    per.any(|dimension| dimension.is_caller() && request.value(*dimension).is_some())
}

/// Forgets it in this process, and says what it was.
pub(super) fn reset_memory(
    store: &MemoryStore,
    rules: &RuleSet,
    request: &Request<'_>,
) -> Vec<Usage> {
    let met = rules.meet(request);
    let meant = meant(rules, &met);
    let mut usages = look_in_memory(store, &met, &meant);
    usages.retain(Usage::is_used);
    for rule in meant {
        store.reset_one(&rule.bucket(met.request()));
    }
    usages
}

/// Forgets it in a store that is shared, with all else that lies under the same subjects, and says what it was.
#[cfg(feature = "redis")]
pub(super) async fn reset_store(
    store: &RedisStore,
    rules: &RuleSet,
    met: &Met<'_>,
    meant: &[&Rule],
) -> Result<Vec<Usage>, RedisError> {
    let mut found = Found::asked(meant.iter().copied(), store, met.request());
    for subject in subjects(met.request()) {
        found.add_all_of(subject, store, rules, met).await?;
    }
    let mut usages = found.look(store, met).await?;
    usages.retain(Usage::is_used);
    store.forget(found.into_addresses()).await?;
    Ok(usages)
}

/// Under whom all is meant, also what no rule can name any more. Nobody is everybody.
#[cfg(feature = "redis")]
fn subjects<'a>(request: &'a Request<'_>) -> impl Iterator<Item = Option<Part<'a>>> {
    let names_somebody = request.names_somebody();
    let said = request.parts();
    (said.filter(move |part| part.dimension.is_caller() == names_somebody))
        .map(Some)
        .chain(request.says_nothing().then_some(None))
}
