//! What a rule can count by, and the value that a request has for it.

use std::fmt;

use crate::name::Name;

/// One thing a rule can count by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dimension {
    /// The caller as known: an account, a merchant, a user.
    Client,
    /// The caller's address.
    Ip,
    /// The endpoint, by its pattern.
    Route,
    /// The HTTP method.
    Method,
    /// The caller's plan.
    Plan,
    /// Anything else, by name.
    Attribute(Name),
    /// The key of a check without rules.
    Key,
}

impl Dimension {
    /// Whether its values are callers, rather than what many callers have in common. Nobody but whoever writes rules knows what an attribute
    /// stands for, and who says one means it.
    pub(crate) fn is_caller(self) -> bool {
        match self {
            Self::Client | Self::Ip | Self::Attribute(_) | Self::Key => true,
            Self::Route | Self::Method | Self::Plan => false,
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.pad("client"),
            Self::Ip => f.pad("ip"),
            Self::Route => f.pad("route"),
            Self::Method => f.pad("method"),
            Self::Plan => f.pad("plan"),
            Self::Attribute(name) => write!(f, "attribute:{name}"),
            Self::Key => f.pad("key"),
        }
    }
}

/// One dimension of a bucket with the value it has in this request; requests that have none share a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// What is counted by.
    pub dimension: Dimension,
    /// Whose it is. Bytes as they came: stores must not use them raw in keys.
    pub value: Option<&'a [u8]>,
}

impl Part<'_> {
    /// What the value alone does not say, as two words: the dimension, and how long the value is, if there is one; and what the
    /// dimension is called, if it has a name of its own.
    #[inline(always)]
    pub(crate) fn shape(&self) -> [u64; 2] {
        let (tag, name) = match self.dimension {
            Dimension::Client => (0, 0),
            Dimension::Ip => (1, 0),
            Dimension::Route => (2, 0),
            Dimension::Method => (3, 0),
            Dimension::Plan => (4, 0),
            Dimension::Attribute(name) => (5, name.address()),
            Dimension::Key => (6, 0),
        };
        let form = match self.value {
            None => tag << 1,
            Some(value) => (value.len() as u64) << 4 | tag << 1 | 1,
        };
        [form, name]
    }
}
