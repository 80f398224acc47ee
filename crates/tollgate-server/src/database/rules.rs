//! Reading and changing the rules and clients of a scope.

use std::time::SystemTime;

use serde_json::Value;

use super::document::{ClientRow, Kept, RuleRow, StoredClient, StoredRule};
use super::{Database, DatabaseError, MOST_CLIENTS, MOST_RULES, Stopped, on_pool, us_of};

/// What a scope holds, all of one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// The number of that moment: it is another after any change.
    pub generation_number: i64,
    /// The active rules as documents, in order.
    pub rules: Vec<Value>,
    /// The active clients as documents, by id.
    pub clients: Vec<Value>,
}

/// One more than there may be, to see that there are too many. Columns are named: a newer program may add some while this one
/// runs, and the driver for SQLite does not survive a `*` that becomes more of them.
pub(super) const SELECT_RULES: &str = r#"
    SELECT id, plan, position, "match", per, algorithm, rate, burst, queue, max, "window", mode, on_store_failure, active,
        description, created_us, updated_us
    FROM rules WHERE scope = $1 ORDER BY position, id, plan LIMIT 10001"#;
pub(super) const SELECT_CLIENTS: &str = "
    SELECT id, plan, api_key_sha256, active, created_us, updated_us
    FROM clients WHERE scope = $1 ORDER BY id LIMIT 100001";

/// Whoever changes rules holds this row until it is done: changes come one after the other, and so do their numbers.
pub(super) const ONE_AT_A_TIME: &str = "UPDATE rules_generation SET number = number";

pub(super) const UPSERT_RULE: &str = r#"
    INSERT INTO rules (scope, id, plan, position, "match", per, algorithm, rate, burst, queue, max, "window", mode,
                       on_store_failure, active, description, created_us, updated_us)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $17)
    ON CONFLICT (scope, id, plan) DO UPDATE SET
        position = excluded.position, "match" = excluded."match", per = excluded.per, algorithm = excluded.algorithm,
        rate = excluded.rate, burst = excluded.burst, queue = excluded.queue, max = excluded.max,
        "window" = excluded."window", mode = excluded.mode, on_store_failure = excluded.on_store_failure,
        active = excluded.active, description = excluded.description, updated_us = excluded.updated_us"#;

/// Stores a rule in a transaction.
macro_rules! put_rule {
    ($tx:expr, $scope:expr, $position:expr, $rule:expr, $now_us:expr) => {
        sqlx::query($crate::database::rules::UPSERT_RULE)
            .bind($scope)
            .bind(&$rule.id)
            .bind(&$rule.plan)
            .bind($position)
            .bind(&$rule.matches)
            .bind(&$rule.per)
            .bind(&$rule.limit.algorithm)
            .bind(&$rule.limit.rate)
            .bind($rule.limit.burst)
            .bind($rule.limit.queue)
            .bind($rule.limit.max)
            .bind(&$rule.limit.window)
            .bind(&$rule.mode)
            .bind(&$rule.on_store_failure)
            .bind($rule.active)
            .bind(&$rule.description)
            .bind($now_us)
            .execute(&mut *$tx)
            .await?
    };
}
pub(super) use put_rule;

impl Loaded {
    /// Whether it is the same but for its number, which changes of other scopes raise as well.
    pub(crate) fn says_the_same(&self, other: Option<&Self>) -> bool {
        other.is_some_and(|other| (&self.rules, &self.clients) == (&other.rules, &other.clients))
    }
}

impl Database {
    /// The active rules and clients of a scope, with the number of the generation: all of one moment.
    ///
    /// # Errors
    /// If the database fails or does not answer in time, or holds what is no document, or too much.
    pub async fn load(&self, scope: &str) -> Result<Loaded, DatabaseError> {
        let (generation_number, rules, clients) = self.read(scope).await?;
        let rules = rules.iter().filter(|kept| kept.row.active);
        let clients = clients.iter().filter(|kept| kept.row.active);
        Ok(Loaded {
            generation_number,
            rules: rules
                .map(|kept| kept.row.document())
                .collect::<Result<_, _>>()?,
            clients: clients.map(|kept| kept.row.document()).collect(),
        })
    }

