//! What is legal and surely not meant. Each warning is one function, and says why it matters and what to do.
//!
//! They look at a draft in which nothing is wrong any more.

mod callers;
mod requests;
mod secrets;

#[cfg(test)]
mod tests;

use super::draft::Draft;
use super::policy::named;
use super::rules::{self, RuleEntry};
use super::storage::RulesFrom;
use super::store::StoreConfig;
use crate::document::{Node, Problems};
use callers::buckets_of_all_without_a_header;

/// Adds all warnings.
pub(super) fn all(draft: &Draft, problems: &mut Problems) {
    let each: [fn(&Draft, &mut Problems); 23] = [
        nothing_listens,
        nothing_is_limited,
        idle_store_fields,
        requests::plan_that_nobody_has,
        requests::plan_that_its_match_excludes,
        requests::path_without_upstream,
        requests::path_in_another_notation,
        requests::limit_below_a_cost,
        requests::cost_that_no_rule_counts,
        requests::large_sliding_log,
        callers::everybody_behind_one_proxy,
        callers::names_that_anybody_can_invent,
        callers::plans_that_nobody_vouches_for,
        callers::everybody_is_trusted,
        callers::key_source_without_keys,
        callers::keys_without_a_source,
        callers::bucket_of_all_without_a_header,
        callers::headers_that_are_dropped,
        secrets::redis_password_without_tls,
        secrets::database_without_verified_tls,
        secrets::token_in_clear,
        secrets::redis_password_in_clear,
        secrets::database_password_in_clear,
    ];
    for warn in each {
        warn(draft, problems);
    }
}

/// What is legal in rule documents and surely not meant. Those that are wrong are left out.
pub fn rule_warnings(rules: &[Node]) -> Problems {
    let mut wrong = Problems::default();
    let rules: Vec<RuleEntry> = (rules.iter().enumerate())
        .filter_map(|(nth, node)| rules::rule(&named("rule", nth, node), &mut wrong))
        .collect();
    let mut warnings = Problems::default();
    buckets_of_all_without_a_header(&rules, &mut warnings);
    warnings
}

fn nothing_listens(draft: &Draft, problems: &mut Problems) {
    if draft.gateway.is_none() && draft.service.is_none() {
        problems
            .warning(
                Default::default(),
                "neither gateway nor service is configured: nobody can ask anything",
            )
            .help("add gateway: { upstreams: [...] } or service: {}");
    }
}

fn nothing_is_limited(draft: &Draft, problems: &mut Problems) {
    let any = draft.rules.iter().any(RuleEntry::is_on);
    if draft.rules_from == RulesFrom::File && !any {
        problems
            .warning(
                draft.spots.rules.clone(),
                "there is no rule that is on: nothing is limited",
            )
            .help("begin with: - { id: client, per: [client], limit: \"10/s burst 50\" }");
    }
}

fn idle_store_fields(draft: &Draft, problems: &mut Problems) {
    let why = match draft.store.store {
        StoreConfig::Memory(_) => "it is about Redis, and usage is kept in memory",
        StoreConfig::Redis(_) => "it is about memory, and usage is kept in Redis",
    };
    for spot in &draft.store.idle {
        problems
            .warning(spot.clone(), format!("this changes nothing: {why}"))
            .help("leave it out, or say where usage is kept with `redis`");
    }
}
