//! `tollgate rules set`: changes a rule or adds one.

use std::io::Write;

use serde_json::{Value, json};
use tollgate_config::document::Node;
use tollgate_config::rule_warnings;

use super::{name_of, unusable, validate};
use crate::cli::SetArgs;
use crate::commands::block_on;
use crate::commands::database::DatabaseTarget;
use crate::database::Stored;
use crate::failure::Failure;

pub(super) fn set(
    target: &DatabaseTarget,
    args: &SetArgs,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let (is_new, warnings) = block_on(async {
        // Only a rule that can be new creates a file.
        let database = match args.limit {
            Some(_) => target.open().await?,
            None => target.open_existing().await?,
        };
        let (rules, clients) = database.list(&target.scope).await?;
        let is_it = |rule: &&Stored| {
            let plan = rule.document.get("plan").and_then(Value::as_str);
            rule.document["id"] == args.id && plan == args.plan.as_deref()
        };
        let known = rules.iter().find(is_it);
        let document = changed(args, known)?;
        let node = |stored: &Stored| Node::from_json(&stored.document);
        let others = rules.iter().filter(|rule| rule.active && !is_it(rule));
        let mut all: Vec<Node> = others.map(node).collect();
        let clients = clients.iter().filter(|client| client.active);
        let clients: Vec<Node> = clients.map(node).collect();
        let mut rule = document.clone();
        if let Some(fields) = rule.as_object_mut() {
            fields.remove("active");
        }
        let rule = Node::from_json(&rule);
        let warnings = rule_warnings(std::slice::from_ref(&rule));
        all.push(rule);
        validate(target, &all, &clients).map_err(|problems| unusable(&problems))?;
        database.set_rule(&target.scope, &document).await?;
        database.close().await;
        Ok((known.is_none(), warnings))
    })?;
    if warnings.warnings() > 0 {
        writeln!(out, "{warnings}")?;
    }
    let done = if is_new { "added" } else { "changed" };
    let name = name_of(&args.id, args.plan.as_deref());
    Ok(writeln!(out, "{done} {name}")?)
}

fn changed(args: &SetArgs, known: Option<&Stored>) -> Result<Value, Failure> {
    let mut document = match known {
        Some(rule) => rule.document.clone(),
        None if args.limit.is_none() => {
            let name = name_of(&args.id, args.plan.as_deref());
            return Err(Failure::BadInput(format!(
                "there is no {name} to change; a new one needs a limit: --limit \"10/s burst 50\""
            )));
        }
        None => json!({ "id": args.id, "per": ["client"] }),
    };
    let names = |list: &String| {
        let names = list.split(',').map(str::trim);
        json!(names.filter(|name| !name.is_empty()).collect::<Vec<_>>())
    };
    let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
    let was_active = known.is_none_or(|rule| rule.active);
    for (field, value) in [
        ("plan", text(&args.plan)),
        ("limit", args.limit.map(|limit| json!(limit.to_string()))),
        ("per", args.per.as_ref().map(names)),
        ("mode", text(&args.mode)),
        ("on_store_failure", text(&args.on_store_failure)),
        ("description", text(&args.description)),
        ("active", Some(json!(args.active.unwrap_or(was_active)))),
    ] {
        if let Some(value) = value {
            document[field] = value;
        }
    }
    Ok(document)
}
