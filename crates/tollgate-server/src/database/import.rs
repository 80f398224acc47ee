//! Many rules and clients at once: all or nothing, and only what differs is touched.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::SystemTime;

use serde_json::Value;

use super::document::{ClientRow, Kept, RuleRow};
use super::rules::{ONE_AT_A_TIME, SELECT_CLIENTS, SELECT_RULES, bounded, put_rule, valid_scope};
use super::{Database, DatabaseError, on_pool, us_of};

/// How to import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Import {
    /// Remove what is stored and not among the documents.
    pub prune: bool,
    /// Say what would change, and change nothing.
    pub dry_run: bool,
}

/// What an import changed, or would change; by name, as in "rule charges of plan free" and "client merchant_123".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// What was not there before.
    pub added: Vec<String>,
    /// What was there and is another now.
    pub changed: Vec<String>,
    /// What is not there any more.
    pub removed: Vec<String>,
    /// How many are as they were, but perhaps for their place.
    pub unchanged: usize,
}

const UPSERT_CLIENT: &str = "
    INSERT INTO clients (scope, id, plan, api_key_sha256, active, created_us, updated_us)
    VALUES ($1, $2, $3, $4, $5, $6, $6)
    ON CONFLICT (scope, id) DO UPDATE SET
        plan = excluded.plan, api_key_sha256 = excluded.api_key_sha256, active = excluded.active,
        updated_us = excluded.updated_us";

impl Database {
    /// Makes these the rules and clients of the scope, and removes all others.
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
            dry_run: false,
        };
        self.import(scope, rules, clients, all).await
    }

    /// Stores these rules and clients in one transaction, in their order. Whoever reads sees all of them or none.
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
        let rules: Vec<RuleRow> = rules.iter().map(RuleRow::of).collect::<Result<_, _>>()?;
        let clients: Vec<ClientRow> = clients
            .iter()
            .map(ClientRow::of)
            .collect::<Result<_, _>>()?;
        each_once(&rules, |rule| (&rule.id, &rule.plan), RuleRow::name)?;
        each_once(&clients, |client| &client.id, ClientRow::name)?;
        let hashed: Vec<_> = clients
            .iter()
            .filter(|client| client.api_key_sha256.is_some())
            .collect();
        each_once(
            &hashed,
            |client| &client.api_key_sha256,
            |client| format!("the API key of {}", client.name()),
        )?;
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
                let rule_steps = Steps::of(&stored, &rules, |rule| (&rule.id, &rule.plan), how.prune);
                let client_steps = Steps::of(&known, &clients, |client| &client.id, how.prune);
                bounded(&rule_steps.after, &client_steps.after)?;
                let imported = rule_steps.report(RuleRow::name).and(client_steps.report(ClientRow::name));
                if how.dry_run {
                    tx.rollback().await?;
                    return Ok(imported);
                }
                // What goes makes room first: an API key may move from one client to another.
                for rule in &rule_steps.gone {
                    sqlx::query("DELETE FROM rules WHERE scope = $1 AND id = $2 AND plan = $3")
                        .bind(scope).bind(&rule.id).bind(&rule.plan).execute(&mut *tx).await?;
                }
                for client in client_steps.gone.iter().chain(&client_steps.changed) {
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

/// From what is stored to what is wanted.
struct Steps<'a, T> {
    /// To be stored, with their places.
    put: Vec<(i64, &'a T)>,
    /// The same as before, in another place.
    moved: Vec<(i64, &'a T)>,
    gone: Vec<&'a T>,
    added: Vec<&'a T>,
    changed: Vec<&'a T>,
    unchanged: usize,
    /// What there will be.
    after: Vec<()>,
}

impl<'a, T: PartialEq> Steps<'a, T> {
    fn of<K: Eq + Hash>(
        stored: &'a [Kept<T>],
        wanted: &'a [T],
        key: impl Fn(&'a T) -> K,
        prune: bool,
    ) -> Self {
        let known: HashMap<K, &Kept<T>> =
            stored.iter().map(|kept| (key(&kept.row), kept)).collect();
        let named: HashSet<K> = wanted.iter().map(&key).collect();
        let others: Vec<&T> = stored
            .iter()
            .map(|kept| &kept.row)
            .filter(|row| !named.contains(&key(row)))
            .collect();
        let mut steps = Self {
            put: Vec::new(),
            moved: Vec::new(),
            gone: if prune { others.clone() } else { Vec::new() },
            added: Vec::new(),
            changed: Vec::new(),
            unchanged: 0,
            after: vec![(); wanted.len() + if prune { 0 } else { others.len() }],
        };
        for (position, row) in (0_i64..).zip(wanted) {
            match known.get(&key(row)) {
                None => steps.added.push(row),
                Some(kept) if kept.row != *row => steps.changed.push(row),
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

    fn report(&self, name: impl Fn(&T) -> String) -> Imported {
        let names = |rows: &[&T]| rows.iter().map(|row| name(row)).collect();
        Imported {
            added: names(&self.added),
            changed: names(&self.changed),
            removed: names(&self.gone),
            unchanged: self.unchanged,
        }
    }
}

impl Imported {
    fn and(mut self, other: Self) -> Self {
        self.added.extend(other.added);
        self.changed.extend(other.changed);
        self.removed.extend(other.removed);
        self.unchanged += other.unchanged;
        self
    }
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
