//! Migrates the tables, all steps in one transaction.
//!
//! Programs that start at the same time wait for each other: SQLite has one writer at a time anyway, PostgreSQL has a
//! lock that ends with the transaction.

use sqlx::AssertSqlSafe;

use super::{Database, DatabaseError, Pool, on_pool};

/// The statements of a step: those for both kinds of database, then those for one of them.
struct Step {
    shared: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

/// In order; the first leads to version 1. Released steps never change.
const STEPS: [Step; 2] = [
    Step {
        shared: include_str!("../../migrations/1.sql"),
        sqlite: include_str!("../../migrations/1.sqlite.sql"),
        postgres: include_str!("../../migrations/1.postgres.sql"),
    },
    Step {
        shared: include_str!("../../migrations/2.sql"),
        sqlite: "",
        postgres: "",
    },
];

const SELECT_VERSION: &str = "SELECT COALESCE(MAX(version), 0) FROM tollgate_schema";

const SQLITE_NOW: &str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";
const POSTGRES_NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

impl Database {
    pub(super) async fn migrate(&self) -> Result<(), DatabaseError> {
        let missing = |version: i64| {
            let done = usize::try_from(version).unwrap_or(0);
            STEPS.iter().zip(1_i64..).skip(done)
        };
        let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
        match self.version().await {
            Ok(version) if version == known => return Ok(()),
            Err(error) if error.is_timeout() => return Err(error),
            // There are no tables yet, or old ones, or the error is reported below.
            Ok(_) | Err(_) => {}
        }
        self.in_time("migrate the tables", async {
            on_pool!(self, pool => {
                let mut tx = pool.begin_with(self.begin_writing()).await?;
                sqlx::raw_sql(self.lock()).execute(&mut *tx).await?;
                let version: i64 = sqlx::query_scalar(SELECT_VERSION).fetch_one(&mut *tx).await?;
                if version > known {
                    let why = format!("its tables have version {version}, and this program knows {known}: use a newer tollgate");
                    return Err(DatabaseError::failed(&self.address, why).into());
                }
                for (step, to) in missing(version) {
                    // Our own text, from files of this crate.
                    sqlx::raw_sql(AssertSqlSafe(self.statements(step))).execute(&mut *tx).await?;
                    sqlx::query("INSERT INTO tollgate_schema (version) VALUES ($1)").bind(to).execute(&mut *tx).await?;
                }
                tx.commit().await?;
                Ok(())
            })
        })
        .await
    }

    /// The version of the tables. Only reads, because a database that refuses writes (a standby, a full disk, an account without
    /// permission) still has rules to start with.
    async fn version(&self) -> Result<i64, DatabaseError> {
        self.in_time("read the version of the tables", async {
            on_pool!(self, pool => Ok(sqlx::query_scalar(SELECT_VERSION).fetch_one(pool).await?))
        })
        .await
    }

    fn lock(&self) -> &'static str {
        match self.pool {
            Pool::Sqlite(_) => {
                "CREATE TABLE IF NOT EXISTS tollgate_schema (version BIGINT NOT NULL PRIMARY KEY)"
            }
            // The number is "tollgate" in bytes.
            Pool::Postgres(_) => {
                "SELECT pg_advisory_xact_lock(8390043843661231205);
                 CREATE TABLE IF NOT EXISTS tollgate_schema (version BIGINT NOT NULL PRIMARY KEY)"
            }
        }
    }

    fn statements(&self, step: &Step) -> String {
        let (now, own) = match self.pool {
            Pool::Sqlite(_) => (SQLITE_NOW, step.sqlite),
            Pool::Postgres(_) => (POSTGRES_NOW, step.postgres),
        };
        format!("{}\n{own}", step.shared.replace("{now_us}", now))
    }
}
