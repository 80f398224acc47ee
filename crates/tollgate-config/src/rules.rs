//! Rules and costs.

use std::collections::HashMap;

use http::HeaderName;
use tollgate::{Cost, Dimension, Limit, Mode, Name, OnFailure, Rule, RuleSet};
use tollgate_tower::identity::ClientSource;

use super::conditions::{Conditions, attribute_name, conditions, header_name};
use super::limits::limit;
use super::values::{name, plan};
use crate::document::reading::{Fields, Place, choice, number, shown, text};
use crate::document::{Problems, Spot};

pub(super) const RULE: &[&str] = &[
    "id",
    "description",
    "match",
    "plan",
    "per",
    "limit",
    "mode",
    "on_store_failure",
];
pub(super) const COST: &[&str] = &["match", "cost"];

/// A rule as it was said, and where.
#[derive(Clone, Debug)]
pub(super) struct RuleEntry {
    pub(super) rule: Rule,
    pub(super) when: Conditions,
    pub(super) mode: Mode,
    pub(super) spot: Spot,
    pub(super) per_spot: Spot,
    pub(super) plan_spot: Spot,
    pub(super) limit_spot: Spot,
}

impl RuleEntry {
    pub(super) fn is_on(&self) -> bool {
        self.mode != Mode::Off
    }
}

/// A cost as it was said, and where.
#[derive(Clone, Debug)]
pub(super) struct CostEntry {
    pub(super) cost: Cost,
    pub(super) when: Conditions,
    pub(super) spot: Spot,
}

pub(super) fn rule(place: &Place<'_>, problems: &mut Problems) -> Option<RuleEntry> {
    let foreign = [
        (
            "methods",
            "it belongs into `match`: match: { methods: [...] }",
        ),
        ("path", "it belongs into `match`: match: { path: ... }"),
        (
            "rate",
            "it belongs into `limit`: limit: { rate: 10/s, burst: 50 }, or limit: \"10/s burst 50\"",
        ),
        ("name", "did you mean \"id\"?"),
        ("enabled", "use mode: enforce, mode: shadow or mode: off"),
        (
            "cost",
            "what requests cost is said in `costs`, beside `rules`",
        ),
    ];
    let fields = Fields::of_with(place, RULE, &foreign, problems)?;
    let before = problems.errors();
    let id = fields.required("id", "id: client", problems, name);
    fields.optional("description", problems, text(1_000, "a description"));
    let when = fields.or("match", Conditions::default(), problems, conditions);
    let plan = fields.optional("plan", problems, plan);
    let per = fields.required(
        "per",
        "per: [client] for a bucket each, or per: [] for one bucket for everybody",
        problems,
        dimensions,
    );
    let limit = fields.required("limit", "limit: \"10/s burst 50\"", problems, limit);
    let modes = [Mode::Enforce, Mode::Shadow, Mode::Off];
    let modes = [
        ("enforce", modes[0]),
        ("shadow", modes[1]),
        ("off", modes[2]),
    ];
    let mode = fields.or("mode", Mode::Enforce, problems, choice(&modes));
    let failures = [
        ("local", OnFailure::Local),
        ("open", OnFailure::Open),
        ("closed", OnFailure::Closed),
    ];
    let failure = fields.or(
        "on_store_failure",
        OnFailure::Local,
        problems,
        choice(&failures),
    );
    if problems.errors() > before {
        return None;
    }
    let mut rule = made(id?, limit?)?.when(when.compiled.clone()).per(per?);
    if let Some(plan) = &plan {
        rule = rule.plan(plan);
    }
    Some(RuleEntry {
        rule: rule.mode(mode).on_failure(failure),
        when,
        mode,
        spot: fields.spot_of("id"),
        per_spot: fields.spot_of("per"),
        plan_spot: fields.spot_of("plan"),
        limit_spot: fields.spot_of("limit"),
    })
}

fn made(id: Name, limit: Limit) -> Option<Rule> {
    Rule::new(id.as_str(), limit).ok()
}

/// More parts than that make keys long for nothing.
const MOST_DIMENSIONS: usize = 8;

fn dimensions(place: &Place<'_>, problems: &mut Problems) -> Option<Vec<Dimension>> {
    let items = place.items("what to count by, such as client", problems)?;
    if items.len() > MOST_DIMENSIONS {
        let message = format!(
            "a rule counts by at most {MOST_DIMENSIONS} things, not {}",
            items.len()
        );
        place.error(problems, message);
        return None;
    }
    let mut all = Vec::new();
    for item in items {
        let dimension = dimension(&item, problems)?;
        if all.contains(&dimension) {
            item.error(problems, "this is there twice; name it once");
        }
        all.push(dimension);
    }
    Some(all)
}

