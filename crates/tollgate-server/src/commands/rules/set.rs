//! `tollgate rules set`: one rule, changed or new.

use std::io::Write;

use serde_json::{Value, json};

use super::name_of;
use super::validate::validate;
use crate::cli::SetArgs;
use crate::commands::database::{Meant, block_on};
use crate::database::StoredRule;
use crate::failure::Failure;
use tollgate_config::document::Node;
use tollgate_config::rule_warnings;

pub(super) fn set(meant: &Meant, args: &SetArgs, out: &mut impl Write) -> Result<(), Failure> {
    let name = name_of(&args.id, args.plan.as_deref());
    let (is_new, warnings) = block_on(async {
        // Only a rule that can be new makes a file.
        let database = match args.limit {
            Some(_) => meant.open().await?,
            None => meant.open_what_is_there().await?,
        };
        let (rules, clients) = database.list(&meant.scope).await?;
        let is_it = |rule: &&StoredRule| {
            rule.document["id"] == json!(args.id)
                && rule.document.get("plan") == args.plan.as_ref().map(|plan| json!(plan)).as_ref()
        };
        let known = rules.iter().find(is_it);
        let document = changed(args, known)?;
        let others = rules.iter().filter(|rule| rule.active && !is_it(rule));
        let mut all: Vec<Value> = others.map(|rule| rule.document.clone()).collect();
        let mut checked = document.clone();
        if let Some(fields) = checked.as_object_mut() {
            fields.remove("active");
        }
        let warnings = rule_warnings(&[Node::from_json(&checked)]);
        all.push(checked);
        let clients: Vec<Value> = (clients.into_iter().filter(|client| client.active))
            .map(|client| client.document)
            .collect();
        validate(meant, &all, &clients)?;
        database.set_rule(&meant.scope, &document).await?;
        database.close().await;
        Ok((known.is_none(), warnings))
    })?;
    let what = if is_new { "added" } else { "changed" };
    if warnings.warnings() > 0 {
        writeln!(out, "{warnings}")?;
    }
    Ok(writeln!(out, "{what} {name}")?)
}

/// The rule as it will be.
fn changed(args: &SetArgs, known: Option<&StoredRule>) -> Result<Value, Failure> {
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
    let per = args.per.as_deref().map(|list| {
        let names = list
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        json!(names.collect::<Vec<_>>())
    });
    let active = args
        .active
        .unwrap_or_else(|| known.is_none_or(|rule| rule.active));
    for (field, value) in [
        ("plan", args.plan.as_ref().map(|plan| json!(plan))),
        ("limit", args.limit.map(|limit| json!(limit.to_string()))),
        ("per", per),
        ("mode", args.mode.as_ref().map(|mode| json!(mode))),
        (
            "on_store_failure",
            args.on_store_failure.as_ref().map(|policy| json!(policy)),
        ),
        (
            "description",
            args.description.as_ref().map(|text| json!(text)),
        ),
        ("active", Some(json!(active))),
    ] {
        if let Some(value) = value {
            document[field] = value;
        }
    }
    Ok(document)
}
