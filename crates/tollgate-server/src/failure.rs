//! Why a command has no result: what to say on stderr, and the exit code.
//!
//! Commands have errors of their own where somebody looks inside them; here they all end.

use std::fmt;
use std::io;

use tollgate_simulate::SimulateError;

/// Why the program ends without having done what it was asked to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something could not be read, written or reached: exit code 1.
    Unavailable(String),
    /// What was asked for, or a file, makes no sense: exit code 2.
    BadInput(String),
    /// As bad input, when the command has said itself what is wrong.
    AlreadySaid,
    /// Whoever read the output has seen enough (`| head`): no failure.
    ClosedPipe,
}

impl Failure {
    /// The exit code of the program.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::ClosedPipe => 0,
            Self::Unavailable(_) => 1,
            Self::BadInput(_) | Self::AlreadySaid => 2,
        }
    }

    /// What is left to say on stderr.
    pub(crate) fn message(&self) -> Option<&str> {
        match self {
            Self::Unavailable(text) | Self::BadInput(text) => Some(text),
            Self::AlreadySaid | Self::ClosedPipe => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message().unwrap_or_default())
    }
}

impl std::error::Error for Failure {}

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