fn is_secret(header: &str) -> bool {
    let header = HeaderName::from_bytes(header.as_bytes()).ok();
    let source = header.and_then(|name| ClientSource::header(name).ok());
    source.is_some_and(|source| source.is_secret())
}

fn dimension(place: &Place<'_>, problems: &mut Problems) -> Option<Dimension> {
    let expected = "client, ip, route, plan, method, header:NAME or attribute:NAME";
    let scalar = place.scalar(expected, problems)?;
    let named = |prefix: &str, name: &str| Name::new(&format!("{prefix}{name}")).ok();
    let dimension = match &*scalar.text {
        "client" => Some(Dimension::Client),
        "ip" => Some(Dimension::Ip),
        "route" => Some(Dimension::Route),
        "plan" => Some(Dimension::Plan),
        "method" => Some(Dimension::Method),
        said => match said.split_once(':') {
            Some(("header", name)) if header_name(name) => {
                named("header:", &name.to_ascii_lowercase()).map(Dimension::Attribute)
            }
            Some(("attribute", name)) if attribute_name(name) => {
                named("", name).map(Dimension::Attribute)
            }
            _ => None,
        },
    };
    let header = scalar.text.split_once(':').map(|(_, name)| name);
    if let (Some(Dimension::Attribute(_)), Some(header)) = (dimension, header)
        && is_secret(header)
    {
        place
            .error(
                problems,
                format!(
                    "{} carries a secret by its name, and what is counted by is stored and shown",
                    shown(scalar)
                ),
            )
            .help("count by client, and let identity.client find it: api_key:NAME, or bearer");
        return None;
    }
    if dimension.is_none() {
        let problem = place.error(
            problems,
            format!("{} is nothing to count by; use {expected}", shown(scalar)),
        );
        match &*scalar.text {
            "user" | "api_key" | "key" | "tenant" => {
                problem.help("client is whoever `identity.client` finds");
            }
            "path" | "endpoint" => {
                problem.help("route is the pattern that the path belongs to");
            }
            "everyone" | "everybody" | "global" | "all" => {
                problem.help("one bucket for everybody is per: []");
            }
            "address" | "remote_addr" => {
                problem.help("did you mean \"ip\"?");
            }
            _ => {}
        }
    }
    dimension
}

pub(super) fn cost(place: &Place<'_>, problems: &mut Problems) -> Option<CostEntry> {
    let fields = Fields::of(place, COST, problems)?;
    let before = problems.errors();
    let when = fields.required(
        "match",
        "match: { methods: [POST], path: /reports }",
        problems,
        conditions,
    );
    let tokens = fields.required("cost", "cost: 10", problems, number(0..=4_000_000_000));
    if problems.errors() > before {
        return None;
    }
    let (when, tokens) = (when?, tokens?);
    Some(CostEntry {
        cost: Cost::new(when.compiled.clone(), tokens),
        when,
        spot: place.spot(),
    })
}

/// All rules, if they fit together.
pub(super) fn together(entries: &[RuleEntry], problems: &mut Problems) -> Option<RuleSet> {
    let before = problems.errors();
    let mut families: HashMap<Name, Vec<&RuleEntry>> = HashMap::new();
    for entry in entries.iter().filter(|entry| entry.is_on()) {
        let family = families.entry(entry.rule.id()).or_default();
        fits(entry, family, problems);
        family.push(entry);
    }
    if problems.errors() > before {
        return None;
    }
    match RuleSet::new(entries.iter().map(|entry| entry.rule.clone())) {
        Ok(rules) => Some(rules),
        Err(error) => {
            let spot = entries.first().map(|entry| entry.spot.clone());
            problems.error(spot.unwrap_or_default(), error.to_string());
            None
        }
    }
}

fn fits(entry: &RuleEntry, family: &[&RuleEntry], problems: &mut Problems) {
    let Some(first) = family.first() else { return };
    let same_plan = |other: &&&RuleEntry| other.rule.plan_name() == entry.rule.plan_name();
    if let Some(other) = family.iter().find(same_plan) {
        let plan = match entry.rule.plan_name() {
            Some(_) => "this plan",
            None => "no plan",
        };
        problems
            .error(
                entry.spot.clone(),
                format!("two rules have this id and {plan}"),
            )
            .help("give one of them another id or a plan of its own")
            .also(other.spot.at, "the first is here");
    }
    if first.rule.dimensions() != entry.rule.dimensions() {
        problems
            .error(
                entry.per_spot.clone(),
                "rules of one id have to count by the same things",
            )
            .help("give them the same `per`, or different ids")
            .also(first.per_spot.at, "the first says this");
    }
    if first.rule.conditions() != entry.rule.conditions() {
        problems
            .error(
                entry.spot.clone(),
                "rules of one id have to be for the same requests",
            )
            .help("give them the same `match`, or different ids")
            .also(first.spot.at, "the first is here");
    }
}
