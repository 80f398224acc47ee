//! Why there is no policy to begin with.

use std::fmt;
use std::path::PathBuf;

/// Why there is no policy to begin with.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration file could not be read.
    File(String),
    /// The configuration, or what is in the database, is wrong: every problem, with its place.
    Wrong(String),
    /// The rules are in a database that cannot be asked, and there is no cache to go on with.
    NoRules {
        /// What the database said.
        database: String,
        /// Where the cache would be, and why it is of no use; `None` if none is configured.
        cache: Option<(PathBuf, String)>,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(why) => f.write_str(why),
            Self::Wrong(problems) => f.write_str(problems.trim_end()),
            Self::NoRules { database, cache } => {
                write!(f, "there are no rules to decide by: {database}; ")?;
                match cache {
                    None => f.write_str(
                        "with `database: { cache: FILE }` the last good rules are kept for such a start",
                    ),
                    Some((file, why)) => write!(f, "and the cache {} {why}", file.display()),
                }
            }
        }
    }
}

impl std::error::Error for StartError {}
