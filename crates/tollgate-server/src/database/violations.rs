//! The table of violations: written in batches, asked by client, address or rule, and swept.
//!
//! A batch may be sent twice, as nobody knows what became of one whose answer did not come: its rows have numbers, and
//! what is there already is left alone.

use serde::Serialize;
use sqlx::postgres::PgPool;
use sqlx::sqlite::SqlitePool;
use sqlx::{ColumnIndex, Decode, FromRow, QueryBuilder, Row, Type};

use super::{Database, DatabaseError, Pool, Stopped, on_pool};

/// What was denied in one bucket in one second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ViolationRow {
    /// When the first came, in microseconds since 1970.
    pub at_us: i64,
    /// Whose rules they were.
    pub scope: String,
    /// The rule that denied.
    pub rule: String,
    /// The plan of the first.
    pub plan: Option<String>,
    /// The bucket: the rule and its values, as in `charges client=merchant_123 route=/v1/charges/{id}`.
    pub bucket: String,
    /// The client of the first.
    pub client: Option<String>,
    /// The address of the first.
    pub ip: Option<String>,
    /// Method and route of the first.
    pub endpoint: Option<String>,
    /// Whole tokens that were left when the first came.
    pub remaining: i64,
    /// What the first would have cost.
    pub cost: i64,
    /// How many there were.
    pub count: i64,
    /// Who decided: store, remembered, local or closed.
    pub source: String,
    /// The generation of the rules that decided.
    pub generation: i64,
    /// Whether there were other clients among them than the first: the bucket is shared.
    pub other_clients: bool,
    /// Whether there were other addresses among them.
    pub other_ips: bool,
    /// Whether there were other endpoints among them.
    pub other_endpoints: bool,
}

/// Which violations to show; the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViolationFilter {
    /// Of this scope alone.
    pub scope: Option<String>,
    /// Of this client alone.
    pub client: Option<String>,
    /// From this address alone.
    pub ip: Option<String>,
    /// Of this rule alone.
    pub rule: Option<String>,
    /// Not before this time, in microseconds since 1970.
    pub since_us: Option<i64>,
    /// At most so many, and never more than 10,000. None: 100.
    pub limit: Option<u32>,
}

/// The most rows of one answer.
const MOST_ROWS: u32 = 10_000;

/// Rows of one statement in SQLite: 18 columns each, of 32,766 that it takes.
const ROWS_PER_STATEMENT: usize = 250;

const COLUMNS: &str = "INSERT INTO violations (writer, number, at_us, scope, rule, plan, bucket, client, ip, endpoint, \
    remaining, cost, count, source, generation, other_clients, other_ips, other_endpoints) ";

/// Named, as those of rules are.
const SHOWN: &str = "at_us, scope, rule, plan, bucket, client, ip, endpoint, remaining, cost, count, source, generation, \
    other_clients, other_ips, other_endpoints";

const INSERT_ARRAYS: &str = "
    INSERT INTO violations (writer, number, at_us, scope, rule, plan, bucket, client, ip, endpoint,
                            remaining, cost, count, source, generation, other_clients, other_ips, other_endpoints)
    SELECT $1, * FROM UNNEST(
        $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
        $10::text[], $11::bigint[], $12::bigint[], $13::bigint[], $14::text[], $15::bigint[],
        $16::boolean[], $17::boolean[], $18::boolean[])
    ON CONFLICT DO NOTHING";

/// Oldest first, so many at a time: nobody else waits long.
const SWEEP: &str = "
    DELETE FROM violations WHERE (writer, number) IN
        (SELECT writer, number FROM violations WHERE at_us < $1 ORDER BY at_us LIMIT $2)";

impl Database {
    /// Stores rows under the numbers they have at their writer. What is there already stays as it is.
    ///
    /// # Errors
    /// If the database fails or does not answer in time. Whether they are stored is not known then: send them again.
    pub async fn write_violations(
        &self,
        writer: i64,
        rows: &[(i64, ViolationRow)],
    ) -> Result<(), DatabaseError> {
        self.in_time("write violations", async {
            match &self.pool {
                Pool::Sqlite(pool) => to_sqlite(pool, writer, rows).await,
                Pool::Postgres(pool) => to_postgres(pool, writer, rows).await,
            }
        })
        .await
    }

    /// The newest violations that fit.
    ///
    /// # Errors
    /// If the database fails or does not answer in time.
    pub async fn violations(
        &self,
        filter: &ViolationFilter,
    ) -> Result<Vec<ViolationRow>, DatabaseError> {
        self.in_time("read the violations", async {
            on_pool!(self, pool => {
                // One statement per shape of the question, so that each finds its index.
                let mut query = QueryBuilder::new(format!("SELECT {SHOWN} FROM violations WHERE at_us >= "));
                query.push_bind(filter.since_us.unwrap_or(i64::MIN));
                if let Some(scope) = &filter.scope {
                    query.push(" AND scope = ").push_bind(scope);
                }
                if let Some(client) = &filter.client {
                    query.push(" AND client = ").push_bind(client);
                }
                if let Some(ip) = &filter.ip {
                    query.push(" AND ip = ").push_bind(ip);
                }
                if let Some(rule) = &filter.rule {
                    query.push(" AND rule = ").push_bind(rule);
                }
                query.push(" ORDER BY at_us DESC, writer, number DESC LIMIT ");
                query.push_bind(i64::from(filter.limit.unwrap_or(100).min(MOST_ROWS)));
                Ok(query.build_query_as().fetch_all(pool).await?)
            })
        })
        .await
    }

