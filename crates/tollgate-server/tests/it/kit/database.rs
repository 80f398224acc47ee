//! Databases for tests: SQLite files and PostgreSQL servers.

use serde_json::Value;
use tempfile::TempDir;
use tollgate_server::database::{Database, DatabaseError, Import, Imported};
use tollgate_testing::servers::PostgresServer;

/// A database of its own for a test.
pub(crate) struct TestDatabase {
    pub(crate) url: String,
    pub(crate) server: Option<PostgresServer>,
    _folder: Option<TempDir>,
}

impl TestDatabase {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            url: format!("sqlite:{}", folder.path().join("tollgate.db").display()),
            server: None,
            _folder: Some(folder),
        }
    }

    pub(crate) fn postgres() -> Self {
        let server = PostgresServer::start();
        Self {
            url: server.url(),
            server: Some(server),
            _folder: None,
        }
    }

    pub(crate) async fn open(&self) -> Database {
        Database::open(&self.url).await.unwrap()
    }

    /// Runs SQL beside the program, as an operator with a tool of their own would.
    pub(crate) async fn execute(&self, sql: &'static str) {
        match &self.server {
            None => {
                let pool = sqlx::SqlitePool::connect(&self.url).await.unwrap();
                sqlx::raw_sql(sql).execute(&pool).await.unwrap();
                pool.close().await;
            }
            Some(_) => {
                let pool = sqlx::PgPool::connect(&self.url).await.unwrap();
                sqlx::raw_sql(sql).execute(&pool).await.unwrap();
                pool.close().await;
            }
        }
    }
}

/// Calls that only tests make.
pub(crate) trait DatabaseExt {
    /// Replaces the rules and clients of a scope by these documents.
    async fn replace_all(
        &self,
        scope: &str,
        rules: &[Value],
        clients: &[Value],
    ) -> Result<Imported, DatabaseError>;
}

impl DatabaseExt for Database {
    async fn replace_all(
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
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(work)
}

/// Runs each test on SQLite and on PostgreSQL.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $name() {
                $crate::kit::database::block_on(super::$name($crate::kit::database::TestDatabase::sqlite()));
            })+
        }
        mod postgres {
            $(#[test]
            fn $name() {
                $crate::kit::database::block_on(super::$name($crate::kit::database::TestDatabase::postgres()));
            })+
        }
    };
}
pub(crate) use on_both;
