//! Many rules and clients at once: all or nothing, and only what differs is touched.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::SystemTime;

use serde_json::Value;

use super::document::{ClientRow, Field, Kept, RuleRow};
use super::rules::{ONE_AT_A_TIME, SELECT_CLIENTS, SELECT_RULES, bounded, put_rule, valid_scope};
use super::{Database, DatabaseError, on_pool, us_of};

/// How to import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Import {
    /// Remove what is stored and not among the documents.
    pub prune: bool,
    /// Remove fields that a document leaves out. Otherwise they stay as they are stored, and `null` removes them.
    pub whole: bool,
    /// Change nothing if the scope has rules or clients already.
    pub if_empty: bool,
    /// Say what would change, and change nothing.
    pub dry_run: bool,
}

/// What an import changed, or would change; by name, as in "rule charges of plan free" and "client merchant_123".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imported {
    /// What was not there before.
    pub added: Vec<String>,
    /// What was there and is another now.
    pub changed: Vec<Changed>,
    /// What is not there any more.
    pub removed: Vec<String>,
    /// How many are as they were, but perhaps for their place.
    pub unchanged: usize,
    /// How many of those are in another place.
    pub moved: usize,
    /// Whether nothing was imported because the scope was not empty.
    pub skipped: bool,
}

/// A rule or client that is another now.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// Its name, as in "rule charges of plan free".
    pub name: String,
    /// Its fields that are others now.
    pub fields: Vec<FieldChange>,
}

/// A field that is another now. A secret shows as `***`.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldChange {
    /// Its name.
    pub field: &'static str,
    /// What it was; `None` if it was not there.
    pub before: Option<Value>,
    /// What it is; `None` if it is not there any more.
    pub after: Option<Value>,
}

const UPSERT_CLIENT: &str = "
    INSERT INTO clients (scope, id, plan, api_key_sha256, active, created_us, updated_us)
    VALUES ($1, $2, $3, $4, $5, $6, $6)
    ON CONFLICT (scope, id) DO UPDATE SET
        plan = excluded.plan, api_key_sha256 = excluded.api_key_sha256, active = excluded.active,
        updated_us = excluded.updated_us";

impl Database {
    /// Makes these the rules and clients of the scope, just as they are, and removes all others.
    ///
    /// # Errors
    /// As [`import`](Self::import).
    pub async fn replace_all(
        &self,
        scope: &str,
        rules: &[Value],
        clients: &[Value],
    ) -> Result<Imported, DatabaseError> {
        let all = Import {
            prune: true,
            whole: true,
            ..Import::default()
        };
        self.import(scope, rules, clients, all).await
    }

    /// Stores these rules and clients in one transaction, in their order. Whoever reads sees all of them or none. What a
    /// document leaves out stays as it is stored.
    ///
    /// # Errors
    /// If one of them cannot be stored, two have the same name, there are too many, or the database fails; nothing is
    /// changed then.
    pub async fn import(
        &self,
        scope: &str,
        rules: &[Value],
        clients: &[Value],
        how: Import,
    ) -> Result<Imported, DatabaseError> {
        valid_scope(scope)?;
        let wanted = Wanted::read(rules, clients)?;
        let now_us = us_of(SystemTime::now());
        // Many statements, each of them bounded on its own.
        self.within(6 * self.config.answer_within, "import the rules", async {
            on_pool!(self, pool => {
                let mut tx = pool.begin_with(self.begin_writing()).await?;
                sqlx::query(ONE_AT_A_TIME).execute(&mut *tx).await?;
                let stored: Vec<Kept<RuleRow>> =
                    sqlx::query_as(SELECT_RULES).bind(scope).fetch_all(&mut *tx).await?;
                let known: Vec<Kept<ClientRow>> =
                    sqlx::query_as(SELECT_CLIENTS).bind(scope).fetch_all(&mut *tx).await?;
                if how.if_empty && !(stored.is_empty() && known.is_empty()) {
                    tx.rollback().await?;
                    return Ok(Imported { skipped: true, ..Imported::default() });
                }
                let wanted = match how.whole {
                    true => wanted,
                    false => wanted.over(&stored, &known),
                };
                let (rule_steps, client_steps) = wanted.steps(&stored, &known, how.prune);
                bounded(&rule_steps.after, &client_steps.after)?;
                each_key_once(&client_steps.after)?;
                let imported = wanted.imported(&rule_steps, &client_steps);
                if how.dry_run {
                    tx.rollback().await?;
                    return Ok(imported);
                }
                // What goes makes room first: an API key may move from one client to another.
                for rule in &rule_steps.gone {
                    sqlx::query("DELETE FROM rules WHERE scope = $1 AND id = $2 AND plan = $3")
                        .bind(scope).bind(&rule.id).bind(&rule.plan).execute(&mut *tx).await?;
                }
                let changed = client_steps.changed.iter().map(|(_, client)| client);
                for client in client_steps.gone.iter().chain(changed) {
                    sqlx::query("UPDATE clients SET api_key_sha256 = NULL WHERE scope = $1 AND id = $2")
                        .bind(scope).bind(&client.id).execute(&mut *tx).await?;
                }
                for client in &client_steps.gone {
                    sqlx::query("DELETE FROM clients WHERE scope = $1 AND id = $2")
                        .bind(scope).bind(&client.id).execute(&mut *tx).await?;
                }
                for (position, rule) in rule_steps.moved.iter().copied() {
                    sqlx::query("UPDATE rules SET position = $4 WHERE scope = $1 AND id = $2 AND plan = $3")
                        .bind(scope).bind(&rule.id).bind(&rule.plan).bind(position).execute(&mut *tx).await?;
                }
                for (position, rule) in rule_steps.put.iter().copied() {
                    put_rule!(tx, scope, position, rule, now_us);
                }
                for (_, client) in client_steps.put.iter().copied() {
                    sqlx::query(UPSERT_CLIENT)
                        .bind(scope).bind(&client.id).bind(&client.plan).bind(&client.api_key_sha256)
                        .bind(client.active).bind(now_us).execute(&mut *tx).await?;
                }
                tx.commit().await?;
                Ok(imported)
            })
        })
        .await
    }
}