    /// How many violations are stored, each row counted as often as it says.
    ///
    /// # Errors
    /// If the database fails or does not answer in time.
    pub async fn count_violations(&self) -> Result<i64, DatabaseError> {
        self.in_time("count the violations", async {
            on_pool!(self, pool => {
                let (sum,) = sqlx::query_as("SELECT CAST(COALESCE(SUM(count), 0) AS BIGINT) FROM violations")
                    .fetch_one(pool)
                    .await?;
                Ok(sum)
            })
        })
        .await
    }

    /// Removes at most `most` rows from before this time, the oldest first; says how many those were.
    ///
    /// # Errors
    /// If the database fails or does not answer in time.
    pub async fn sweep_violations(&self, before_us: i64, most: u32) -> Result<u64, DatabaseError> {
        self.in_time("sweep old violations", async {
            on_pool!(self, pool => {
                let done = sqlx::query(SWEEP).bind(before_us).bind(i64::from(most)).execute(pool).await?;
                Ok(done.rows_affected())
            })
        })
        .await
    }
}

async fn to_sqlite(
    pool: &SqlitePool,
    writer: i64,
    rows: &[(i64, ViolationRow)],
) -> Result<(), Stopped> {
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    for rows in rows.chunks(ROWS_PER_STATEMENT) {
        let mut query = QueryBuilder::new(COLUMNS);
        query.push_values(rows, |mut line, (number, row)| {
            line.push_bind(writer)
                .push_bind(number)
                .push_bind(row.at_us)
                .push_bind(&row.scope)
                .push_bind(&row.rule)
                .push_bind(&row.plan)
                .push_bind(&row.bucket)
                .push_bind(&row.client)
                .push_bind(&row.ip)
                .push_bind(&row.endpoint)
                .push_bind(row.remaining)
                .push_bind(row.cost)
                .push_bind(row.count)
                .push_bind(&row.source)
                .push_bind(row.generation)
                .push_bind(row.other_clients)
                .push_bind(row.other_ips)
                .push_bind(row.other_endpoints);
        });
        query.push(" ON CONFLICT DO NOTHING");
        // Only the usual size is worth remembering.
        let usual = rows.len() == ROWS_PER_STATEMENT;
        query.build().persistent(usual).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(())
}

async fn to_postgres(
    pool: &PgPool,
    writer: i64,
    rows: &[(i64, ViolationRow)],
) -> Result<(), Stopped> {
    let numbers = |of: fn(&ViolationRow) -> i64| -> Vec<i64> {
        rows.iter().map(|(_, row)| of(row)).collect()
    };
    let truths = |of: fn(&ViolationRow) -> bool| -> Vec<bool> {
        rows.iter().map(|(_, row)| of(row)).collect()
    };
    fn texts(rows: &[(i64, ViolationRow)], of: fn(&ViolationRow) -> &str) -> Vec<&str> {
        rows.iter().map(|(_, row)| of(row)).collect()
    }
    fn maybes(
        rows: &[(i64, ViolationRow)],
        of: fn(&ViolationRow) -> Option<&str>,
    ) -> Vec<Option<&str>> {
        rows.iter().map(|(_, row)| of(row)).collect()
    }
    sqlx::query(INSERT_ARRAYS)
        .bind(writer)
        .bind(rows.iter().map(|(number, _)| *number).collect::<Vec<i64>>())
        .bind(numbers(|row| row.at_us))
        .bind(texts(rows, |row| &row.scope))
        .bind(texts(rows, |row| &row.rule))
        .bind(maybes(rows, |row| row.plan.as_deref()))
        .bind(texts(rows, |row| &row.bucket))
        .bind(maybes(rows, |row| row.client.as_deref()))
        .bind(maybes(rows, |row| row.ip.as_deref()))
        .bind(maybes(rows, |row| row.endpoint.as_deref()))
        .bind(numbers(|row| row.remaining))
        .bind(numbers(|row| row.cost))
        .bind(numbers(|row| row.count))
        .bind(texts(rows, |row| &row.source))
        .bind(numbers(|row| row.generation))
        .bind(truths(|row| row.other_clients))
        .bind(truths(|row| row.other_ips))
        .bind(truths(|row| row.other_endpoints))
        .execute(pool)
        .await?;
    Ok(())
}

impl<'r, R: Row> FromRow<'r, R> for ViolationRow
where
    &'static str: ColumnIndex<R>,
    String: Decode<'r, R::Database> + Type<R::Database>,
    Option<String>: Decode<'r, R::Database> + Type<R::Database>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    bool: Decode<'r, R::Database> + Type<R::Database>,
{
    fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
        Ok(Self {
            at_us: row.try_get("at_us")?,
            scope: row.try_get("scope")?,
            rule: row.try_get("rule")?,
            plan: row.try_get("plan")?,
            bucket: row.try_get("bucket")?,
            client: row.try_get("client")?,
            ip: row.try_get("ip")?,
            endpoint: row.try_get("endpoint")?,
            remaining: row.try_get("remaining")?,
            cost: row.try_get("cost")?,
            count: row.try_get("count")?,
            source: row.try_get("source")?,
            generation: row.try_get("generation")?,
            other_clients: row.try_get("other_clients")?,
            other_ips: row.try_get("other_ips")?,
            other_endpoints: row.try_get("other_endpoints")?,
        })
    }
}
