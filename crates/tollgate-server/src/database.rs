//! Rules, clients and violations in SQL: SQLite for one machine, PostgreSQL for many.
//!
//! It stores documents and hands them back: what a rule means, and whether it is right, is known elsewhere. Every call
//! ends in time: the database may be gone, slow or full, and the caller hears so.

mod address;
mod document;
mod encryption;
mod error;
mod fields;
mod import;
mod private_file;
mod rules;
mod schema;
mod violations;
mod watch;

use std::fmt;
use std::future::Future;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sqlx::pool::PoolOptions;
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _};

pub use document::{StoredClient, StoredRule};
pub use error::DatabaseError;
pub(crate) use import::imported_into_nothing;
pub use import::{Changed, FieldChange, Import, Imported};
pub use rules::Loaded;
pub use violations::{ViolationFilter, ViolationRow};
pub(crate) use watch::WatchCounts;
pub use watch::{Watch, WatchStats};

use address::{Address, Kind};

/// The most rules that a scope may have.
pub const MOST_RULES: usize = 10_000;

/// The most clients that a scope may have.
pub const MOST_CLIENTS: usize = 100_000;

/// How to treat a database.
#[derive(Clone, Debug)]
pub struct DatabaseConfig {
    /// The most connections at a time; one more on PostgreSQL for whoever watches.
    pub connections: u32,
    /// How long to wait for a connection.
    pub connect_within: Duration,
    /// How long anything may take, all statements of it together.
    pub answer_within: Duration,
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        Self {
            connections: 4,
            connect_within: Duration::from_secs(5),
            answer_within: Duration::from_secs(10),
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

/// The same for both kinds: their statements are the same, and their types are not.
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
    /// Opens the database at `sqlite:path`, `sqlite://path` or `postgres://user:password@host/name`, and brings its
    /// tables up to date. A SQLite file that is not there is made.
    ///
    /// A PostgreSQL on another machine must show a certificate for its host's name, unless the URL has an `sslmode`.
    ///
    /// # Errors
    /// If the URL makes no sense, the database cannot be reached in time, or a newer Tollgate has changed its tables.
    pub async fn open(url: &str) -> Result<Self, DatabaseError> {
        Self::open_with(url, DatabaseConfig::default()).await
    }

    /// The same for who wants what is there: a SQLite file is not made. On a disk that is not mounted, an empty one would say that nothing
    /// is limited.
    ///
    /// # Errors
    /// As [`open`](Self::open), and if there is no such file.
    pub async fn open_existing(url: &str) -> Result<Self, DatabaseError> {
        match Self::is_missing(url)? {
            false => Self::open(url).await,
            true => Err(DatabaseError::Failed {
                doing: "open it",
                database: Address::of(url)?.shown().to_owned(),
                why: "there is no such file; `tollgate rules import` makes it".to_owned(),
                is_about_data: false,
            }),
        }
    }

    /// Whether it is a SQLite file that is not there.
    ///
    /// # Errors
    /// If the URL makes no sense.
    pub fn is_missing(url: &str) -> Result<bool, DatabaseError> {
        Ok(Address::of(url)?.is_missing())
    }

    /// The same as [`open`](Self::open), with settings.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_with(url: &str, config: DatabaseConfig) -> Result<Self, DatabaseError> {
        let address = Arc::new(Address::of(url)?);
        let pool = match address.kind() {
            Kind::Sqlite => Pool::Sqlite(sqlite_pool(url, &address, &config)?),
            Kind::Postgres => Pool::Postgres(postgres_pool(url, &address, &config)?),
        };
        let database = Self {
            pool,
            address,
            config,
        };
        database.reach().await?;
        database.migrate().await?;
        Ok(database)
    }

    /// Connects once outside of the pool, which would go on trying and in the end not know why.
    async fn reach(&self) -> Result<(), DatabaseError> {
        let Pool::Postgres(pool) = &self.pool else {
            return Ok(());
        };
        let options = pool.connect_options();
        self.within(self.config.connect_within, "connect", async {
            Ok(options.connect().await?.close().await?)
        })
        .await
    }

    /// Ends all connections. Whoever still uses the database gets errors.
    pub async fn close(&self) {
        let closing = async { on_pool!(self, pool => pool.close().await) };
        // Who does not let go in time is left behind.
        let _ = tokio::time::timeout(self.config.connect_within, closing).await;
    }