/// What an import would do to a database that is not there yet.
///
/// # Errors
/// If one of them cannot be stored, or two have the same name.
pub(crate) fn imported_into_nothing(
    rules: &[Value],
    clients: &[Value],
) -> Result<Imported, DatabaseError> {
    let wanted = Wanted::read(rules, clients)?;
    let (rule_steps, client_steps) = wanted.steps(&[], &[], false);
    each_key_once(&client_steps.after)?;
    Ok(wanted.imported(&rule_steps, &client_steps))
}

/// What is to be stored, with the documents that say it.
struct Wanted<'a> {
    rules: Vec<(RuleRow, &'a Value)>,
    clients: Vec<(ClientRow, &'a Value)>,
}

impl<'a> Wanted<'a> {
    fn read(rules: &'a [Value], clients: &'a [Value]) -> Result<Self, DatabaseError> {
        let rule = |document| Ok::<_, DatabaseError>((RuleRow::of(document)?, document));
        let client = |document| Ok::<_, DatabaseError>((ClientRow::of(document)?, document));
        let wanted = Self {
            rules: rules.iter().map(rule).collect::<Result<_, _>>()?,
            clients: clients.iter().map(client).collect::<Result<_, _>>()?,
        };
        each_once(
            &wanted.rules,
            |(rule, _)| rule_key(rule),
            |(rule, _)| rule.name(),
        )?;
        each_once(
            &wanted.clients,
            |(client, _)| &client.id,
            |(client, _)| client.name(),
        )?;
        Ok(wanted)
    }

    /// What documents leave out, as it is stored.
    fn over(self, rules: &[Kept<RuleRow>], clients: &[Kept<ClientRow>]) -> Self {
        let known_rules: HashMap<_, _> = rules
            .iter()
            .map(|kept| (rule_key(&kept.row), &kept.row))
            .collect();
        let known_clients: HashMap<_, _> = clients
            .iter()
            .map(|kept| (&kept.row.id, &kept.row))
            .collect();
        let rule = |(rule, document): (RuleRow, _)| match known_rules.get(&rule_key(&rule)).copied()
        {
            Some(stored) => (rule.over(stored, document), document),
            None => (rule, document),
        };
        let client = |(client, document): (ClientRow, _)| match known_clients.get(&client.id) {
            Some(stored) => (client.over(stored, document), document),
            None => (client, document),
        };
        Self {
            rules: self.rules.into_iter().map(rule).collect(),
            clients: self.clients.into_iter().map(client).collect(),
        }
    }

    fn steps<'s>(
        &'s self,
        rules: &'s [Kept<RuleRow>],
        clients: &'s [Kept<ClientRow>],
        prune: bool,
    ) -> (Steps<'s, RuleRow>, Steps<'s, ClientRow>) {
        let wanted_rules = self.rules.iter().map(|(rule, _)| rule);
        let wanted_clients = self.clients.iter().map(|(client, _)| client);
        (
            Steps::of(rules, wanted_rules, rule_key, prune),
            Steps::of(
                clients,
                wanted_clients,
                |client: &ClientRow| &client.id,
                prune,
            ),
        )
    }

    fn imported(&self, rules: &Steps<'_, RuleRow>, clients: &Steps<'_, ClientRow>) -> Imported {
        let rules = rules.report(RuleRow::name, RuleRow::fields);
        // Clients have no place among themselves.
        let clients = Imported {
            moved: 0,
            ..clients.report(ClientRow::name, ClientRow::fields)
        };
        rules.and(clients)
    }
}

