//! What a command works on: a database, or the rules and the store of a configuration, as the running program has them.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tollgate::{Instances, Limiter};
use tollgate_config::{Config, ConfigFile, DEFAULT_SCOPE, StoreConfig};
use tollgate_tower::policy::Policy;

use super::block_on;
use crate::cli::{CONFIG_FILE, DatabaseArgs};
use crate::database::{Database, DatabaseError, Stored};
use crate::decider;
use crate::failure::Failure;
use crate::live::{Live, LiveConfig};

/// The database and scope that were named, and the configuration if there is one.
pub(super) struct DatabaseTarget {
    url: String,
    pub(super) scope: String,
    pub(super) config: Option<Config>,
}

impl DatabaseTarget {
    pub(super) fn of(args: &DatabaseArgs) -> Result<Self, Failure> {
        // The default file counts if it exists and no database was named.
        let default = Path::new(CONFIG_FILE);
        let default = (args.database.is_none() && default.exists()).then_some(default);
        let file = args.config.as_deref().or(default);
        let config = file.map(read_config).transpose()?;
        let settings = config.as_ref().and_then(|config| config.database.as_ref());
        let url = match (&args.database, settings) {
            (Some(url), _) => url.clone(),
            (None, Some(settings)) => settings.url.expose().to_owned(),
            (None, None) => {
                let missing = match file {
                    Some(file) => format!("{} names no database", file.display()),
                    None => "no database was named".to_owned(),
                };
                return Err(Failure::BadInput(format!(
                    "{missing}: use --database sqlite:FILE or postgres://…, set TOLLGATE_DATABASE, or name a \
                     configuration with `database` by -c FILE"
                )));
            }
        };
        let scope = (args.scope.as_deref()).or(settings.map(|settings| settings.scope.as_str()));
        Ok(Self {
            url,
            scope: scope.unwrap_or(DEFAULT_SCOPE).to_owned(),
            config,
        })
    }

    /// Whether it is a SQLite file that does not exist.
    pub(super) fn is_missing(&self) -> Result<bool, Failure> {
        Ok(Database::is_missing(&self.url)?)
    }

    pub(super) async fn open(&self) -> Result<Database, Failure> {
        Ok(Database::open(&self.url).await?)
    }

    /// Opens the database without creating a file, which a mistyped name would leave behind.
    pub(super) async fn open_existing(&self) -> Result<Database, Failure> {
        Ok(Database::open_existing(&self.url).await?)
    }

    /// Runs one call on the existing database.
    pub(super) fn run<T>(
        &self,
        call: impl AsyncFnOnce(&Database) -> Result<T, DatabaseError>,
    ) -> Result<T, Failure> {
        block_on(async {
            let database = self.open_existing().await?;
            let done = call(&database).await?;
            database.close().await;
            Ok(done)
        })
    }

    pub(super) fn list(&self) -> Result<(Vec<Stored>, Vec<Stored>), Failure> {
        self.run(async |database| database.list(&self.scope).await)
    }
}

fn read_config(file: &Path) -> Result<Config, Failure> {
    let file = ConfigFile::read(file).map_err(Failure::Unavailable)?;
    file.parse()
        .map_err(|problems| Failure::invalid(file.name(), &problems))
}

/// A command can wait longer for the store than a request.
const DEADLINE: Duration = Duration::from_secs(2);

/// A configuration, and its rules from the file or the database.
pub(super) struct Configured {
    pub(super) policy: Arc<Policy>,
    pub(super) config: Arc<Config>,
}

impl Configured {
    pub(super) async fn read(file: &Path) -> Result<Self, Failure> {
        let live = LiveConfig {
            writes_cache: false,
            ..LiveConfig::of(file)
        };
        let started = Live::start(live).await;
        let (live, config) = started.map_err(|error| error.into_failure(file))?;
        let policy = Arc::clone(&live.policy());
        if live.stats().from_cache {
            let warning =
                "the database is unavailable; these are its last valid rules, from the cache";
            writeln!(io::stderr(), "warning: {warning}")?;
        }
        Ok(Self { policy, config })
    }

    /// A limiter over Redis, if that is the store. It is not counted among the instances that share the limits.
    pub(super) fn limiter(&self) -> Result<Option<Limiter>, Failure> {
        let StoreConfig::Redis(redis) = &self.config.store else {
            return Ok(None);
        };
        let mut redis = redis.clone();
        redis.config.deadline = redis.config.deadline.max(DEADLINE);
        redis.shared.instances = Instances::Fixed(1);
        let limiter = decider::limiter(&StoreConfig::Redis(redis));
        (limiter.map(Some)).map_err(|error| Failure::BadInput(error.to_string()))
    }
}
