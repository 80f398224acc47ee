//! `tollgate rules`: lists and changes the rules in a database.
//!
//! What would be stored is validated as the running program would, together with what is stored already, before anything is
//! written.

mod import;

use std::io::{self, Write};

use serde_json::{Value, json};
use tollgate_config::document::{Location, Node, Problems};
use tollgate_config::rule_warnings;
use tollgate_config::text::escaped;

use super::inputs::DatabaseTarget;
use super::{print_json, write_table};
use crate::cli::{ExportArgs, ExportFormat, RulesArgs, RulesCommand, SetArgs};
use crate::commands::block_on;
use crate::database::Stored;
use crate::failure::Failure;
use crate::time::{utc, utc_second};

pub(super) fn rules(args: &RulesArgs, out: &mut impl Write) -> Result<(), Failure> {
    let target = DatabaseTarget::of(&args.target)?;
    match &args.command {
        RulesCommand::List { json } => list(&target, *json, out),
        RulesCommand::Import(args) => import::import(&target, args, out),
        RulesCommand::Export(args) => export(&target, args, out),
        RulesCommand::Set(args) => set(&target, args, out),
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

const ORDER: [&str; 10] = [
    "id",
    "plan",
    "description",
    "api_key_sha256",
    "match",
    "per",
    "limit",
    "mode",
    "on_store_failure",
    "active",
];

fn export(target: &DatabaseTarget, args: &ExportArgs, out: &mut impl Write) -> Result<(), Failure> {
    let (rules, clients) = target.list()?;
    let documents = |stored: Vec<Stored>| -> Vec<Value> {
        let wanted = stored.into_iter().filter(|it| it.active || args.all);
        let document = |mut stored: Stored| {
            if !stored.active {
                stored.document["active"] = json!(false);
            }
            stored.document
        };
        wanted.map(document).collect()
    };
    let (rules, clients) = (documents(rules), documents(clients));
    match args.format {
        ExportFormat::Json => {
            let all = json!({ "rules": rules, "clients": clients });
            writeln!(out, "{}", escape_variables(&format!("{all:#}")))?;
        }
        ExportFormat::Yaml => {
            write_section(out, "rules", &rules)?;
            write_section(out, "clients", &clients)?;
        }
    }
    Ok(())
}

/// Writes every value as JSON, which is valid YAML: quoted, so that text stays text.
fn write_section(out: &mut impl Write, name: &str, documents: &[Value]) -> io::Result<()> {
    if documents.is_empty() {
        return Ok(());
    }
    writeln!(out, "{name}:")?;
    for document in documents {
        let mut lead = "  - ";
        for field in ORDER {
            if let Some(value) = document.get(field) {
                let value = escape_variables(&value.to_string());
                writeln!(out, "{lead}{field}: {value}")?;
                lead = "    ";
            }
        }
    }
    Ok(())
}

/// Keeps text that looks like a variable as text.
fn escape_variables(text: &str) -> String {
    text.replace("${", "$${")
}

fn set(target: &DatabaseTarget, args: &SetArgs, out: &mut impl Write) -> Result<(), Failure> {
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
