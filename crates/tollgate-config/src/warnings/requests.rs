//! Rules, costs and limits that no request can meet, or that none can pass.

use std::collections::HashSet;

use tollgate::Algorithm;

use crate::conditions::patterns_overlap;
use crate::document::Problems;
use crate::draft::Draft;
use crate::rules::{CostEntry, RuleEntry};
use crate::storage::RulesFrom;
use tollgate::words::grouped;

/// Sliding logs above this many entries are worth a word.
const LARGE_LOG: u64 = 10_000;

/// Plans come from known clients, or from a header that a trusted proxy sends.
pub(super) fn plan_that_nobody_has(draft: &Draft, problems: &mut Problems) {
    let identity = &draft.identity.config;
    let by_header = !identity.plan.is_empty() && !identity.trusted_proxies.is_empty();
    // The decision service is told plans by whoever asks.
    if draft.rules_from == RulesFrom::Database || by_header || draft.service.is_some() {
        return;
    }
    let clients = draft.clients.iter();
    let had: HashSet<&str> = clients
        .filter_map(|entry| entry.client.plan.as_deref())
        .collect();
    for entry in draft.rules.iter().filter(|entry| entry.is_on()) {
        let wanted: Vec<&str> = match entry.rule.plan_name() {
            Some(plan) => vec![plan],
            None => entry.when.plans.iter().map(String::as_str).collect(),
        };
        if !wanted.is_empty() && !wanted.iter().any(|plan| had.contains(plan)) {
            problems
                .warning(entry.plan_spot.clone(), "nobody has this plan: no request meets this rule")
                .help(
                    "give it to a client in `clients`, or name a header in identity.plan and the proxies that send it in \
                     identity.trusted_proxies",
                );
        }
    }
}

/// `plan: free` and `match: { plan: [pro] }`.
pub(super) fn plan_that_its_match_excludes(draft: &Draft, problems: &mut Problems) {
    for entry in draft.rules.iter().filter(|entry| entry.is_on()) {
        let Some(plan) = entry.rule.plan_name() else {
            continue;
        };
        let plans = &entry.when.plans;
        if !plans.is_empty() && !plans.iter().any(|other| other == plan) {
            problems
                .warning(
                    entry.plan_spot.clone(),
                    "this rule is for a plan that its match excludes: no request meets it",
                )
                .help("leave one of the two out");
        }
    }
}

/// Only with a gateway alone: the service is asked about any path.
pub(super) fn path_without_upstream(draft: &Draft, problems: &mut Problems) {
    let (Some(gateway), None) = (&draft.gateway, &draft.service) else {
        return;
    };
    for entry in draft.rules.iter().filter(|entry| entry.is_on()) {
        let Some(path) = &entry.when.path else {
            continue;
        };
        let mut upstreams = gateway.upstreams.iter();
        let is_served = upstreams.any(|upstream| {
            let all = format!("{}/{{*rest}}", upstream.path.trim_end_matches('/'));
            patterns_overlap(&all, path.as_str())
        });
        if !is_served {
            problems
                .warning(
                    entry.when.path_spot.clone(),
                    "no upstream serves this path: no request meets this rule",
                )
                .help("look at the `path` of the gateway's upstreams");
        }
    }
}

/// `/users/:id` and `/users/<id>` are other people's ways to write `/users/{id}`, and here they are names.
pub(super) fn path_in_another_notation(draft: &Draft, problems: &mut Problems) {
    let rules = draft.rules.iter().map(|entry| &entry.when);
    let costs = draft.costs.iter().map(|entry| &entry.when);
    for when in rules.chain(costs) {
        let Some(path) = &when.path else { continue };
        let is_foreign = |segment: &&str| {
            segment.len() > 1 && segment.starts_with(':')
                || segment.starts_with('<') && segment.ends_with('>')
        };
        if let Some(segment) = path.as_str().split('/').find(is_foreign) {
            let name = segment.trim_matches([':', '<', '>']);
            problems
                .warning(
                    when.path_spot.clone(),
                    "this is taken as it is written, and stands for no other segment",
                )
                .help(format!("write {{{name}}} for any segment"));
        }
    }
}

fn meet(rule: &RuleEntry, cost: &CostEntry) -> bool {
    let plan = match (rule.rule.plan_name(), cost.when.plans.as_slice()) {
        (None, _) | (_, []) => true,
        (Some(plan), plans) => plans.iter().any(|other| other == plan),
    };
    plan && rule.when.overlap(&cost.when)
}

/// A request that costs more than a bucket ever holds is always denied.
pub(super) fn limit_below_a_cost(draft: &Draft, problems: &mut Problems) {
    for rule in draft.rules.iter().filter(|rule| rule.is_on()) {
        let capacity = rule.rule.limit().capacity();
        let costs = draft.costs.iter().filter(|cost| meet(rule, cost));
        let Some(dearest) = costs.max_by_key(|cost| cost.cost.tokens()) else {
            continue;
        };
        let tokens = dearest.cost.tokens();
        if tokens > capacity {
            let (tokens, capacity) = (grouped(tokens), grouped(capacity));
            problems
                .warning(
                    rule.limit_spot.clone(),
                    format!("some requests cost {tokens}, and this limit never holds more than {capacity}: they can never pass"),
                )
                .help(format!("allow a burst of at least {tokens}, or lower the cost"))
                .also(dearest.spot.at, "the cost");
        }
    }
}

pub(super) fn cost_that_no_rule_counts(draft: &Draft, problems: &mut Problems) {
    if draft.rules_from == RulesFrom::Database || draft.rules.is_empty() {
        return;
    }
    for cost in &draft.costs {
        if !draft.rules.iter().any(|rule| meet(rule, cost)) {
            problems
                .warning(
                    cost.spot.clone(),
                    "no rule is for such requests: this cost is never charged",
                )
                .help("compare its match with those of the rules");
        }
    }
}

pub(super) fn large_sliding_log(draft: &Draft, problems: &mut Problems) {
    for rule in draft.rules.iter().filter(|rule| rule.is_on()) {
        let limit = rule.rule.limit();
        let most = limit.capacity();
        if limit.algorithm() == Algorithm::SlidingLog && most > LARGE_LOG {
            let kib = most.saturating_mul(16) / 1024;
            problems
                .warning(
                    rule.limit_spot.clone(),
                    format!(
                        "a sliding log of {} remembers each request: up to {} KiB for every key",
                        grouped(most),
                        grouped(kib)
                    ),
                )
                .help("sliding_counter needs a few bytes, and is off by little");
        }
    }
}
