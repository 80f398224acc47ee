//! Rules, clients and violations in SQL: SQLite for one machine, PostgreSQL for many.
//!
//! The database stores documents and returns them; what a rule means, and whether it is valid, is checked elsewhere. Every call
//! ends in time, with an error if the database is unavailable, slow or full.

mod address;
mod error;
mod import;
mod row;
mod rules;
mod schema;
mod violations;
mod watch;

use std::fmt;
use std::fs::File;
use std::future::Future;
use std::path::Path;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use sqlx::pool::PoolOptions;
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _};

pub use error::DatabaseError;
pub(crate) use import::import_into_nothing;
pub use import::{Changed, Import, Imported};
pub use row::{FieldChange, Stored};
pub use rules::Loaded;
pub use violations::{ViolationFilter, ViolationRow};
pub use watch::{Watch, WatchStats};

use address::{Address, DatabaseKind};

/// Maximum number of rules in a scope.
pub const MAX_RULES: usize = 10_000;

/// Maximum number of clients in a scope.
pub const MAX_CLIENTS: usize = 100_000;

/// How to use a database.
#[derive(Clone, Debug)]
pub struct DatabaseConfig {
    /// Maximum number of connections; one more on PostgreSQL for notifications.
    pub connections: u32,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How long a call may take, with all its statements.
    pub timeout: Duration,
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        Self {
            connections: 4,
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
        }
    }
}

/// A database with Tollgate's tables. Clones share the connections.
#[derive(Clone)]
pub struct Database {
    pool: Pool,
    address: Arc<Address>,
    config: DatabaseConfig,
}

#[derive(Clone)]
enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

/// Runs the same code on either pool. Their statements are the same, and their types are not.
macro_rules! on_pool {
    ($database:expr, $pool:ident => $body:expr) => {
        match &$database.pool {
            $crate::database::Pool::Sqlite($pool) => $body,
            $crate::database::Pool::Postgres($pool) => $body,
        }
    };
}
use on_pool;

impl Database {
    /// Opens the database at `sqlite:path`, `sqlite://path` or `postgres://user:password@host/name`, and migrates its tables. A
    /// missing SQLite file is created.
    ///
    /// A PostgreSQL server on another machine must present a certificate for its host name, unless the URL has an `sslmode`.
    ///
    /// # Errors
    /// If the URL is invalid, the database cannot be reached in time, or its tables are those of a newer Tollgate.
    pub async fn open(url: &str) -> Result<Self, DatabaseError> {
        Self::open_with(url, DatabaseConfig::default()).await
    }

    /// Opens an existing database. A missing SQLite file is not created: on a disk that is not mounted, an empty one would mean that
    /// nothing is limited.
    ///
    /// # Errors
    /// As [`open`](Self::open), and if the file does not exist.
    pub async fn open_existing(url: &str) -> Result<Self, DatabaseError> {
        match Address::parse(url)? {
            missing if missing.is_missing() => Err(DatabaseError::failed(
                missing,
                "cannot open it: there is no such file; `tollgate rules import` creates it",
            )),
            _ => Self::open(url).await,
        }
    }

