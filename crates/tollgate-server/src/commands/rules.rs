//! `tollgate rules`: lists and changes the rules in a database.
//!
//! What would be stored is validated as the running program would, together with what is stored already, before anything is
//! written.

mod export;
mod import;
mod set;

use std::io::Write;

use serde_json::{Value, json};
use tollgate_config::document::{Location, Node, Problems};
use tollgate_config::text::escaped;

use super::database::DatabaseTarget;
use super::print_json;
use super::table::write_table;
use crate::cli::{RulesArgs, RulesCommand};
use crate::database::Stored;
use crate::failure::Failure;
use crate::time::{utc, utc_second};

pub(super) fn rules(args: &RulesArgs, out: &mut impl Write) -> Result<(), Failure> {
    let target = DatabaseTarget::of(&args.target)?;
    match &args.command {
        RulesCommand::List { json } => list(&target, *json, out),
        RulesCommand::Import(args) => import::import(&target, args, out),
        RulesCommand::Export(args) => export::export(&target, args, out),
        RulesCommand::Set(args) => set::set(&target, args, out),
        RulesCommand::Remove { id, plan } => remove(&target, id, plan.as_deref(), out),
    }
}

fn list(target: &DatabaseTarget, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    let (rules, _) = target.list()?;
    if json {
        let rules = rules.iter().map(|rule| {
            json!({
                "rule": rule.document,
                "active": rule.active,
                "created": utc(rule.created_us),
                "updated": utc(rule.updated_us),
            })
        });
        return Ok(print_json(out, &rules.collect::<Vec<_>>())?);
    }
    if rules.is_empty() {
        let scope = escaped(&target.scope, 64);
        return Ok(writeln!(out, "no rules in the scope {scope}")?);
    }
    let head = [
        "rule",
        "plan",
        "limit",
        "per",
        "mode",
        "changed (UTC)",
        "description",
    ];
    let rows: Vec<_> = rules.iter().map(cells).collect();
    Ok(write_table(out, head, &rows)?)
}

fn cells(rule: &Stored) -> [String; 7] {
    let text = |field: &str, default: &str| {
        let text = rule.document[field].as_str();
        text.unwrap_or(default).to_owned()
    };
    [
        text("id", ""),
        text("plan", "-"),
        limit_text(&rule.document["limit"]),
        per_text(&rule.document["per"]),
        match rule.active {
            true => text("mode", "enforce"),
            // Its mode has no effect.
            false => "inactive".to_owned(),
        },
        utc_second(rule.updated_us),
        text("description", ""),
    ]
}

/// A limit as in `10/s burst 50`.
fn limit_text(limit: &Value) -> String {
    let part = |word: &str, field: &str| match &limit[field] {
        Value::Null => None,
        Value::String(text) => Some(format!("{word}{text}")),
        other => Some(format!("{word}{other}")),
    };
    // Buckets are known by their burst or queue.
    let algorithm = limit["algorithm"].as_str();
    let algorithm = algorithm.filter(|name| !name.ends_with("_bucket"));
    let parts = [
        part("", "limit"),
        part("per ", "window"),
        part("", "rate"),
        part("burst ", "burst"),
        part("queue ", "queue"),
        algorithm.map(str::to_owned),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn per_text(list: &Value) -> String {
    match list.as_array() {
        Some(items) if items.is_empty() => "everybody".to_owned(),
        Some(items) => {
            let names: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            names.join(", ")
        }
        None => "-".to_owned(),
    }
}

fn remove(
    target: &DatabaseTarget,
    id: &str,
    plan: Option<&str>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let existed =
        target.run(async |database| database.remove_rule(&target.scope, id, plan).await)?;
    let name = name_of(id, plan);
    if existed {
        return Ok(writeln!(out, "removed {name}")?);
    }
    let message = format!("there is no {name}; `tollgate rules list` shows all rules");
    Err(Failure::BadInput(message))
}

fn name_of(id: &str, plan: Option<&str>) -> String {
    let plan = plan.map_or(String::new(), |plan| format!(" of plan {plan}"));
    escaped(&format!("rule {id}{plan}"), 200)
}

/// Checks whether these rules and clients can be used together, with the identity, paths and costs of the configuration, or the
/// defaults.
fn validate(target: &DatabaseTarget, rules: &[Node], clients: &[Node]) -> Result<(), Problems> {
    let default;
    let policy = match &target.config {
        Some(config) => &config.policy,
        None => {
            default =
                tollgate_config::parse("rules: [{ id: any, per: [], limit: 1/s }]", &|_| None)?;
            &default.policy
        }
    };
    if (rules.iter().chain(clients)).any(|node| node.get("id").is_none()) {
        let mut problems = Problems::default();
        problems.error(
            Location::default(),
            "every rule and every client needs an id",
        );
        return Err(problems);
    }
    policy.with_documents(rules, clients).map(drop)
}

/// The failure of a change after which the rules could not be used.
fn unusable(problems: &Problems) -> Failure {
    Failure::BadInput(format!(
        "the rules would be invalid, so nothing was changed:\n{problems}"
    ))
}
