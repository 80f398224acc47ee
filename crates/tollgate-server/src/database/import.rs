//! Many rules and clients at once: all or nothing, and only what differs is touched.

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use serde_json::Value;

use super::row::{FieldChange, Row, StoredRow, Table};
use super::rules::{ONE_AT_A_TIME, bounded, put_row, select_rows, valid_scope};
use super::{Database, DatabaseError, on_pool};
use crate::time::unix_micros;

/// How to import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Import {
    /// Remove what is stored and not among the documents.
    pub prune: bool,
    /// Remove fields that a document leaves out. Otherwise they stay as they are stored, and `null` removes them.
    pub whole: bool,
    /// Change nothing if the scope has rules or clients already.
    pub if_empty: bool,
    /// Report what would change, and change nothing.
    pub dry_run: bool,
}

/// What an import changed, or would change, by names such as "rule charges of plan free" and "client merchant_123".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imported {
    /// New rules and clients.
    pub added: Vec<String>,
    /// Those with changed fields.
    pub changed: Vec<Changed>,
    /// Those that were removed.
    pub removed: Vec<String>,
    /// How many have the same fields as before.
    pub unchanged: usize,
    /// How many of the unchanged have another position.
    pub moved: usize,
    /// Whether nothing was imported because the scope was not empty.
    pub skipped: bool,
}

/// A rule or client whose fields changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// Its name, such as "rule charges of plan free".
    pub name: String,
    /// The changed fields.
    pub fields: Vec<FieldChange>,
}

impl Database {
    /// Stores these rules and clients in one transaction, in their order. Readers see all of the changes or none.
    pub async fn import(
        &self,
        scope: &str,
        rules: &[Value],
        clients: &[Value],
        how: Import,
    ) -> Result<Imported, DatabaseError> {
        valid_scope(scope)?;
        let rules = read_documents(Table::Rules, rules)?;
        let clients = read_documents(Table::Clients, clients)?;
        let now_us = unix_micros(SystemTime::now());
        // Many statements, each of them bounded on its own.
        self.within(6 * self.config.timeout, "import the rules", async {
            on_pool!(self, pool => {
                let mut tx = pool.begin_with(self.begin_writing()).await?;
                sqlx::query(ONE_AT_A_TIME).execute(&mut *tx).await?;
                let (stored_rules, stored_clients) = select_rows!(tx, scope);
                if how.if_empty && !(stored_rules.is_empty() && stored_clients.is_empty()) {
                    tx.rollback().await?;
                    return Ok(Imported { skipped: true, ..Imported::default() });
                }
                let rules = Steps::new(&stored_rules, rules, how)?;
                let clients = Steps::new(&stored_clients, clients, how)?;
                bounded(rules.total, clients.total)?;
                if how.dry_run {
                    tx.rollback().await?;
                    return Ok(rules.report.and(clients.report));
                }
                // Removals come first, because an API key may move from one client to another.
                for rule in &rules.removed {
                    sqlx::query("DELETE FROM rules WHERE scope = $1 AND id = $2 AND plan = $3")
                        .bind(scope).bind(rule.id()).bind(rule.rule_plan()).execute(&mut *tx).await?;
                }
                for client in clients.removed.iter().copied().chain(clients.changed.iter().map(|(_, client)| client)) {
                    sqlx::query("UPDATE clients SET api_key_sha256 = NULL WHERE scope = $1 AND id = $2")
                        .bind(scope).bind(client.id()).execute(&mut *tx).await?;
                }
                for client in &clients.removed {
                    sqlx::query("DELETE FROM clients WHERE scope = $1 AND id = $2")
                        .bind(scope).bind(client.id()).execute(&mut *tx).await?;
                }
                for (position, rule) in &rules.moved {
                    sqlx::query("UPDATE rules SET position = $4 WHERE scope = $1 AND id = $2 AND plan = $3")
                        .bind(scope).bind(rule.id()).bind(rule.rule_plan()).bind(*position).execute(&mut *tx).await?;
                }
                for (position, row) in [&rules.added, &rules.changed, &clients.added, &clients.changed].into_iter().flatten() {
                    put_row!(tx, scope, now_us, *position, row);
                }
                tx.commit().await?;
                Ok(rules.report.and(clients.report))
            })
        })
        .await
    }
}

