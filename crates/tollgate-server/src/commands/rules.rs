//! `tollgate rules`: the rules in a database, seen and changed by hand.
//!
//! Whatever would be stored is read as the running program will read it, together with what is there already, before
//! anything is written.

mod export;
mod import;
mod set;
mod validate;

use std::io::Write;

use serde_json::{Value, json};

use super::database::{Meant, block_on};
use super::table::{utc_second, write_table};
use crate::calendar::utc;
use crate::cli::{ListArgs, RemoveArgs, RulesArgs, RulesCommand};
use crate::database::StoredRule;
use crate::failure::Failure;

/// Runs the command.
pub(crate) fn rules(args: &RulesArgs, out: &mut impl Write) -> Result<(), Failure> {
    let meant = Meant::of(&args.place)?;
    match &args.command {
        RulesCommand::List(list) => show(&meant, list, out),
        RulesCommand::Import(import) => import::import(&meant, import, out),
        RulesCommand::Export(export) => export::export(&meant, export, out),
        RulesCommand::Set(set) => set::set(&meant, set, out),
        RulesCommand::Remove(remove) => take_out(&meant, remove, out),
    }
}

fn show(meant: &Meant, args: &ListArgs, out: &mut impl Write) -> Result<(), Failure> {
    let (rules, _) = block_on(async {
        let database = meant.open_what_is_there().await?;
        let listed = database.list(&meant.scope).await?;
        database.close().await;
        Ok(listed)
    })?;
    if args.json {
        let rules: Vec<Value> = rules.iter().map(as_json).collect();
        serde_json::to_writer_pretty(&mut *out, &rules).map_err(std::io::Error::from)?;
        writeln!(out)?;
        return Ok(());
    }
    if rules.is_empty() {
        writeln!(
            out,
            "no rules in the scope {}",
            tollgate_config::text::escaped(&meant.scope, 64)
        )?;
        return Ok(());
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
    write_table(out, head, &rules.iter().map(cells).collect::<Vec<_>>())?;
    Ok(())
}

fn as_json(rule: &StoredRule) -> Value {
    json!({
        "rule": rule.document,
        "active": rule.active,
        "created": utc(rule.created_us),
        "updated": utc(rule.updated_us),
    })
}

fn cells(rule: &StoredRule) -> [String; 7] {
    let said = |name: &str, default: &str| match &rule.document[name] {
        Value::String(text) => text.clone(),
        _ => default.to_owned(),
    };
    [
        said("id", ""),
        said("plan", "-"),
        limit_text(&rule.document["limit"]),
        words(&rule.document["per"]),
        match rule.active {
            true => said("mode", "enforce"),
            // Whatever its mode: it is not in force.
            false => "inactive".to_owned(),
        },
        utc_second(rule.updated_us),
        said("description", ""),
    ]
}

/// As in `10/s burst 50`.
fn limit_text(limit: &Value) -> String {
    let part = |word: &str, name: &str| match &limit[name] {
        Value::Null => None,
        Value::String(text) => Some(format!("{word}{text}")),
        other => Some(format!("{word}{other}")),
    };
    let algorithm = limit["algorithm"].as_str();
    let parts = [
        part("", "limit"),
        part("per ", "window"),
        part("", "rate"),
        part("burst ", "burst"),
        part("queue ", "queue"),
        // A bucket shows what it is.
        algorithm
            .filter(|name| !name.ends_with("_bucket"))
            .map(str::to_owned),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn words(list: &Value) -> String {
    match list.as_array() {
        Some(items) if items.is_empty() => "everybody".to_owned(),
        Some(items) => items
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(", "),
        None => "-".to_owned(),
    }
}

fn take_out(meant: &Meant, args: &RemoveArgs, out: &mut impl Write) -> Result<(), Failure> {
    let was_there = block_on(async {
        let database = meant.open_what_is_there().await?;
        let was_there = database
            .remove_rule(&meant.scope, &args.id, args.plan.as_deref())
            .await?;
        database.close().await;
        Ok(was_there)
    })?;
    let name = name_of(&args.id, args.plan.as_deref());
    match was_there {
        true => Ok(writeln!(out, "removed {name}")?),
        false => Err(Failure::BadInput(format!(
            "there is no {name}; `tollgate rules list` shows what there is"
        ))),
    }
}

fn name_of(id: &str, plan: Option<&str>) -> String {
    let name = match plan {
        None => format!("rule {id}"),
        Some(plan) => format!("rule {id} of plan {plan}"),
    };
    tollgate_config::text::escaped(&name, 200)
}
