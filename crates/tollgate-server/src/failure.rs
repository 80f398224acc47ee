//! Why a command failed: the message on stderr, and the exit code.

use std::fmt;
use std::io;

use tollgate_simulate::SimulateError;

use crate::database::DatabaseError;

#[derive(Debug)]
pub(crate) enum Failure {
    /// Something could not be read, written or reached: exit code 1.
    Unavailable(String),
    /// The arguments or a file are invalid: exit code 2.
    BadInput(String),
    /// As bad input, when the command has reported the reason itself.
    Reported,
    /// The reader of the output has closed it, as `| head` does. This is no failure.
    ClosedPipe,
}

impl Failure {
    /// The failure of a configuration file with these problems.
    pub(crate) fn invalid(file: impl fmt::Display, problems: &str) -> Self {
        Self::BadInput(format!("{file} is not valid:\n{}", problems.trim_end()))
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::ClosedPipe => 0,
            Self::Unavailable(_) => 1,
            Self::BadInput(_) | Self::Reported => 2,
        }
    }

    /// What is left to report on stderr.
    pub(crate) fn message(&self) -> Option<&str> {
        match self {
            Self::Unavailable(text) | Self::BadInput(text) => Some(text),
            Self::Reported | Self::ClosedPipe => None,
        }
    }
}

/// The output could not be printed.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ClosedPipe,
            _ => Self::Unavailable(format!("cannot print the result: {error}")),
        }
    }
}

impl From<SimulateError> for Failure {
    fn from(error: SimulateError) -> Self {
        match error {
            SimulateError::Output(error) => error.into(),
            SimulateError::BadInput(text) => Self::BadInput(text),
            error => Self::Unavailable(error.to_string()),
        }
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
