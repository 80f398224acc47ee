//! Which database a command means, and opening it.

use std::future::Future;
use std::path::Path;

use crate::cli::{CONFIG_FILE, DatabaseArgs};
use crate::database::{Database, DatabaseError};
use crate::failure::Failure;
use tollgate_config::DEFAULT_SCOPE;
use tollgate_config::{Config, ConfigFile};

/// The database and scope that were named, and the configuration if one was.
pub(super) struct Meant {
    pub(super) url: String,
    pub(super) scope: String,
    pub(super) config: Option<Config>,
}

impl Meant {
    pub(super) fn of(args: &DatabaseArgs) -> Result<Self, Failure> {
        // The usual one is meant if it is there, and nothing else was said.
        let usual = Path::new(CONFIG_FILE);
        let usual = (args.database.is_none() && usual.exists()).then_some(usual);
        let file = args.config.as_deref().or(usual);
        let config = file.map(read_config).transpose()?;
        let of_config = config.as_ref().and_then(|config| config.database.as_ref());
        let url = match (&args.database, of_config) {
            (Some(url), _) => url.clone(),
            (None, Some(database)) => database.url.expose().to_owned(),
            (None, None) => {
                let missing = match file {
                    Some(file) => format!("{} names no database", file.display()),
                    None => "no database was named".to_owned(),
                };
                return Err(Failure::BadInput(format!(
                    "{missing}: say --database sqlite:FILE or postgres://…, set TOLLGATE_DATABASE, or give a \
                     configuration with `database` by -c FILE"
                )));
            }
        };
        let scope_of_config = of_config.map(|database| database.scope.as_str().to_owned());
        let scope = args.scope.clone().or(scope_of_config);
        Ok(Self {
            url,
            scope: scope.unwrap_or_else(|| DEFAULT_SCOPE.to_owned()),
            config,
        })
    }

    /// Whether it is a SQLite file that is not there yet.
    pub(super) fn is_missing(&self) -> Result<bool, Failure> {
        Ok(Database::is_missing(&self.url)?)
    }

    pub(super) async fn open(&self) -> Result<Database, Failure> {
        Ok(Database::open(&self.url).await?)
    }

    /// The same for who only wants to see what is there: with a wrong name, no file is made.
    pub(super) async fn open_what_is_there(&self) -> Result<Database, Failure> {
        Ok(Database::open_existing(&self.url).await?)
    }
}

impl From<DatabaseError> for Failure {
    fn from(error: DatabaseError) -> Self {
        match error.is_bad_input() {
            true => Self::BadInput(error.to_string()),
            false => Self::Unavailable(error.to_string()),
        }
    }
}

/// Runs what has to wait for a database.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Unavailable(format!("cannot start: {error}")))?
        .block_on(work)
}

fn read_config(file: &Path) -> Result<Config, Failure> {
    let file = ConfigFile::read(file).map_err(Failure::Unavailable)?;
    file.parse()
        .map_err(|problems| Failure::BadInput(format!("{}:\n{}", file.name(), problems.trim_end())))
}
