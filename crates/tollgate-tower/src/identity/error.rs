//! Why a request is refused for what it says about its caller.

use std::fmt;

use http::HeaderName;

use super::explanation::Outcome;

/// An identity header that can be read in more than one way. The request is to be refused: Tollgate would charge one client,
/// and a server behind it might serve another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderError {
    header: HeaderName,
    outcome: Outcome,
}

impl HeaderError {
    pub(crate) fn new(header: &HeaderName, outcome: Outcome) -> Self {
        Self {
            header: header.clone(),
            outcome,
        }
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &HeaderName {
        &self.header
    }

    /// What is wrong with it.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }
}

impl fmt::Display for HeaderError {
    /// Shows nothing of the value, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { header, outcome } = self;
        match outcome {
            Outcome::Ambiguous => write!(f, "several {header} headers have different values"),
            outcome => write!(f, "the {header} header is refused: {outcome}"),
        }
    }
}

impl std::error::Error for HeaderError {}