fn rule_key(rule: &RuleRow) -> (&str, &str) {
    (&rule.id, &rule.plan)
}

/// From what is stored to what is wanted.
struct Steps<'a, T> {
    /// To be stored, with their places.
    put: Vec<(i64, &'a T)>,
    /// The same as before, in another place.
    moved: Vec<(i64, &'a T)>,
    gone: Vec<&'a T>,
    added: Vec<&'a T>,
    /// As they were, and as they will be.
    changed: Vec<(&'a T, &'a T)>,
    unchanged: usize,
    /// What there will be.
    after: Vec<&'a T>,
}

impl<'a, T: PartialEq> Steps<'a, T> {
    fn of<K: Eq + Hash>(
        stored: &'a [Kept<T>],
        wanted: impl Iterator<Item = &'a T> + Clone,
        key: impl Fn(&'a T) -> K,
        prune: bool,
    ) -> Self {
        let known: HashMap<K, &Kept<T>> =
            stored.iter().map(|kept| (key(&kept.row), kept)).collect();
        let named: HashSet<K> = wanted.clone().map(&key).collect();
        let others: Vec<&T> = stored
            .iter()
            .map(|kept| &kept.row)
            .filter(|row| !named.contains(&key(row)))
            .collect();
        let (gone, stay) = match prune {
            true => (others, Vec::new()),
            false => (Vec::new(), others),
        };
        let mut steps = Self {
            put: Vec::new(),
            moved: Vec::new(),
            gone,
            added: Vec::new(),
            changed: Vec::new(),
            unchanged: 0,
            after: stay.into_iter().chain(wanted.clone()).collect(),
        };
        for (position, row) in (0_i64..).zip(wanted) {
            match known.get(&key(row)) {
                None => steps.added.push(row),
                Some(kept) if kept.row != *row => steps.changed.push((&kept.row, row)),
                Some(kept) => {
                    steps.unchanged += 1;
                    if kept.position != position {
                        steps.moved.push((position, row));
                    }
                    continue;
                }
            }
            steps.put.push((position, row));
        }
        steps
    }

    fn report(&self, name: impl Fn(&T) -> String, fields: impl Fn(&T) -> Vec<Field>) -> Imported {
        let names = |rows: &[&T]| rows.iter().map(|row| name(row)).collect();
        let changed = self.changed.iter().map(|(before, after)| Changed {
            name: name(after),
            fields: differences(fields(before), fields(after)),
        });
        Imported {
            added: names(&self.added),
            changed: changed.collect(),
            removed: names(&self.gone),
            unchanged: self.unchanged,
            moved: self.moved.len(),
            skipped: false,
        }
    }
}

fn differences(before: Vec<Field>, after: Vec<Field>) -> Vec<FieldChange> {
    let shown = |field: Field| match field.is_secret {
        true => field.value.map(|_| Value::from("***")),
        false => field.value,
    };
    let pairs = before.into_iter().zip(after);
    pairs
        .filter(|(before, after)| before != after)
        .map(|(before, after)| FieldChange {
            field: before.name,
            before: shown(before),
            after: shown(after),
        })
        .collect()
}

impl Imported {
    fn and(mut self, other: Self) -> Self {
        self.added.extend(other.added);
        self.changed.extend(other.changed);
        self.removed.extend(other.removed);
        self.unchanged += other.unchanged;
        self.moved += other.moved;
        self
    }
}

fn each_key_once(clients: &[&ClientRow]) -> Result<(), DatabaseError> {
    let with_key: Vec<_> = clients
        .iter()
        .filter(|client| client.api_key_sha256.is_some())
        .collect();
    each_once(
        &with_key,
        |client| &client.api_key_sha256,
        |client| format!("the API key of {}", client.name()),
    )
}

fn each_once<'a, T, K: Eq + Hash>(
    rows: &'a [T],
    key: impl Fn(&'a T) -> K,
    name: impl Fn(&T) -> String,
) -> Result<(), DatabaseError> {
    let mut seen = HashSet::new();
    match rows.iter().find(|row| !seen.insert(key(row))) {
        None => Ok(()),
        Some(row) => Err(DatabaseError::Document {
            which: name(row),
            why: "is there twice; once would be right".to_owned(),
        }),
    }
}
