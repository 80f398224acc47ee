//! What can go wrong with a database, in words for whoever runs it. Never with a password in them.

use std::fmt;
use std::time::Duration;

/// Why the database did not do what it was asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatabaseError {
    /// The URL names no database that we know.
    Url {
        /// What may be shown of it.
        database: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// The database, or the way to it, failed.
    Failed {
        /// What it was asked for.
        doing: &'static str,
        /// What may be shown of its URL.
        database: String,
        /// What it, or the driver, said.
        why: String,
        /// Whether it refused the data as such: it will do so again.
        is_about_data: bool,
    },
    /// It did not answer in time.
    Late {
        /// What it was asked for.
        doing: &'static str,
        /// What may be shown of its URL.
        database: String,
        /// How long it had.
        within: Duration,
    },
    /// Its tables were changed by a program that is newer than this one.
    Newer {
        /// What may be shown of its URL.
        database: String,
        /// The version of its tables.
        found: i64,
        /// The newest version that we know.
        known: i64,
    },
    /// A document that cannot be stored, or was stored by somebody else in a form that is none.
    Document {
        /// Which one.
        which: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// More rules or clients than a scope may have.
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        most: usize,
    },
}

impl DatabaseError {
    /// Whether the same would fail again: the input is at fault, and neither the database nor the way to it.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Url { .. } | Self::Document { .. } | Self::TooMany { .. } => true,
            Self::Failed { is_about_data, .. } => *is_about_data,
            Self::Late { .. } | Self::Newer { .. } => false,
        }
    }
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { database, why } => write!(f, "{database}: {why}"),
            Self::Failed {
                doing,
                database,
                why,
                ..
            } => write!(f, "{database}: cannot {doing}: {why}"),
            Self::Late {
                doing,
                database,
                within,
            } => write!(f, "{database}: cannot {doing}: no answer within {within:?}"),
            Self::Newer {
                database,
                found,
                known,
            } => write!(
                f,
                "{database}: its tables have version {found}, and this program knows {known}: use a newer tollgate"
            ),
            Self::Document { which, why } => write!(f, "{which}: {why}"),
            Self::TooMany { what, most } => {
                write!(f, "too many {what}: a scope may have at most {most}")
            }
        }
    }
}

impl std::error::Error for DatabaseError {}
