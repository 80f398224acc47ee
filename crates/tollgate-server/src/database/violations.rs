//! The table of violations: written in batches, queried by client, address or rule, and swept.
//!
//! A batch may be sent twice, because its outcome is unknown if the response is lost. Rows have numbers, and existing rows are left as they
//! are.

use serde::Serialize;
use sqlx::postgres::{PgArguments, PgPool, Postgres};
use sqlx::query::Query;
use sqlx::query_builder::Separated;
use sqlx::sqlite::{Sqlite, SqlitePool};
use sqlx::{ColumnIndex, Decode, FromRow, QueryBuilder, Row as SqlRow, Type};

use super::{Database, DatabaseError, Interrupted, Pool, on_pool};

/// The denials of one bucket in one second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ViolationRow {
    /// Time of the first, in microseconds since 1970.
    pub at_us: i64,
    /// The scope of the rules.
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
    /// Whole tokens that were left at the first.
    pub remaining: i64,
    /// Cost of the first.
    pub cost: i64,
    /// Number of denials.
    pub count: i64,
    /// Where the decisions came from: store, remembered, local or closed.
    pub source: String,
    /// The generation of the rules.
    pub generation: i64,
    /// Whether other clients than the first were denied: the bucket is shared.
    pub other_clients: bool,
    /// Whether other addresses were.
    pub other_ips: bool,
    /// Whether other endpoints were.
    pub other_endpoints: bool,
}

/// Which violations to read, the newest first. Absent fields match all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViolationFilter {
    /// The scope.
    pub scope: Option<String>,
    /// The client.
    pub client: Option<String>,
    /// The address.
    pub ip: Option<String>,
    /// The rule.
    pub rule: Option<String>,
    /// The earliest time, in microseconds since 1970.
    pub since_us: Option<i64>,
    /// Maximum number of rows, at most 10,000; by default 100.
    pub limit: Option<u32>,
}

const MAX_ROWS: u32 = 10_000;

/// Rows of one statement in SQLite, which accepts 32,766 values: 18 columns each.
const ROWS_PER_STATEMENT: usize = 250;

/// The columns are named because a newer program may add some.
const SELECT: &str = "
    SELECT at_us, scope, rule, plan, bucket, client, ip, endpoint, remaining, cost, count, source, generation,
           other_clients, other_ips, other_endpoints
    FROM violations WHERE at_us >= ";

const INSERT: &str = "
    INSERT INTO violations (writer, number, at_us, scope, rule, plan, bucket, client, ip, endpoint,
                            remaining, cost, count, source, generation, other_clients, other_ips, other_endpoints) ";

const INSERT_ARRAYS: &str = "
    INSERT INTO violations (writer, number, at_us, scope, rule, plan, bucket, client, ip, endpoint,
                            remaining, cost, count, source, generation, other_clients, other_ips, other_endpoints)
    SELECT $1, * FROM UNNEST(
        $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
        $10::text[], $11::bigint[], $12::bigint[], $13::bigint[], $14::text[], $15::bigint[],
        $16::boolean[], $17::boolean[], $18::boolean[])
    ON CONFLICT DO NOTHING";

/// The oldest first, a bounded number at a time, so that others do not wait long.
const SWEEP: &str = "
    DELETE FROM violations WHERE (writer, number) IN
        (SELECT writer, number FROM violations WHERE at_us < $1 ORDER BY at_us LIMIT $2)";

impl Database {
    /// Stores rows under the numbers that their writer gave them. Existing rows stay as they are.
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

    /// Reads the newest violations that match.
    pub async fn violations(
        &self,
        filter: &ViolationFilter,
    ) -> Result<Vec<ViolationRow>, DatabaseError> {
        self.in_time("read the violations", async {
            on_pool!(self, pool => {
                // Only conditions that apply, so that each query finds its index.
                let mut query = QueryBuilder::new(SELECT);
                query.push_bind(filter.since_us.unwrap_or(i64::MIN));
                for (condition, value) in [
                    (" AND scope = ", &filter.scope),
                    (" AND client = ", &filter.client),
                    (" AND ip = ", &filter.ip),
                    (" AND rule = ", &filter.rule),
                ] {
                    if let Some(value) = value {
                        query.push(condition).push_bind(value);
                    }
                }
                query.push(" ORDER BY at_us DESC, writer, number DESC LIMIT ");
                query.push_bind(i64::from(filter.limit.unwrap_or(100).min(MAX_ROWS)));
                Ok(query.build_query_as().fetch_all(pool).await?)
            })
        })
        .await
    }

    /// Counts the stored denials.
    pub async fn count_violations(&self) -> Result<i64, DatabaseError> {
        self.in_time("count the violations", async {
            let sum = "SELECT CAST(COALESCE(SUM(count), 0) AS BIGINT) FROM violations";
            on_pool!(self, pool => Ok(sqlx::query_scalar(sum).fetch_one(pool).await?))
        })
        .await
    }

    /// Removes at most `max` rows from before this time, the oldest first. Returns how many were removed.
    pub async fn sweep_violations(&self, before_us: i64, max: u32) -> Result<u64, DatabaseError> {
        self.in_time("sweep old violations", async {
            on_pool!(self, pool => {
                let done = sqlx::query(SWEEP).bind(before_us).bind(i64::from(max)).execute(pool).await?;
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
) -> Result<(), Interrupted> {
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    for rows in rows.chunks(ROWS_PER_STATEMENT) {
        let mut query = QueryBuilder::new(INSERT);
        query.push_values(rows, |mut line, (number, row)| {
            line.push_bind(writer).push_bind(number);
            push_columns(&mut line, row);
        });
        query.push(" ON CONFLICT DO NOTHING");
        // Only the usual size is worth a prepared statement.
        let is_usual = rows.len() == ROWS_PER_STATEMENT;
        query.build().persistent(is_usual).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(())
}

async fn to_postgres(
    pool: &PgPool,
    writer: i64,
    rows: &[(i64, ViolationRow)],
) -> Result<(), Interrupted> {
    let numbers: Vec<i64> = rows.iter().map(|(number, _)| *number).collect();
    let query = sqlx::query(INSERT_ARRAYS).bind(writer).bind(numbers);
    bind_columns(query, rows).execute(pool).await?;
    Ok(())
}

/// Writes and reads the columns that are named as the fields of a row, in the order of the statements.
macro_rules! columns {
    ($($column:ident)*) => {
        fn push_columns(line: &mut Separated<'_, Sqlite, &str>, row: &ViolationRow) {
            $(line.push_bind(&row.$column);)*
        }

        /// Binds each column of all rows as one array.
        fn bind_columns<'q>(
            query: Query<'q, Postgres, PgArguments>,
            rows: &[(i64, ViolationRow)],
        ) -> Query<'q, Postgres, PgArguments> {
            $(let query = query.bind(rows.iter().map(|(_, row)| &row.$column).collect::<Vec<_>>());)*
            query
        }

        impl<'r, R: SqlRow> FromRow<'r, R> for ViolationRow
        where
            &'static str: ColumnIndex<R>,
            String: Decode<'r, R::Database> + Type<R::Database>,
            Option<String>: Decode<'r, R::Database> + Type<R::Database>,
            i64: Decode<'r, R::Database> + Type<R::Database>,
            bool: Decode<'r, R::Database> + Type<R::Database>,
        {
            fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
                Ok(Self { $($column: row.try_get(stringify!($column))?),* })
            }
        }
    };
}

columns!(
    at_us scope rule plan bucket client ip endpoint remaining cost count source generation other_clients other_ips
    other_endpoints
);
