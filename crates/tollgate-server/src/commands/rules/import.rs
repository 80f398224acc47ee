//! `tollgate rules import`: stores the rules and clients of a file.

use std::collections::{HashMap, HashSet};
use std::io::Write;

use serde_json::Value as Json;
use tollgate_config::document::{Node, Problems, Value};
use tollgate_config::text::escaped;
use tollgate_config::{ConfigFile, rule_warnings};

use super::{limit_text, per_text, unusable, validate};
use crate::cli::ImportArgs;
use crate::commands::block_on;
use crate::commands::inputs::DatabaseTarget;
use crate::database::{FieldChange, Import, Imported, Stored, import_into_nothing};
use crate::failure::Failure;

pub(super) fn import(
    target: &DatabaseTarget,
    args: &ImportArgs,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let file = ConfigFile::read(&args.file).map_err(Failure::Unavailable)?;
    let documents = Documents::read(&file)?;
    let how = Import {
        prune: args.prune || args.exact,
        whole: args.exact,
        if_empty: args.if_empty,
        dry_run: args.dry_run,
    };
    let json = |nodes: &[Node]| -> Vec<Json> { nodes.iter().map(Node::to_json).collect() };
    let (rules, clients) = (json(&documents.rules), json(&documents.clients));
    let (imported, warnings) = block_on(async {
        let mut warnings = Problems::default();
        // An invalid file and a dry run create no database.
        let is_missing = target.is_missing()?;
        if is_missing {
            warnings = documents.validate(target, &file, (&[], &[]), how)?;
        }
        if is_missing && how.dry_run {
            return Ok((import_into_nothing(&rules, &clients)?, warnings));
        }
        let database = target.open().await?;
        let stored = database.list(&target.scope).await?;
        if !how.if_empty || stored.0.is_empty() && stored.1.is_empty() {
            warnings = documents.validate(target, &file, (&stored.0, &stored.1), how)?;
        }
        let imported = database
            .import(&target.scope, &rules, &clients, how)
            .await?;
        database.close().await;
        Ok((imported, warnings))
    })?;
    if imported.skipped {
        let scope = escaped(&target.scope, 64);
        writeln!(
            out,
            "nothing imported: the scope {scope} has rules or clients already"
        )?;
        return Ok(());
    }
    write!(out, "{}", file.render(&warnings))?;
    report(&imported, args.dry_run, out)
}

struct Documents {
    rules: Vec<Node>,
    clients: Vec<Node>,
}

impl Documents {
    fn read(file: &ConfigFile) -> Result<Self, Failure> {
        let name = file.name();
        let root = file
            .document()
            .map_err(|problems| invalid(file, &problems))?;
        let documents = Self {
            rules: items(&root, "rules", name)?,
            clients: items(&root, "clients", name)?,
        };
        match documents.rules.is_empty() && documents.clients.is_empty() {
            true => Err(Failure::BadInput(format!(
                "{name}: there are neither `rules` nor `clients` in it"
            ))),
            false => Ok(documents),
        }
    }

    /// Validates the documents, completed by what is stored, and then all that will be active. Returns the warnings.
    fn validate(
        &self,
        target: &DatabaseTarget,
        file: &ConfigFile,
        (rules, clients): (&[Stored], &[Stored]),
        how: Import,
    ) -> Result<Problems, Failure> {
        let rules = Completed::new(&self.rules, rules, "plan", how);
        let clients = Completed::new(&self.clients, clients, "", how);
        validate(target, &rules.named, &clients.named)
            .map_err(|problems| invalid(file, &problems))?;
        validate(target, &rules.active, &clients.active).map_err(|problems| unusable(&problems))?;
        Ok(rule_warnings(&rules.named))
    }
}

fn invalid(file: &ConfigFile, problems: &Problems) -> Failure {
    Failure::BadInput(format!(
        "{} is not valid, and nothing was imported:\n{}",
        file.name(),
        file.render(problems).trim_end()
    ))
}

fn items(root: &Node, section: &str, file: &str) -> Result<Vec<Node>, Failure> {
    match root.get(section).map(|node| (&node.value, node.kind())) {
        None | Some((_, "nothing")) => Ok(Vec::new()),
        Some((Value::List(items), _)) => Ok(items.clone()),
        Some((_, kind)) => Err(Failure::BadInput(format!(
            "{file}: `{section}` is {kind}; expected a list"
        ))),
    }
}

