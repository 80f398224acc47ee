//! Rules, costs and limits that no request can match, or that none can pass.

use std::collections::HashSet;

use tollgate::Algorithm;

use super::Context;
use crate::conditions::patterns_overlap;
use crate::document::Problems;
use crate::rules::{CostEntry, RuleEntry};
use crate::storage::RulesFrom;
use crate::text::grouped;

/// Sliding logs with more entries than this get a warning.
const LARGE_LOG: u64 = 10_000;

/// Plans come from known clients, or from a header that a trusted proxy sends.
pub(super) fn plan_without_clients(context: &Context<'_>, problems: &mut Problems) {
    let identity = context.identity();
    let by_header = !identity.plan.is_empty() && !identity.trusted_proxies.is_empty();
    // Requests to the decision service may name any plan.
    if context.config.rules_from == RulesFrom::Database
        || by_header
        || context.config.service.is_some()
    {
        return;
    }
    let clients = context.clients.iter();
    let plans: HashSet<&str> = clients
        .filter_map(|entry| entry.client.plan.as_deref())
        .collect();
    for entry in context.rules_in_force() {
        let wanted: Vec<&str> = match entry.rule.plan_name() {
            Some(plan) => vec![plan],
            None => entry.when.plans.iter().map(String::as_str).collect(),
        };
        if !wanted.is_empty() && !wanted.iter().any(|plan| plans.contains(plan)) {
            let location = entry.input.location_of("plan");
            let help = "give it to a client in `clients`, or name a header in identity.plan and the proxies that send it in \
                     identity.trusted_proxies";
            problems.warning(
                location,
                "no client has this plan, so no request matches this rule",
                help,
            );
        }
    }
}

/// `plan: free` and `match: { plan: [pro] }`.
pub(super) fn plan_excluded_by_match(context: &Context<'_>, problems: &mut Problems) {
    for entry in context.rules_in_force() {
        let plans = &entry.when.plans;
        let excludes = |plan: &str| !plans.is_empty() && !plans.iter().any(|other| other == plan);
        if entry.rule.plan_name().is_some_and(excludes) {
            let location = entry.input.location_of("plan");
            let message = "the match of this rule excludes its plan, so no request matches it";
            let help = "remove one of the two";
            problems.warning(location, message, help);
        }
    }
}

/// Only for a gateway alone, because requests to the service may have any path.
pub(super) fn path_without_upstream(context: &Context<'_>, problems: &mut Problems) {
    let (Some(gateway), None) = (&context.config.gateway, &context.config.service) else {
        return;
    };
    for entry in context.rules_in_force() {
        let is_served = |path: &str| {
            gateway.upstreams.iter().any(|upstream| {
                let all = format!("{}/{{*rest}}", upstream.path.trim_end_matches('/'));
                patterns_overlap(&all, path)
            })
        };
        if (entry.when.path.as_ref()).is_some_and(|path| !is_served(path.as_str())) {
            let location = entry.input.location_of("match.path");
            let message = "no upstream serves this path, so no request matches this rule";
            let help = "compare it with the `path` of the gateway's upstreams";
            problems.warning(location, message, help);
        }
    }
}

/// `/users/:id` and `/users/<id>` are how others write `/users/{id}`; here they are names.
pub(super) fn path_in_another_notation(context: &Context<'_>, problems: &mut Problems) {
    let rules = context
        .rules
        .iter()
        .map(|entry| (&entry.when, &entry.input));
    let costs = context
        .costs
        .iter()
        .map(|entry| (&entry.when, &entry.input));
    for (when, input) in rules.chain(costs) {
        let is_foreign = |segment: &&str| {
            segment.len() > 1 && segment.starts_with(':')
                || segment.starts_with('<') && segment.ends_with('>')
        };
        let mut segments = when.path.iter().flat_map(|path| path.as_str().split('/'));
        if let Some(segment) = segments.find(is_foreign) {
            let name = segment.trim_matches([':', '<', '>']);
            let message = "this segment is taken literally and matches no other";
            let help = format!("write {{{name}}} for any segment");
            problems.warning(input.location_of("match.path"), message, help);
        }
    }
}

fn overlap(rule: &RuleEntry<'_>, cost: &CostEntry<'_>) -> bool {
    let plans = &cost.when.plans;
    let includes = |plan| plans.is_empty() || plans.iter().any(|other| other == plan);
    rule.rule.plan_name().is_none_or(includes) && rule.when.overlap(&cost.when)
}

/// A rule with a cost of its own does not charge what requests cost.
fn charges_costs(rule: &&RuleEntry<'_>) -> bool {
    rule.rule.own_cost().is_none()
}

/// A request that costs more than a bucket ever holds is always denied.
pub(super) fn limit_below_a_cost(context: &Context<'_>, problems: &mut Problems) {
    for rule in context.rules_in_force().filter(charges_costs) {
        let capacity = rule.rule.limit().capacity();
        let costs = context.costs.iter().filter(|cost| overlap(rule, cost));
        let highest = costs.max_by_key(|cost| cost.cost.tokens());
        let Some(highest) = highest.filter(|cost| cost.cost.tokens() > capacity) else {
            continue;
        };
        let (tokens, capacity) = (grouped(highest.cost.tokens()), grouped(capacity));
        let message = format!(
            "some requests cost {tokens}, but this limit never holds more than {capacity}, so they are always denied"
        );
        let help = format!("allow a burst of at least {tokens}, or lower the cost");
        problems
            .warning(rule.input.location_of("limit"), message, help)
            .related(highest.input.location().span, "the cost");
    }
}

pub(super) fn cost_without_rule(context: &Context<'_>, problems: &mut Problems) {
    if context.config.rules_from == RulesFrom::Database || context.rules.is_empty() {
        return;
    }
    for cost in context.costs {
        let charges = |rule| charges_costs(&rule) && overlap(rule, cost);
        if !context.rules.iter().any(charges) {
            let message = "no rule counts such requests, so this cost is never charged";
            let help = "compare its match with those of the rules";
            problems.warning(cost.input.location(), message, help);
        }
    }
}

pub(super) fn large_sliding_log(context: &Context<'_>, problems: &mut Problems) {
    for rule in context.rules_in_force() {
        let limit = rule.rule.limit();
        let entries = limit.capacity();
        if limit.algorithm() == Algorithm::SlidingLog && entries > LARGE_LOG {
            let kib = grouped(entries.saturating_mul(16) / 1_024);
            let entries = grouped(entries);
            let message = format!(
                "a sliding log of {entries} remembers every request: up to {kib} KiB for each key"
            );
            let help = "sliding_counter needs a few bytes, and is nearly as exact";
            problems.warning(rule.input.location_of("limit"), message, help);
        }
    }
}
