//! What a rule can count by, and the value that a request has for it.

use std::fmt;

use crate::name::Name;

/// One thing that a rule can count by.
///
/// ```
/// use tollgate::{Dimension, Name, Rule};
///
/// let tenant = Dimension::Attribute(Name::new("header:x-tenant")?);
/// let rule = Rule::new("tenant", "10/s".parse()?)?.per([tenant, Dimension::Method]);
/// # let _ = rule;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dimension {
    /// The client: an account, a merchant, a user.
    Client,
    /// The client's address.
    Ip,
    /// The endpoint, by its pattern.
    Route,
    /// The HTTP method.
    Method,
    /// The client's plan.
    Plan,
    /// Anything else, by name.
    Attribute(Name),
    /// The key of a check without rules.
    Key,
}

impl Dimension {
    /// Whether its values stand for clients, rather than for something that many clients share. Only the author of the rules knows what an
    /// attribute stands for, so a request with one means it.
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

/// A dimension of a bucket with the request's value for it. Requests without one share a bucket.
///
/// ```
/// use tollgate::{Dimension, Part};
///
/// let part = Part { dimension: Dimension::Client, value: Some(b"merchant_123") };
/// assert_eq!(part.dimension.to_string(), "client");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The dimension.
    pub dimension: Dimension,
    /// The value: bytes as they came, to be escaped where they are shown.
    pub value: Option<&'a [u8]>,
}

impl Part<'_> {
    /// All but the value itself, as two words: the dimension and the value's length, if there is one; and the dimension's name, if it has
    /// one of its own.
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
