//! Why a request is refused for what it says about its caller.

use std::fmt;
use std::net::IpAddr;

use http::HeaderName;

use super::explanation::Outcome;

/// An identity header that can be read in more than one way. The request is to be refused: Tollgate would charge one client,
/// and a server behind it might serve another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderError {
    header: HeaderName,
    outcome: Outcome,
    address: IpAddr,
}

impl HeaderError {
    pub(crate) fn new(header: &HeaderName, outcome: Outcome, address: IpAddr) -> Self {
        Self {
            header: header.clone(),
            outcome,
            address,
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

    /// The client's address, which is all that is known of it, in the form in which it is counted.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }
}

impl fmt::Display for HeaderError {
    /// Shows nothing of the value, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            header, outcome, ..
        } = self;
        match outcome {
            Outcome::Ambiguous => write!(f, "several {header} headers have different values"),
            outcome => write!(f, "the {header} header is refused: {outcome}"),
        }
    }
}

impl std::error::Error for HeaderError {}
