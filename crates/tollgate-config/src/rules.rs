//! Rules and costs, and limits as a map with an algorithm or as a short text.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use http::HeaderName;
use tollgate::{
    Algorithm, Cost, Dimension, Limit, LimitError, Mode, Name, OnFailure, Rate, Rule, RuleSet,
};
use tollgate_tower::identity::ClientSource;

use super::conditions::{self, Conditions, attribute, conditions, header_attribute};
use super::values::{DAY, MILLISECOND, name, plan};
use crate::document::reading::{
    Fields, Input, choice, duration, listed, map_with_hints, number, parsed, text, whole_number,
};
use crate::document::{Location, Problems};

/// A rule, and where it is defined.
#[derive(Clone, Debug)]
pub(super) struct RuleEntry<'a> {
    pub(super) rule: Rule,
    pub(super) when: Conditions,
    pub(super) is_on: bool,
    pub(super) input: Input<'a>,
}

/// A cost, and where it is defined.
#[derive(Clone, Debug)]
pub(super) struct CostEntry<'a> {
    pub(super) cost: Cost,
    pub(super) when: Conditions,
    pub(super) input: Input<'a>,
}

pub(super) const HINTS: &str = "\
methods: it belongs to `match`: match: { methods: [...] }
path: it belongs to `match`: match: { path: ... }
rate: it belongs to `limit`: limit: { rate: 10/s, burst: 50 }, or limit: \"10/s burst 50\"
name: did you mean \"id\"?
enabled: use mode: enforce, mode: shadow or mode: off
costs: use cost: 5 for this rule, or `costs` beside `rules` for certain requests
";

pub(super) fn rule<'a>(fields: &Fields<'a>) -> Option<RuleEntry<'a>> {
    let id = fields.required("id", "id: client", name);
    fields.read("description", text(1_000, "a description"));
    let mut when = Conditions::default();
    let conditions = map_with_hints(conditions::HINTS, conditions);
    fields.set("match", &mut when, conditions);
    let except = fields.read("except", exceptions).unwrap_or_default();
    let plan = fields.read("plan", plan);
    let example = "per: [client] for a bucket each, or per: [] for one bucket for everybody";
    let per = fields.required("per", example, dimensions);
    let limit = fields.required("limit", "limit: \"10/s burst 50\"", limit);
    let cost = fields.read("cost", number(0..=MAX_COST));
    let (mut mode, mut on_failure) = (Mode::Enforce, OnFailure::Local);
    let words = [
        ("enforce", Mode::Enforce),
        ("shadow", Mode::Shadow),
        ("off", Mode::Off),
    ];
    fields.set("mode", &mut mode, choice(&words));
    let words = [
        ("local", OnFailure::Local),
        ("open", OnFailure::Open),
        ("closed", OnFailure::Closed),
    ];
    fields.set("on_store_failure", &mut on_failure, choice(&words));
    if !fields.are_right() {
        return None;
    }
    // The id is a name already, so this does not fail.
    let mut rule = (Rule::new(id?.as_str(), limit?).ok()?)
        .when(when.compiled.clone())
        .per(per?)
        .mode(mode)
        .on_failure(on_failure);
    for exception in except {
        rule = rule.except(exception.compiled);
    }
    if let Some(plan) = plan {
        rule = rule.plan(&plan);
    }
    if let Some(cost) = cost {
        rule = rule.cost(cost);
    }
    Some(RuleEntry {
        rule,
        when,
        is_on: mode != Mode::Off,
        input: fields.input().clone(),
    })
}

/// The requests that a rule does not apply to: one map of conditions, or a list of them.
fn exceptions(input: &Input<'_>) -> Option<Vec<Conditions>> {
    let items = match input.is_map() {
        true => vec![input.clone()],
        false => input.items("conditions such as { path: /health }")?,
    };
    let exception = |item: &Input<'_>| {
        let exception = map_with_hints(conditions::HINTS, conditions)(item)?;
        if exception.compiled.is_everything() {
            let message = "an exception without conditions would except every request";
            return item.reject(message, "give it conditions, or leave it out");
        }
        Some(exception)
    };
    items.iter().map(exception).collect()
}

/// Maximum cost of a request: no limit holds more.
const MAX_COST: u64 = 4_000_000_000;

/// Maximum number of dimensions of a rule, which bounds the length of keys.
const MAX_DIMENSIONS: usize = 8;

