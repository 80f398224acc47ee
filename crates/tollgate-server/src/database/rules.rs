//! Reading and changing the rules and clients of a scope.

use std::time::SystemTime;

use serde_json::Value;

use super::row::{Row, Stored, StoredRow, Table};
use super::{Database, DatabaseError, Interrupted, MAX_CLIENTS, MAX_RULES, on_pool};
use crate::time::unix_micros;

/// The content of a scope at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// The generation at that moment. It differs after any change.
    pub generation_number: i64,
    /// The active rules as documents, in order.
    pub rules: Vec<Value>,
    /// The active clients as documents, by id.
    pub clients: Vec<Value>,
}

/// The limit is one more than there may be, to see that there are too many. Columns are named because a newer program may add some while this
/// one runs, and the driver for SQLite fails when `*` becomes more columns.
pub(super) const SELECT_RULES: &str = r#"
    SELECT id, plan, position, "match", per, algorithm, rate, burst, queue, max, "window", mode, on_store_failure, active,
        description, created_us, updated_us
    FROM rules WHERE scope = $1 ORDER BY position, id, plan LIMIT 10001"#;
pub(super) const SELECT_CLIENTS: &str = "
    SELECT id, plan, api_key_sha256, active, created_us, updated_us
    FROM clients WHERE scope = $1 ORDER BY id LIMIT 100001";

pub(super) const SELECT_GENERATION: &str = "SELECT number FROM rules_generation";

/// Locks a row until the end of the transaction, so that changes are serialized, and their generations with them.
pub(super) const ONE_AT_A_TIME: &str = "UPDATE rules_generation SET number = number";

