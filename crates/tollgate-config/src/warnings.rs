//! Warnings: what is valid, but probably a mistake. Each is one function, and says why it matters and what to do.
//!
//! They look at a draft without errors.

mod callers;
mod requests;
mod secrets;

#[cfg(test)]
mod tests;

use std::cell::RefCell;

use super::draft::Draft;
use super::policy::read_rules;
use super::rules::RuleEntry;
use super::storage::RulesFrom;
use super::store::StoreConfig;
use crate::document::{Location, Node, Problems};

/// All warnings of a configuration.
pub(super) fn all(draft: &Draft<'_>) -> Problems {
    let each: [fn(&Draft<'_>, &mut Problems); 21] = [
        nothing_listens,
        nothing_is_limited,
        unused_store_fields,
        requests::plan_without_clients,
        requests::plan_excluded_by_match,
        requests::path_without_upstream,
        requests::path_in_another_notation,
        requests::limit_below_a_cost,
        requests::cost_without_rule,
        requests::large_sliding_log,
        callers::untrusted_proxy_in_front,
        callers::client_names_without_proof,
        callers::plans_without_trusted_proxy,
        callers::everybody_is_trusted,
        callers::keys_and_their_source,
        callers::bucket_of_all_without_a_header,
        callers::headers_that_are_dropped,
        secrets::redis_password_without_tls,
        secrets::database_without_verified_tls,
        secrets::token_in_file,
        secrets::password_in_file,
    ];
    let mut problems = Problems::default();
    for warn in each {
        warn(draft, &mut problems);
    }
    problems
}

/// The warnings of rule documents. Those with an error are left out.
#[must_use]
pub fn rule_warnings(rules: &[Node]) -> Problems {
    let errors = RefCell::default();
    let mut warnings = Problems::default();
    callers::buckets_of_all_without_a_header(&read_rules(rules, &errors), &mut warnings);
    warnings
}

/// The rules that are not off.
fn rules_in_force<'d, 'a>(draft: &'d Draft<'a>) -> impl Iterator<Item = &'d RuleEntry<'a>> + Clone {
    draft.rules.iter().filter(|rule| rule.is_on)
}

fn nothing_listens(draft: &Draft<'_>, problems: &mut Problems) {
    if draft.gateway.is_none() && draft.service.is_none() {
        let message = "neither gateway nor service is configured, so no request arrives";
        let help = "add gateway: { upstreams: [...] } or service: {}";
        problems.warning(Location::default(), message, help);
    }
}

fn nothing_is_limited(draft: &Draft<'_>, problems: &mut Problems) {
    if draft.rules_from == RulesFrom::File && rules_in_force(draft).next().is_none() {
        let message = "no rule is on, so nothing is limited";
        let help = "begin with: - { id: client, per: [client], limit: \"10/s burst 50\" }";
        problems.warning(draft.root.location_of("rules"), message, help);
    }
}

fn unused_store_fields(draft: &Draft<'_>, problems: &mut Problems) {
    let why = match draft.store.store {
        StoreConfig::Memory(_) => "it is for Redis, and usage is stored in memory",
        StoreConfig::Redis(_) => "it is for memory, and usage is stored in Redis",
    };
    for location in &draft.store.unused {
        let help = "remove it, or set the address of Redis in `redis`";
        problems.warning(location.clone(), format!("this has no effect: {why}"), help);
    }
}
