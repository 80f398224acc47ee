//! Why a request is refused before any rule is asked.

use std::fmt;

use tollgate::{HostError, PathError};

use crate::answer::path_detail;
use crate::identity::HeaderError;

/// A request that servers may read in different ways. It is to be refused with 400: whatever were decided about it, a server behind
/// might do something else.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Its path can be read in more than one way.
    Path(PathError),
    /// A header that says who calls can be read in more than one way.
    Identity(HeaderError),
    /// Its host is none.
    Host(HostError),
    /// It has several `Host` headers that differ.
    SeveralHosts,
    /// A header that rules count by has several lines with different values.
    Header(Box<str>),
    /// A header has more of the values that rules name than are compared.
    HeaderList(Box<str>),
    /// A server may read the header by this name as one that rules or the identity look at.
    HeaderName(Box<str>),
}

impl Refusal {
    /// What is refused, as a word for programs: `path_refused`, `identity_refused`, `host_refused` or `header_refused`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Path(_) => "path_refused",
            Self::Identity(_) => "identity_refused",
            Self::Host(_) | Self::SeveralHosts => "host_refused",
            Self::Header(_) | Self::HeaderList(_) | Self::HeaderName(_) => "header_refused",
        }
    }

    /// Why, for the client, who cannot change the configuration. Shows no secret.
    #[must_use]
    pub fn detail(&self) -> String {
        match self {
            Self::Path(error) => path_detail(error),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(error) => error.fmt(f),
            Self::Identity(error) => error.fmt(f),
            Self::Host(error) => error.fmt(f),
            Self::SeveralHosts => f.write_str("several Host headers have different values"),
            Self::Header(name) => write!(f, "several {name} headers have different values"),
            Self::HeaderList(name) => write!(f, "the {name} header has too many values"),
            Self::HeaderName(name) => {
                let other = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
                write!(f, "servers may take the {name} header for {other}")
            }
        }
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Path(error) => Some(error),
            Self::Identity(error) => Some(error),
            Self::Host(error) => Some(error),
            Self::SeveralHosts | Self::Header(_) | Self::HeaderList(_) | Self::HeaderName(_) => {
                None
            }
        }
    }
}

impl From<PathError> for Refusal {
    fn from(error: PathError) -> Self {
        Self::Path(error)
    }
}

impl From<HostError> for Refusal {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

impl From<HeaderError> for Refusal {
    fn from(error: HeaderError) -> Self {
        Self::Identity(error)
    }
}
