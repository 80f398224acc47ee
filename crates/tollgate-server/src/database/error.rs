//! Errors of the database, for operators. They contain no password.

use std::fmt;

/// Why the database did not do what it was asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseError {
    message: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    BadInput,
    Failed,
    TimedOut,
}

impl DatabaseError {
    /// `what`, a document or a URL, would be refused again. `why` has what is wrong and what would be right.
    pub(crate) fn bad_input(what: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::new(Kind::BadInput, what, why)
    }

    /// The database, or the way to it, failed.
    pub(super) fn failed(database: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::new(Kind::Failed, database, why)
    }

    pub(super) fn timed_out(database: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::new(Kind::TimedOut, database, why)
    }

    fn new(kind: Kind, what: impl fmt::Display, why: impl fmt::Display) -> Self {
        let message = format!("{what}: {why}");
        Self { message, kind }
    }

    /// Whether the same would fail again because of the input, and not because of the database or the way to it.
    pub fn is_bad_input(&self) -> bool {
        self.kind == Kind::BadInput
    }

    pub(super) fn is_timeout(&self) -> bool {
        self.kind == Kind::TimedOut
    }
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DatabaseError {}