    /// All rules and clients of a scope, those that are not active included.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub async fn list(
        &self,
        scope: &str,
    ) -> Result<(Vec<StoredRule>, Vec<StoredClient>), DatabaseError> {
        let (_, rules, clients) = self.read(scope).await?;
        let rules = rules.iter().map(Kept::<RuleRow>::stored);
        let clients = clients.iter().map(Kept::<ClientRow>::stored);
        Ok((rules.collect::<Result<_, _>>()?, clients.collect()))
    }

    async fn read(
        &self,
        scope: &str,
    ) -> Result<(i64, Vec<Kept<RuleRow>>, Vec<Kept<ClientRow>>), DatabaseError> {
        self.in_time("read the rules", async {
            on_pool!(self, pool => {
                let mut tx = pool.begin_with(self.begin_reading()).await?;
                let (number,) = sqlx::query_as("SELECT number FROM rules_generation").fetch_one(&mut *tx).await?;
                let rules = sqlx::query_as(SELECT_RULES).bind(scope).fetch_all(&mut *tx).await?;
                let clients = sqlx::query_as(SELECT_CLIENTS).bind(scope).fetch_all(&mut *tx).await?;
                tx.rollback().await?;
                bounded(&rules, &clients)?;
                Ok((number, rules, clients))
            })
        })
        .await
    }

    /// Stores a rule: a new one behind the others, or another form of the one with its id and plan.
    ///
    /// # Errors
    /// If it is no document that can be stored, or the database fails.
    pub async fn set_rule(&self, scope: &str, document: &Value) -> Result<(), DatabaseError> {
        let rule = RuleRow::of(document)?;
        valid_scope(scope)?;
        let now_us = us_of(SystemTime::now());
        self.in_time("store the rule", async {
            on_pool!(self, pool => {
                let mut tx = pool.begin_with(self.begin_writing()).await?;
                sqlx::query(ONE_AT_A_TIME).execute(&mut *tx).await?;
                let (rules, last): (i64, i64) =
                    sqlx::query_as("SELECT COUNT(*), COALESCE(MAX(position), -1) FROM rules WHERE scope = $1")
                        .bind(scope)
                        .fetch_one(&mut *tx)
                        .await?;
                let known: Option<(i64,)> =
                    sqlx::query_as("SELECT position FROM rules WHERE scope = $1 AND id = $2 AND plan = $3")
                        .bind(scope)
                        .bind(&rule.id)
                        .bind(&rule.plan)
                        .fetch_optional(&mut *tx)
                        .await?;
                if known.is_none() && usize::try_from(rules).unwrap_or(0) >= MOST_RULES {
                    return Err(too_many_rules().into());
                }
                let position = known.map_or(last.saturating_add(1), |(position,)| position);
                put_rule!(tx, scope, position, rule, now_us);
                tx.commit().await?;
                Ok(())
            })
        })
        .await
    }

    /// Removes a rule; says whether it was there.
    ///
    /// # Errors
    /// If the database fails.
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

    /// Puts a rule in force or out of it; says whether it was there.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn set_active(
        &self,
        scope: &str,
        id: &str,
        plan: Option<&str>,
        active: bool,
    ) -> Result<bool, DatabaseError> {
        let now_us = us_of(SystemTime::now());
        self.in_time("change the rule", async {
            on_pool!(self, pool => {
                let done = sqlx::query(
                    "UPDATE rules SET active = $4, updated_us = $5 WHERE scope = $1 AND id = $2 AND plan = $3",
                )
                .bind(scope)
                .bind(id)
                .bind(plan.unwrap_or_default())
                .bind(active)
                .bind(now_us)
                .execute(pool)
                .await?;
                Ok(done.rows_affected() > 0)
            })
        })
        .await
    }
}

/// Others write to these tables as well, with tools of their own.
pub(super) fn bounded<R, C>(rules: &[R], clients: &[C]) -> Result<(), Stopped> {
    if rules.len() > MOST_RULES {
        return Err(too_many_rules().into());
    }
    if clients.len() > MOST_CLIENTS {
        return Err(Stopped::Said(DatabaseError::TooMany {
            what: "clients",
            most: MOST_CLIENTS,
        }));
    }
    Ok(())
}

pub(super) fn valid_scope(scope: &str) -> Result<(), DatabaseError> {
    match scope.chars().count() {
        1..=64 if !scope.chars().any(char::is_control) => Ok(()),
        _ => Err(DatabaseError::Document {
            which: "the scope".to_owned(),
            why: "expected 1 to 64 characters, none of them a control character".to_owned(),
        }),
    }
}

fn too_many_rules() -> DatabaseError {
    DatabaseError::TooMany {
        what: "rules",
        most: MOST_RULES,
    }
}