/// What an import would do to a database that does not exist yet.
pub(crate) fn import_into_nothing(
    rules: &[Value],
    clients: &[Value],
) -> Result<Imported, DatabaseError> {
    let rules = read_documents(Table::Rules, rules)?;
    let clients = read_documents(Table::Clients, clients)?;
    let rules = Steps::new(&[], rules, Import::default())?.report;
    Ok(rules.and(Steps::new(&[], clients, Import::default())?.report))
}

/// The rows of these documents, each with its document.
fn read_documents(table: Table, documents: &[Value]) -> Result<Vec<(Row, &Value)>, DatabaseError> {
    let rows = documents
        .iter()
        .map(|document| Ok((Row::of(table, document)?, document)));
    let rows: Vec<(Row, &Value)> = rows.collect::<Result<_, DatabaseError>>()?;
    let mut keys = HashSet::new();
    match rows.iter().find(|(row, _)| !keys.insert(row.key())) {
        None => Ok(rows),
        Some((row, _)) => Err(duplicate(row.name())),
    }
}

fn duplicate(name: String) -> DatabaseError {
    DatabaseError::bad_input(name, "is there twice; once would be right")
}

/// The steps from what is stored in a table to what is wanted. Rows are with their positions.
#[derive(Default)]
struct Steps<'a> {
    added: Vec<(i64, Row)>,
    changed: Vec<(i64, Row)>,
    /// Unchanged but for the position.
    moved: Vec<(i64, Row)>,
    removed: Vec<&'a Row>,
    /// How many rows there will be.
    total: usize,
    report: Imported,
}

impl<'a> Steps<'a> {
    fn new(
        stored: &'a [StoredRow],
        wanted: Vec<(Row, &Value)>,
        how: Import,
    ) -> Result<Self, DatabaseError> {
        let known: HashMap<_, _> = (stored.iter())
            .map(|stored| (stored.row.key(), stored))
            .collect();
        let named: HashSet<_> = wanted.iter().map(|(row, _)| row.key()).collect();
        let others = stored.iter().map(|stored| &stored.row);
        let others: Vec<&Row> = others.filter(|row| !named.contains(&row.key())).collect();
        let mut steps = Self::default();
        let mut api_keys = HashSet::new();
        match how.prune {
            true => {
                steps.report.removed = others.iter().map(|row| row.name()).collect();
                steps.removed = others;
            }
            false => {
                steps.total = others.len();
                api_keys.extend(
                    others
                        .iter()
                        .filter_map(|row| row.api_key())
                        .map(str::to_owned),
                );
            }
        }
        for (position, (row, document)) in (0_i64..).zip(wanted) {
            let known = known.get(&row.key()).copied();
            let row = match known {
                Some(known) if !how.whole => row.or_stored(&known.row, document),
                _ => row,
            };
            if let Some(key) = row.api_key()
                && !api_keys.insert(key.to_owned())
            {
                return Err(duplicate(format!("the API key of {}", row.name())));
            }
            steps.total += 1;
            steps.add(known, position, row);
        }
        Ok(steps)
    }

    fn add(&mut self, known: Option<&StoredRow>, position: i64, row: Row) {
        let report = &mut self.report;
        match known {
            None => {
                report.added.push(row.name());
                self.added.push((position, row));
            }
            Some(known) if known.row != row => {
                let (name, fields) = (row.name(), known.row.changes(&row));
                report.changed.push(Changed { name, fields });
                self.changed.push((position, row));
            }
            Some(known) => {
                report.unchanged += 1;
                if known.position.is_some_and(|known| known != position) {
                    report.moved += 1;
                    self.moved.push((position, row));
                }
            }
        }
    }
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
