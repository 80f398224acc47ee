//! The database that a command works on.

use std::path::Path;

use tollgate_config::{Config, ConfigFile, DEFAULT_SCOPE};

use super::block_on;
use crate::cli::{CONFIG_FILE, DatabaseArgs};
use crate::database::{Database, DatabaseError, Stored};
use crate::failure::Failure;

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