    /// Raised by every change of rules or clients, in any scope.
    ///
    /// # Errors
    /// If the database fails, or does not answer in time.
    pub async fn generation_number(&self) -> Result<i64, DatabaseError> {
        self.in_time("read the generation of the rules", async {
            on_pool!(self, pool => {
                let (number,) = sqlx::query_as("SELECT number FROM rules_generation").fetch_one(pool).await?;
                Ok(number)
            })
        })
        .await
    }

    /// Bounds `work`, and says what failed where.
    async fn in_time<T>(
        &self,
        doing: &'static str,
        work: impl Future<Output = Result<T, Stopped>>,
    ) -> Result<T, DatabaseError> {
        self.within(self.config.answer_within, doing, work).await
    }

    async fn within<T>(
        &self,
        within: Duration,
        doing: &'static str,
        work: impl Future<Output = Result<T, Stopped>>,
    ) -> Result<T, DatabaseError> {
        match tollgate_http::timeout::timeout(within, work).await {
            Some(Ok(done)) => Ok(done),
            Some(Err(Stopped::Sql(error))) => Err(self.address.failed(doing, &error)),
            Some(Err(Stopped::Said(error))) => Err(error),
            None => Err(DatabaseError::Late {
                doing,
                database: self.address.shown().to_owned(),
                within,
            }),
        }
    }

    /// How a transaction begins that will write. SQLite must know at once: a reader that turns into a writer fails
    /// when somebody else has written meanwhile, however long it waits.
    fn begin_writing(&self) -> &'static str {
        match self.pool {
            Pool::Sqlite(_) => "BEGIN IMMEDIATE",
            Pool::Postgres(_) => "BEGIN",
        }
    }

    /// How a transaction begins that sees one moment throughout.
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
            .field("at", &self.address.shown())
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Why a piece of work stopped: the database, or something we found in it.
enum Stopped {
    Sql(sqlx::Error),
    Said(DatabaseError),
}

impl From<sqlx::Error> for Stopped {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<DatabaseError> for Stopped {
    fn from(error: DatabaseError) -> Self {
        Self::Said(error)
    }
}

fn sqlite_pool(
    url: &str,
    address: &Address,
    config: &DatabaseConfig,
) -> Result<SqlitePool, DatabaseError> {
    let options = SqliteConnectOptions::from_str(url).map_err(|error| address.refused(&error))?;
    private_file::make(options.get_filename());
    let options = options
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // Survives a crash of the program; of the machine, the last moments may be lost, and nothing else.
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(config.answer_within)
        .disable_statement_logging();
    let pool = pool_options::<sqlx::Sqlite>(config, config.connections)
        // SQLite ends a transaction by itself when the disk is full. sqlx then has nothing to roll back, takes the
        // transaction for open, and would refuse to begin another on this connection for ever.
        .before_acquire(|connection, _| {
            Box::pin(async move { Ok(!connection.is_in_transaction()) })
        });
    Ok(pool.connect_lazy_with(options))
}

fn postgres_pool(
    url: &str,
    address: &Address,
    config: &DatabaseConfig,
) -> Result<PgPool, DatabaseError> {
    let within = format!("{}ms", config.answer_within.as_millis());
    let options = PgConnectOptions::from_str(url)
        .map_err(|error| address.refused(&error))?
        .application_name("tollgate")
        // What we gave up waiting for must not go on over there.
        .options([
            ("statement_timeout", within.as_str()),
            ("lock_timeout", within.as_str()),
            ("idle_in_transaction_session_timeout", within.as_str()),
        ])
        .disable_statement_logging();
    let options =
        encryption::encrypted(options, url).map_err(|problem| address.refused(&problem))?;
    // One more for whoever listens.
    Ok(pool_options(config, config.connections + 1).connect_lazy_with(options))
}

fn pool_options<DB: sqlx::Database>(config: &DatabaseConfig, connections: u32) -> PoolOptions<DB> {
    PoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(config.connect_within)
        // Behind some firewalls, what is old is dead without anybody being told.
        .max_lifetime(Duration::from_secs(1_800))
        .idle_timeout(Duration::from_secs(300))
}

/// Microseconds since 1970, as the tables have them.
fn us_of(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