    /// Whether the URL names a SQLite file that does not exist.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub fn is_missing(url: &str) -> Result<bool, DatabaseError> {
        Ok(Address::parse(url)?.is_missing())
    }

    /// As [`open`](Self::open), with settings.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_with(url: &str, config: DatabaseConfig) -> Result<Self, DatabaseError> {
        let address = Arc::new(Address::parse(url)?);
        let pool = match address.kind {
            DatabaseKind::Sqlite => Pool::Sqlite(sqlite_pool(url, &address, &config)?),
            DatabaseKind::Postgres => Pool::Postgres(postgres_pool(url, &address, &config)?),
        };
        let database = Self {
            pool,
            address,
            config,
        };
        database.check_connection().await?;
        database.migrate().await?;
        Ok(database)
    }

    /// Connects once outside of the pool, which would keep trying and not report why it fails.
    async fn check_connection(&self) -> Result<(), DatabaseError> {
        let Pool::Postgres(pool) = &self.pool else {
            return Ok(());
        };
        let options = pool.connect_options();
        self.within(self.config.connect_timeout, "connect", async {
            Ok(options.connect().await?.close().await?)
        })
        .await
    }

    /// Closes all connections. Later calls fail.
    pub async fn close(&self) {
        let closing = async { on_pool!(self, pool => pool.close().await) };
        // Connections that are still in use then are abandoned.
        let _ = tokio::time::timeout(self.config.connect_timeout, closing).await;
    }

    /// The generation, which every change of rules or clients raises, in any scope.
    ///
    /// # Errors
    /// If the database fails, or does not answer in time.
    pub async fn generation_number(&self) -> Result<i64, DatabaseError> {
        self.in_time("read the generation of the rules", async {
            on_pool!(self, pool => Ok(sqlx::query_scalar(rules::SELECT_GENERATION).fetch_one(pool).await?))
        })
        .await
    }

    /// Bounds the time of `work`. Errors say which action failed, and where.
    async fn in_time<T>(
        &self,
        action: &'static str,
        work: impl Future<Output = Result<T, Interrupted>>,
    ) -> Result<T, DatabaseError> {
        self.within(self.config.timeout, action, work).await
    }

    async fn within<T>(
        &self,
        timeout: Duration,
        action: &'static str,
        work: impl Future<Output = Result<T, Interrupted>>,
    ) -> Result<T, DatabaseError> {
        match tollgate_http::timeout::timeout(timeout, work).await {
            Some(Ok(done)) => Ok(done),
            Some(Err(Interrupted::Driver(error))) => Err(self.address.failed(action, &error)),
            Some(Err(Interrupted::Other(error))) => Err(error),
            None => Err(DatabaseError::timed_out(
                &self.address,
                format_args!("cannot {action}: no answer within {timeout:?}"),
            )),
        }
    }

    /// Begins a transaction that writes. SQLite must know at once: a reader that becomes a writer fails if others have written
    /// meanwhile, however long it waits.
    fn begin_writing(&self) -> &'static str {
        match self.pool {
            Pool::Sqlite(_) => "BEGIN IMMEDIATE",
            Pool::Postgres(_) => "BEGIN",
        }
    }

    /// Begins a transaction that sees one moment throughout.
    fn begin_reading(&self) -> &'static str {
        match self.pool {
            Pool::Sqlite(_) => "BEGIN",
            Pool::Postgres(_) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("address", &format_args!("{}", self.address))
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

enum Interrupted {
    Driver(sqlx::Error),
    Other(DatabaseError),
}

impl From<sqlx::Error> for Interrupted {
    fn from(error: sqlx::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<DatabaseError> for Interrupted {
    fn from(error: DatabaseError) -> Self {
        Self::Other(error)
    }
}

fn sqlite_pool(
    url: &str,
    address: &Address,
    config: &DatabaseConfig,
) -> Result<SqlitePool, DatabaseError> {
    let options = SqliteConnectOptions::from_str(url).map_err(|error| address.rejected(&error))?;
    create_private_file(options.get_filename());
    let options = options
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // Survives a crash of the program. A crash of the machine may lose the last moments.
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(config.timeout)
        .disable_statement_logging();
    let pool = pool_options::<sqlx::Sqlite>(config, config.connections)
        // SQLite ends a transaction by itself when the disk is full. sqlx does not notice, and would refuse to begin another on this
        // connection for ever.
        .before_acquire(|connection, _| {
            Box::pin(async move { Ok(!connection.is_in_transaction()) })
        });
    Ok(pool.connect_lazy_with(options))
}

/// Creates a missing file that only its owner can read: it holds hashes of API keys, and who was denied what. SQLite gives the files beside it
/// the same mode, and reports why the file cannot be created.
fn create_private_file(file: &Path) {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
        options.mode(0o600);
        if options.open(file).is_err()
            && let Ok(metadata) = file.metadata()
            && metadata.permissions().mode() & 0o007 != 0
        {
            tracing::warn!(
                file = %file.display(),
                "all users of this machine can read the database: chmod 600 the file, and those beside it whose names begin with its name"
            );
        }
    }
    #[cfg(not(unix))]
    let _ = options.open(file);
}

fn postgres_pool(
    url: &str,
    address: &Address,
    config: &DatabaseConfig,
) -> Result<PgPool, DatabaseError> {
    let timeout = format!("{}ms", config.timeout.as_millis());
    let options = PgConnectOptions::from_str(url)
        .map_err(|error| address.rejected(&error))?
        .application_name("tollgate")
        // The server stops work that this program no longer waits for.
        .options([
            ("statement_timeout", timeout.as_str()),
            ("lock_timeout", timeout.as_str()),
            ("idle_in_transaction_session_timeout", timeout.as_str()),
        ])
        .disable_statement_logging();
    let options = address::encrypted(options, url).map_err(|problem| address.rejected(&problem))?;
    // One more for notifications.
    Ok(pool_options(config, config.connections + 1).connect_lazy_with(options))
}

fn pool_options<DB: sqlx::Database>(config: &DatabaseConfig, connections: u32) -> PoolOptions<DB> {
    PoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(config.connect_timeout)
        // Some firewalls silently drop old connections.
        .max_lifetime(Duration::from_secs(1_800))
        .idle_timeout(Duration::from_secs(300))
}
