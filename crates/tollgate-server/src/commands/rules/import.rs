//! `tollgate rules import`.

use std::collections::HashSet;
use std::io::Write;

use serde_json::{Value, json};

use super::validate::{validate, validate_nodes};
use crate::audit::escaped;
use crate::cli::ImportArgs;
use crate::commands::Failure;
use crate::commands::database::{Meant, block_on};
use crate::config::ConfigFile;
use crate::database::{Database, Import, Imported};
use crate::document::{self, Node, Value as Said};

pub(super) fn import(
    meant: &Meant,
    args: &ImportArgs,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let file = ConfigFile::read(&args.file).map_err(Failure::Unavailable)?;
    let (rules, clients) = read(meant, &file)?;
    let how = Import {
        prune: args.prune,
        dry_run: args.dry_run,
    };
    let imported = block_on(async {
        let database = meant.open().await?;
        if !args.prune {
            validate_together(meant, &database, &rules, &clients).await?;
        }
        let imported = database.import(&meant.scope, &rules, &clients, how).await?;
        database.close().await;
        Ok(imported)
    })?;
    report(&imported, args.dry_run, out)
}

/// The rules and clients of a file, each of them right, and right together.
fn read(meant: &Meant, file: &ConfigFile) -> Result<(Vec<Value>, Vec<Value>), Failure> {
    let name = file.name();
    let wrong = |problems: &document::Problems| {
        Failure::BadInput(format!(
            "{name} is wrong, and nothing was imported:\n{}",
            file.render(problems).trim_end()
        ))
    };
    let root = file.document().map_err(|problems| wrong(&problems))?;
    let (rules, clients) = (items(&root, "rules", name)?, items(&root, "clients", name)?);
    if rules.is_empty() && clients.is_empty() {
        return Err(Failure::BadInput(format!(
            "{name}: there are neither `rules` nor `clients` in it"
        )));
    }
    let plain = |nodes: &[Node]| nodes.iter().map(without_active).collect::<Vec<_>>();
    validate_nodes(meant, &plain(&rules), &plain(&clients)).map_err(|problems| wrong(&problems))?;
    let json = |nodes: &[Node]| nodes.iter().map(Node::to_json).collect();
    Ok((json(&rules), json(&clients)))
}

fn items(root: &Node, section: &str, file: &str) -> Result<Vec<Node>, Failure> {
    match root.get(section).map(|node| (&node.value, node.kind())) {
        None | Some((_, "nothing")) => Ok(Vec::new()),
        Some((Said::List(items), _)) => Ok(items.clone()),
        Some((_, kind)) => Err(Failure::BadInput(format!(
            "{file}: `{section}` is {kind}; expected a list"
        ))),
    }
}

/// Whether a rule is in force is known to the database alone.
fn without_active(node: &Node) -> Node {
    let mut node = node.clone();
    if let Said::Map(entries) = &mut node.value {
        entries.retain(|entry| entry.key != "active");
    }
    node
}

/// What is there and stays must fit to what comes.
async fn validate_together(
    meant: &Meant,
    database: &Database,
    rules: &[Value],
    clients: &[Value],
) -> Result<(), Failure> {
    let stored = database.load(&meant.scope).await?;
    let rules = together(stored.rules, rules);
    let clients = together(stored.clients, clients);
    validate(meant, &rules, &clients)
}

/// What will be in force.
fn together(stored: Vec<Value>, new: &[Value]) -> Vec<Value> {
    // Clients have a plan as well, and are told apart by their id alone.
    let is_rule = |document: &Value| document.get("limit").is_some();
    // A file may say a number, which is a text in the database.
    let text = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    let key = |document: &Value| {
        let plan = is_rule(document).then(|| text(&document["plan"]));
        (text(&document["id"]), plan)
    };
    let named: HashSet<_> = new.iter().map(key).collect();
    let others = stored.into_iter().filter(|old| !named.contains(&key(old)));
    let active = new.iter().filter(|new| new["active"] != json!(false));
    let mut all: Vec<Value> = others.chain(active.cloned()).collect();
    for fields in all.iter_mut().filter_map(Value::as_object_mut) {
        fields.remove("active");
    }
    all
}

fn report(imported: &Imported, dry_run: bool, out: &mut impl Write) -> Result<(), Failure> {
    let would = if dry_run { "would be " } else { "" };
    for (what, names) in [
        ("added", &imported.added),
        ("changed", &imported.changed),
        ("removed", &imported.removed),
    ] {
        for name in names {
            writeln!(out, "{would}{what}: {}", escaped(name, 300))?;
        }
    }
    writeln!(out, "{} unchanged", imported.unchanged)?;
    Ok(())
}
