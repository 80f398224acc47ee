//! `tollgate rules import`.

use std::collections::{HashMap, HashSet};
use std::io::Write;

use serde_json::Value;

use super::validate::validate_nodes;
use super::{limit_text, words};
use crate::cli::ImportArgs;
use crate::commands::database::{Meant, block_on};
use crate::database::{
    FieldChange, Import, Imported, StoredClient, StoredRule, imported_into_nothing,
};
use crate::failure::Failure;
use tollgate_config::document::{Entry, Node, Problems, Value as Said};
use tollgate_config::text::escaped;
use tollgate_config::{ConfigFile, rule_warnings};

pub(super) fn import(
    meant: &Meant,
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
    let (imported, warnings) = block_on(async {
        // Whatever is wrong, or only tried, makes no file.
        let is_missing = meant.is_missing()?;
        let mut warnings = Problems::default();
        if is_missing {
            warnings = documents.validate(meant, &file, &[], &[], how)?;
        }
        if is_missing && how.dry_run {
            let (rules, clients) = documents.json();
            return Ok((imported_into_nothing(&rules, &clients)?, warnings));
        }
        let database = meant.open().await?;
        let (rules, clients) = database.list(&meant.scope).await?;
        if !(how.if_empty && rules.len() + clients.len() > 0) {
            warnings = documents.validate(meant, &file, &rules, &clients, how)?;
        }
        let (rules, clients) = documents.json();
        let imported = database.import(&meant.scope, &rules, &clients, how).await?;
        database.close().await;
        Ok((imported, warnings))
    })?;
    if imported.skipped {
        let scope = escaped(&meant.scope, 64);
        writeln!(
            out,
            "nothing imported: the scope {scope} has rules or clients already"
        )?;
        return Ok(());
    }
    write!(out, "{}", file.render(&warnings))?;
    report(&imported, args.dry_run, out)
}

/// The rules and clients of a file.
struct Documents {
    rules: Vec<Node>,
    clients: Vec<Node>,
}

impl Documents {
    fn read(file: &ConfigFile) -> Result<Self, Failure> {
        let name = file.name();
        let root = file.document().map_err(|problems| wrong(file, &problems))?;
        let rules = items(&root, "rules", name)?;
        let clients = items(&root, "clients", name)?;
        match rules.is_empty() && clients.is_empty() {
            true => Err(Failure::BadInput(format!(
                "{name}: there are neither `rules` nor `clients` in it"
            ))),
            false => Ok(Self { rules, clients }),
        }
    }

    fn json(&self) -> (Vec<Value>, Vec<Value>) {
        let json = |nodes: &[Node]| nodes.iter().map(Node::to_json).collect();
        (json(&self.rules), json(&self.clients))
    }

    /// Whether each of them is right, completed by what is stored, and all fit together. Says what is surely not meant.
    fn validate(
        &self,
        meant: &Meant,
        file: &ConfigFile,
        rules: &[StoredRule],
        clients: &[StoredClient],
        how: Import,
    ) -> Result<Problems, Failure> {
        let rules: Vec<Stored<'_>> = rules.iter().map(Stored::rule).collect();
        let clients: Vec<Stored<'_>> = clients.iter().map(Stored::client).collect();
        let rules = Completed::of(&self.rules, &rules, "plan", how);
        let clients = Completed::of(&self.clients, &clients, "", how);
        validate_nodes(meant, &rules.named, &clients.named)
            .map_err(|problems| wrong(file, &problems))?;
        validate_nodes(meant, &rules.in_force, &clients.in_force).map_err(|problems| {
            Failure::BadInput(format!(
                "the rules would not be usable any more, so nothing was changed:\n{problems}"
            ))
        })?;
        Ok(rule_warnings(&rules.named))
    }
}

fn wrong(file: &ConfigFile, problems: &Problems) -> Failure {
    Failure::BadInput(format!(
        "{} is wrong, and nothing was imported:\n{}",
        file.name(),
        file.render(problems).trim_end()
    ))
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

/// A rule or client of the database.
struct Stored<'a> {
    document: &'a Value,
    active: bool,
}