fn dimensions(input: &Input<'_>) -> Option<Vec<Dimension>> {
    let items = input.items("what to count by, such as client")?;
    if items.len() > MAX_DIMENSIONS {
        let count = items.len();
        let message = format!("a rule counts by at most {MAX_DIMENSIONS} things, not {count}");
        return input.reject(message, "");
    }
    let mut all = Vec::new();
    for item in items {
        let dimension = dimension(&item)?;
        if all.contains(&dimension) {
            item.error("this is listed twice; name it once");
        }
        all.push(dimension);
    }
    Some(all)
}

fn dimension(input: &Input<'_>) -> Option<Dimension> {
    let expected = "client, ip, route, plan, method, header:NAME or attribute:NAME";
    let text = &*input.scalar(expected)?.text;
    let named = match text.split_once(':') {
        Some(("header", name)) => Some((header_attribute(name), name)),
        Some(("attribute", name)) => Some((attribute(name), name)),
        _ => None,
    };
    let help = match (text, named) {
        ("client", _) => return Some(Dimension::Client),
        ("ip", _) => return Some(Dimension::Ip),
        ("route", _) => return Some(Dimension::Route),
        ("plan", _) => return Some(Dimension::Plan),
        ("method", _) => return Some(Dimension::Method),
        (_, Some((Some(_), name))) if is_secret(name) => {
            let message =
                "this carries a secret by its name, and what rules count by is stored and shown";
            let help = "count by client, and let identity.client find it: api_key:NAME, or bearer";
            return input.reject(message, help);
        }
        (_, Some((Some(name), _))) => return Some(Dimension::Attribute(name)),
        ("user" | "api_key" | "key" | "tenant", _) => "client is what `identity.client` finds",
        ("path" | "endpoint", _) => "route is the pattern that matches the path",
        ("everyone" | "everybody" | "global" | "all", _) => "one bucket for everybody is per: []",
        ("address" | "remote_addr", _) => "did you mean \"ip\"?",
        _ => "",
    };
    input.reject_value(expected, help)
}

fn is_secret(header: &str) -> bool {
    let header = HeaderName::from_bytes(header.as_bytes()).ok();
    let source = header.and_then(|name| ClientSource::header(name).ok());
    source.is_some_and(|source| source.is_secret())
}

pub(super) fn cost<'a>(fields: &Fields<'a>) -> Option<CostEntry<'a>> {
    let example = "match: { methods: [POST], path: /reports }";
    let when = map_with_hints(conditions::HINTS, conditions);
    let when = fields.required("match", example, when);
    let tokens = fields.required("cost", "cost: 10", number(0..=MAX_COST));
    let (when, tokens) = (when?, tokens?);
    Some(CostEntry {
        cost: Cost::new(when.compiled.clone(), tokens),
        when,
        input: fields.input().clone(),
    })
}

/// All rules, if they fit together.
pub(super) fn compile(entries: &[RuleEntry<'_>], problems: &RefCell<Problems>) -> Option<RuleSet> {
    let before = problems.borrow().errors();
    let mut families: HashMap<Name, Vec<&RuleEntry<'_>>> = HashMap::new();
    for entry in entries.iter().filter(|entry| entry.is_on) {
        let family = families.entry(entry.rule.id()).or_default();
        check_family(entry, family);
        family.push(entry);
    }
    if problems.borrow().errors() > before {
        return None;
    }
    let rules = RuleSet::new(entries.iter().map(|entry| entry.rule.clone()));
    problems.borrow_mut().check(rules, Location::default())
}

/// Rules of one id differ in plan and limit only.
fn check_family(entry: &RuleEntry<'_>, family: &[&RuleEntry<'_>]) {
    let Some(first) = family.first() else { return };
    let report = |field: &str, other: &RuleEntry<'_>, message: &str, help: &str| {
        let first = other.input.location_of(field).span;
        (entry
            .input
            .error_at(entry.input.location_of(field), message))
        .help(help)
        .related(first, "the first is here");
    };
    let same_plan = |other: &&&RuleEntry<'_>| other.rule.plan_name() == entry.rule.plan_name();
    if let Some(other) = family.iter().find(same_plan) {
        let message = match entry.rule.plan_name() {
            Some(_) => "two rules have this id and this plan",
            None => "two rules have this id and no plan",
        };
        let help = "give one of them another id or a plan of its own";
        report("id", other, message, help);
    }
    if first.rule.dimensions() != entry.rule.dimensions() {
        let message = "rules with the same id must count by the same things";
        report(
            "per",
            first,
            message,
            "give them the same `per`, or different ids",
        );
    }
    if first.rule.conditions() != entry.rule.conditions()
        || first.rule.exceptions() != entry.rule.exceptions()
    {
        let message = "rules with the same id must have the same conditions";
        report(
            "id",
            first,
            message,
            "give them the same `match` and `except`, or different ids",
        );
    }
}

