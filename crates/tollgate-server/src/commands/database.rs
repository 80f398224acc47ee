//! Which database a command means, and opening it.

use std::fs::File;
use std::future::Future;
use std::io::{self, Read as _};
use std::path::Path;

use super::Failure;
use crate::cli::DatabaseArgs;
use crate::config::{self, Config};
use crate::database::{DEFAULT_SCOPE, Database, DatabaseError};
use crate::document;

/// The database and scope that were named, and the configuration if one was.
pub(super) struct Meant {
    pub(super) url: String,
    pub(super) scope: String,
    pub(super) config: Option<Config>,
}

impl Meant {
    pub(super) fn of(args: &DatabaseArgs) -> Result<Self, Failure> {
        let config = args.config.as_deref().map(read_config).transpose()?;
        let of_config = config.as_ref().and_then(|config| config.database.as_ref());
        let url = match (&args.database, of_config) {
            (Some(url), _) => url.clone(),
            (None, Some(database)) => database.url.expose().to_owned(),
            (None, None) => {
                let missing = match &args.config {
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

    pub(super) async fn open(&self) -> Result<Database, Failure> {
        Ok(Database::open(&self.url).await?)
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

/// The name and text of a file; "-" is stdin.
pub(super) fn read_text(file: &Path) -> Result<(String, String), Failure> {
    let is_stdin = file.as_os_str() == "-";
    let name = match is_stdin {
        true => "stdin".to_owned(),
        false => file.display().to_string(),
    };
    // One byte more than may be, so that too long a file is noticed and not read to its end.
    let most = document::LONGEST as u64 + 4;
    let mut bytes = Vec::new();
    let read = match is_stdin {
        true => io::stdin().lock().take(most).read_to_end(&mut bytes),
        false => File::open(file).and_then(|file| file.take(most).read_to_end(&mut bytes)),
    };
    read.map_err(|error| Failure::Unavailable(format!("cannot read {name}: {error}")))?;
    match document::decode(&bytes) {
        Ok(text) => Ok((name, text.to_owned())),
        Err(problem) => Err(Failure::BadInput(format!("{name}: {problem}"))),
    }
}

fn read_config(file: &Path) -> Result<Config, Failure> {
    let (name, text) = read_text(file)?;
    let env = |name: &str| std::env::var(name).ok();
    config::parse(&text, &env).map_err(|problems| {
        Failure::BadInput(format!(
            "{name}:\n{}",
            problems.render(&name, &text).trim_end()
        ))
    })
}