impl<'a> Stored<'a> {
    fn rule(rule: &'a StoredRule) -> Self {
        Self {
            document: &rule.document,
            active: rule.active,
        }
    }

    fn client(client: &'a StoredClient) -> Self {
        Self {
            document: &client.document,
            active: client.active,
        }
    }
}

/// Documents of a file with what they leave out and is stored.
struct Completed {
    named: Vec<Node>,
    /// Those that are active, and others that stay.
    in_force: Vec<Node>,
}

impl Completed {
    /// They are told apart by their id and this field beside it, if it is not empty.
    fn of(nodes: &[Node], stored: &[Stored<'_>], beside: &str, how: Import) -> Self {
        let stored_key = |stored: &Stored<'_>| {
            let text = |field: &str| {
                stored.document[field]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            };
            (text("id"), text(beside))
        };
        let known: HashMap<_, _> = (stored.iter())
            .map(|stored| (stored_key(stored), stored))
            .collect();
        let mut all = Self {
            named: Vec::new(),
            in_force: Vec::new(),
        };
        let mut keys = HashSet::new();
        for node in nodes {
            let key = (text(node, "id"), text(node, beside));
            let before = known.get(&key).filter(|_| !how.whole);
            let node_is_active = match node.get("active").map(Node::to_json) {
                Some(Value::Bool(active)) => active,
                Some(_) => true,
                None => before.is_none_or(|stored| stored.active),
            };
            let completed = completed(node, before.map(|stored| stored.document));
            if node_is_active {
                all.in_force.push(completed.clone());
            }
            all.named.push(completed);
            keys.insert(key);
        }
        let others = stored
            .iter()
            .filter(|stored| !how.prune && stored.active && !keys.contains(&stored_key(stored)));
        let others: Vec<Node> = others
            .map(|stored| Node::from_json(stored.document))
            .collect();
        all.in_force.splice(0..0, others);
        all
    }
}

/// A single value as text: a file may have a number for what is a text in the database.
fn text(node: &Node, field: &str) -> String {
    match node.get(field).map(|node| &node.value) {
        Some(Said::Scalar(scalar)) if !scalar.is_null() => scalar.text.clone(),
        _ => String::new(),
    }
}

/// Without what is said to be null, with what is left out and stored, and without `active`, which the database alone knows.
fn completed(node: &Node, stored: Option<&Value>) -> Node {
    let mut node = node.clone();
    let Said::Map(entries) = &mut node.value else {
        return node;
    };
    let left_out: Vec<Entry> = match stored.map(Node::from_json).map(|node| node.value) {
        Some(Said::Map(stored)) => (stored.into_iter())
            .filter(|field| !entries.iter().any(|entry| entry.key == field.key))
            .collect(),
        _ => Vec::new(),
    };
    // A field with nothing behind it is a mistake, and no wish to remove it.
    let is_null = |value: &Said| matches!(value, Said::Scalar(scalar) if scalar.is_null() && !scalar.text.is_empty());
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
            writeln!(out, "  {}", in_words(change))?;
        }
    }
    for name in &imported.removed {
        writeln!(out, "{would}removed: {}", escaped(name, 300))?;
    }
    match imported.moved {
        0 => writeln!(out, "{} unchanged", imported.unchanged)?,
        moved => writeln!(
            out,
            "{} unchanged, {moved} of them in another place of the order",
            imported.unchanged
        )?,
    }
    Ok(())
}

/// As in `limit: 10/s burst 50 → 20/s burst 50`.
fn in_words(change: &FieldChange) -> String {
    let shown = |value: &Option<Value>| match (change.field, value) {
        (_, None) => "none".to_owned(),
        ("limit", Some(limit)) => limit_text(limit),
        ("per", Some(list)) => words(list),
        (_, Some(Value::String(text))) => text.clone(),
        (_, Some(value)) => value.to_string(),
    };
    let (before, after) = (shown(&change.before), shown(&change.after));
    // Of secrets, only that they differ.
    let after = if before == after {
        format!("{after} (another)")
    } else {
        after
    };
    escaped(&format!("{}: {before} → {after}", change.field), 1_000)
}