/// A limit: `{ algorithm: token_bucket, rate: 10/s, burst: 50 }` or `"10/s burst 50"`.
pub(super) fn limit(input: &Input<'_>) -> Option<Limit> {
    match input.is_map() {
        true => map_with_hints(LIMIT_HINTS, limit_from_map)(input),
        false => parsed("a limit such as \"10/s burst 50\", or a map with algorithm")(input),
    }
}

const LIMIT_HINTS: &str = "\
period: the period is part of the rate, as in rate: 10/s, or is the window
requests: write rate: 10/s for buckets, or limit and window for windows
per: `per` belongs to the rule, beside `limit`; a period is part of the rate, as in 10/s
capacity: did you mean \"burst\" (token_bucket) or \"queue\" (leaky_bucket)?
";

fn limit_from_map(fields: &Fields<'_>) -> Option<Limit> {
    let all = ["rate", "burst", "queue", "limit", "window"].map(|name| (name, fields.has(name)));
    let algorithm = algorithm(fields)?;
    let own: [&'static str; 2] = match algorithm {
        Algorithm::TokenBucket => ["rate", "burst"],
        Algorithm::LeakyBucket => ["rate", "queue"],
        _ => ["limit", "window"],
    };
    for (name, is_there) in all {
        if is_there && !own.contains(&name) {
            let message = format!("{algorithm} has no {name}; it has {}", listed(&own, "and"));
            fields.error_at(name, message);
        }
    }
    let limit = match algorithm {
        Algorithm::TokenBucket => bucket(fields, "burst", Limit::token_bucket),
        Algorithm::LeakyBucket => bucket(fields, "queue", Limit::leaky_bucket),
        Algorithm::FixedWindow => window(fields, Limit::fixed_window),
        Algorithm::SlidingLog => window(fields, Limit::sliding_log),
        _ => window(fields, Limit::sliding_counter),
    };
    match limit? {
        _ if !fields.are_right() => None,
        Ok(limit) => Some(limit),
        Err(error) => fields.input().reject(error.to_string(), ""),
    }
}

/// The algorithm that is named, or that of a bucket if the fields are those of a bucket.
fn algorithm(fields: &Fields<'_>) -> Option<Algorithm> {
    if fields.has("algorithm") {
        let all = Algorithm::ALL.map(|algorithm| (algorithm.name(), algorithm));
        return fields.read("algorithm", choice(&all));
    }
    if fields.has("limit") || fields.has("window") {
        let help = "a limit with a window is fixed_window, sliding_log or sliding_counter";
        return (fields.input()).reject("the field \"algorithm\" is missing", help);
    }
    Some(match fields.has("queue") && !fields.has("burst") {
        true => Algorithm::LeakyBucket,
        false => Algorithm::TokenBucket,
    })
}

fn bucket(
    fields: &Fields<'_>,
    size: &'static str,
    make: fn(Rate, u64) -> Result<Limit, LimitError>,
) -> Option<Result<Limit, LimitError>> {
    let rate = fields.required("rate", "rate: 10/s", |input| {
        Some((rate(input)?, &input.as_scalar()?.text))
    });
    let capacity = fields.read(size, number(1..=4_000_000_000));
    let (rate, text) = rate?;
    match capacity {
        Some(capacity) => Some(make(rate, capacity)),
        None if fields.has(size) => None,
        // Without a size, a bucket holds what one period brings, as in the short form.
        None => {
            let limit = text.parse::<Limit>();
            Some(limit.and_then(|limit| make(rate, limit.capacity())))
        }
    }
}

fn rate(input: &Input<'_>) -> Option<Rate> {
    let expected = "a rate such as 10/s or 600/min";
    match whole_number(input.visible_text()) {
        Some(number) => {
            let help = format!("add the time: {number}/s or {number}/min");
            input.reject_value(expected, &help)
        }
        None => parsed(expected)(input),
    }
}

fn window(
    fields: &Fields<'_>,
    make: fn(u64, Duration) -> Result<Limit, LimitError>,
) -> Option<Result<Limit, LimitError>> {
    let limit = fields.required("limit", "limit: 600", number(1..=4_000_000_000));
    let window = fields.required("window", "window: 1m", duration(MILLISECOND..=DAY * 400));
    Some(make(limit?, window?))
}