pub(super) const UPSERT_RULE: &str = r#"
    INSERT INTO rules (scope, updated_us, created_us, id, plan, "match", per, algorithm, rate, burst, queue, max, "window", mode,
                       on_store_failure, active, description, position)
    VALUES ($1, $2, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
    ON CONFLICT (scope, id, plan) DO UPDATE SET
        position = excluded.position, "match" = excluded."match", per = excluded.per, algorithm = excluded.algorithm,
        rate = excluded.rate, burst = excluded.burst, queue = excluded.queue, max = excluded.max,
        "window" = excluded."window", mode = excluded.mode, on_store_failure = excluded.on_store_failure,
        active = excluded.active, description = excluded.description, updated_us = excluded.updated_us"#;

pub(super) const UPSERT_CLIENT: &str = "
    INSERT INTO clients (scope, updated_us, created_us, id, plan, api_key_sha256, active)
    VALUES ($1, $2, $2, $3, $4, $5, $6)
    ON CONFLICT (scope, id) DO UPDATE SET
        plan = excluded.plan, api_key_sha256 = excluded.api_key_sha256, active = excluded.active,
        updated_us = excluded.updated_us";

/// Reads the rules and clients of a scope in a transaction.
macro_rules! select_rows {
    ($tx:expr, $scope:expr) => {{
        use $crate::database::row::{StoredRow, Table};
        use $crate::database::rules::{SELECT_CLIENTS, SELECT_RULES};
        let rules = sqlx::query(SELECT_RULES).bind($scope);
        let rules = rules.fetch_all(&mut *$tx).await?;
        let clients = sqlx::query(SELECT_CLIENTS).bind($scope);
        let clients = clients.fetch_all(&mut *$tx).await?;
        let rules = rules.iter().map(|row| StoredRow::read(Table::Rules, row));
        let clients = clients
            .iter()
            .map(|row| StoredRow::read(Table::Clients, row));
        (
            rules.collect::<Result<Vec<_>, _>>()?,
            clients.collect::<Result<Vec<_>, _>>()?,
        )
    }};
}
pub(super) use select_rows;

/// Stores a row in a transaction.
macro_rules! put_row {
    ($tx:expr, $scope:expr, $now_us:expr, $position:expr, $row:expr) => {{
        use $crate::database::row::{Cell, Table};
        use $crate::database::rules::{UPSERT_CLIENT, UPSERT_RULE};
        let is_rule = $row.table == Table::Rules;
        let mut query = sqlx::query(if is_rule { UPSERT_RULE } else { UPSERT_CLIENT })
            .bind($scope)
            .bind($now_us);
        for cell in $row.cells() {
            query = match cell {
                Cell::Text(text) => query.bind(text),
                Cell::Number(number) => query.bind(number),
                Cell::Flag(flag) => query.bind(flag),
            };
        }
        if is_rule {
            query = query.bind($position);
        }
        query.execute(&mut *$tx).await?
    }};
}
pub(super) use put_row;

impl Loaded {
    /// Whether the rules and clients are the same. The generation changes with other scopes too.
    pub(crate) fn has_same_content(&self, other: &Self) -> bool {
        (&self.rules, &self.clients) == (&other.rules, &other.clients)
    }
}

impl Database {
    /// Reads the active rules and clients of a scope, all of one moment.
    pub async fn load(&self, scope: &str) -> Result<Loaded, DatabaseError> {
        let (generation_number, rules, clients) = self.read(scope).await?;
        let active = |rows: Vec<StoredRow>| {
            let active = rows.iter().filter(|stored| stored.row.is_active());
            active.map(|stored| stored.row.document()).collect()
        };
        let documents: [Result<_, _>; 2] = [rules, clients].map(active);
        let [rules, clients] = documents;
        Ok(Loaded {
            generation_number,
            rules: rules?,
            clients: clients?,
        })
    }

    /// Reads all rules and clients of a scope, including inactive ones.
    pub async fn list(&self, scope: &str) -> Result<(Vec<Stored>, Vec<Stored>), DatabaseError> {
        let (_, rules, clients) = self.read(scope).await?;
        let rules: Result<_, _> = rules.iter().map(StoredRow::stored).collect();
        let clients: Result<_, _> = clients.iter().map(StoredRow::stored).collect();
        Ok((rules?, clients?))
    }

    async fn read(
        &self,
        scope: &str,
    ) -> Result<(i64, Vec<StoredRow>, Vec<StoredRow>), DatabaseError> {
        self.in_time("read the rules", async {
            on_pool!(self, pool => {
                let mut tx = pool.begin_with(self.begin_reading()).await?;
                let number = sqlx::query_scalar(SELECT_GENERATION).fetch_one(&mut *tx).await?;
                let (rules, clients) = select_rows!(tx, scope);
                tx.rollback().await?;
                bounded(rules.len(), clients.len())?;
                Ok((number, rules, clients))
            })
        })
        .await
    }

    /// Stores a rule: a new one after the others, or a new version of the one with its id and plan.
    pub async fn set_rule(&self, scope: &str, document: &Value) -> Result<(), DatabaseError> {
        let rule = Row::of(Table::Rules, document)?;
        valid_scope(scope)?;
        let now_us = unix_micros(SystemTime::now());
        self.in_time("store the rule", async {
            on_pool!(self, pool => {
                let mut tx = pool.begin_with(self.begin_writing()).await?;
                sqlx::query(ONE_AT_A_TIME).execute(&mut *tx).await?;
                let (rules, last): (i64, i64) =
                    sqlx::query_as("SELECT COUNT(*), COALESCE(MAX(position), -1) FROM rules WHERE scope = $1")
                        .bind(scope)
                        .fetch_one(&mut *tx)
                        .await?;
                let known: Option<i64> =
                    sqlx::query_scalar("SELECT position FROM rules WHERE scope = $1 AND id = $2 AND plan = $3")
                        .bind(scope)
                        .bind(rule.id())
                        .bind(rule.rule_plan())
                        .fetch_optional(&mut *tx)
                        .await?;
                if known.is_none() {
                    bounded(usize::try_from(rules).unwrap_or(0) + 1, 0)?;
                }
                let position = known.unwrap_or(last.saturating_add(1));
                put_row!(tx, scope, now_us, position, rule);
                tx.commit().await?;
                Ok(())
            })
        })
        .await
    }

    /// Removes a rule. Returns whether it existed.
    pub async fn remove_rule(
        &self,
        scope: &str,
        id: &str,
        plan: Option<&str>,
    ) -> Result<bool, DatabaseError> {
        self.in_time("remove the rule", async {
            on_pool!(self, pool => {
                let done = sqlx::query("DELETE FROM rules WHERE scope = $1 AND id = $2 AND plan = $3")
                    .bind(scope)
                    .bind(id)
                    .bind(plan.unwrap_or_default())
                    .execute(pool)
                    .await?;
                Ok(done.rows_affected() > 0)
            })
        })
        .await
    }
}

/// Checks the numbers of rules and clients, because others may write to these tables too.
pub(super) fn bounded(rules: usize, clients: usize) -> Result<(), Interrupted> {
    for (what, count, max) in [
        ("rules", rules, MAX_RULES),
        ("clients", clients, MAX_CLIENTS),
    ] {
        if count > max {
            let why = format!("a scope may have at most {max}");
            return Err(DatabaseError::bad_input(format!("too many {what}"), why).into());
        }
    }
    Ok(())
}

pub(super) fn valid_scope(scope: &str) -> Result<(), DatabaseError> {
    match scope.chars().count() {
        1..=64 if !scope.contains(char::is_control) => Ok(()),
        _ => Err(DatabaseError::bad_input(
            "the scope",
            "expected 1 to 64 characters, none of them a control character",
        )),
    }
}