/// Documents of a file, with the stored fields that they leave out.
struct Completed {
    named: Vec<Node>,
    /// Those of them that are active, and others that stay.
    active: Vec<Node>,
}

impl Completed {
    /// Documents are identified by their id and this other field.
    fn new(nodes: &[Node], stored: &[Stored], other_field: &str, how: Import) -> Self {
        let key = |stored: &Stored| {
            let text = |field: &str| {
                stored.document[field]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            };
            (text("id"), text(other_field))
        };
        let known: HashMap<_, _> = stored.iter().map(|it| (key(it), it)).collect();
        let (mut named, mut active, mut keys) = (Vec::new(), Vec::new(), HashSet::new());
        for node in nodes {
            let key = (text(node, "id"), text(node, other_field));
            let before = known.get(&key).filter(|_| !how.whole);
            let is_active = match node.get("active").map(Node::to_json) {
                Some(Json::Bool(active)) => active,
                Some(_) => true,
                None => before.is_none_or(|stored| stored.active),
            };
            let node = completed(node, before.map(|stored| &stored.document));
            if is_active {
                active.push(node.clone());
            }
            named.push(node);
            keys.insert(key);
        }
        let stay = |it: &&Stored| !how.prune && it.active && !keys.contains(&key(it));
        let others = stored.iter().filter(stay);
        active.splice(0..0, others.map(|it| Node::from_json(&it.document)));
        Self { named, active }
    }
}

/// A single value as text: a file may have a number for what is text in the database.
fn text(node: &Node, field: &str) -> String {
    match node.get(field).map(|node| &node.value) {
        Some(Value::Scalar(scalar)) if !scalar.is_null() => scalar.text.clone(),
        _ => String::new(),
    }
}

/// Adds the stored fields that a document leaves out, and removes those that are null, and `active`, which only the database has.
fn completed(node: &Node, stored: Option<&Json>) -> Node {
    let mut node = node.clone();
    let Value::Map(entries) = &mut node.value else {
        return node;
    };
    let mut left_out = match stored.map(Node::from_json).map(|node| node.value) {
        Some(Value::Map(stored)) => stored,
        _ => Vec::new(),
    };
    left_out.retain(|field| !entries.iter().any(|entry| entry.key == field.key));
    // A key without a value is a mistake, and does not remove the field.
    let is_null = |value: &Value| matches!(value, Value::Scalar(scalar) if scalar.is_null() && !scalar.text.is_empty());
    entries.retain(|entry| entry.key != "active" && !is_null(&entry.value.value));
    entries.extend(left_out);
    node
}

fn report(imported: &Imported, dry_run: bool, out: &mut impl Write) -> Result<(), Failure> {
    let would = if dry_run { "would be " } else { "" };
    for name in &imported.added {
        writeln!(out, "{would}added: {}", escaped(name, 300))?;
    }
    for changed in &imported.changed {
        writeln!(out, "{would}changed: {}", escaped(&changed.name, 300))?;
        for change in &changed.fields {
            writeln!(out, "  {}", change_text(change))?;
        }
    }
    for name in &imported.removed {
        writeln!(out, "{would}removed: {}", escaped(name, 300))?;
    }
    let moved = match imported.moved {
        0 => String::new(),
        moved => format!(", {moved} of them in another position"),
    };
    Ok(writeln!(out, "{} unchanged{moved}", imported.unchanged)?)
}

/// A change as in `limit: 10/s burst 50 → 20/s burst 50`.
fn change_text(change: &FieldChange) -> String {
    let text = |value: &Option<Json>| match (change.field, value) {
        (_, None) => "none".to_owned(),
        ("limit", Some(limit)) => limit_text(limit),
        ("per", Some(list)) => per_text(list),
        (_, Some(Json::String(text))) => text.clone(),
        (_, Some(value)) => value.to_string(),
    };
    let (before, after) = (text(&change.before), text(&change.after));
    // Secrets look the same.
    let other = if before == after { " (another)" } else { "" };
    escaped(
        &format!("{}: {before} → {after}{other}", change.field),
        1_000,
    )
}
