//! A URL's path, normalised once: what is matched is what is forwarded. Knows no rules.
//!
//! Whoever spells a path in another way must not get another bucket: percent-encoding, dots, doubled slashes and the like are
//! undone where that is safe, and refused where servers behind us would disagree about what was meant.

mod error;
mod pattern;
mod spelling;

use std::borrow::Cow;

pub use error::PathError;
pub use pattern::{Pattern, PatternError};
pub(crate) use pattern::{Segment, Shape};

/// The longest path, in bytes.
pub(crate) const LONGEST: usize = 8 * 1024;

/// How paths are read, beyond what is always done.
///
/// ```
/// use tollgate::PathRules;
///
/// let path = PathRules::default().normalise("/v1//charges/./%37?expand=all")?;
/// assert_eq!(path.as_str(), "/v1/charges/7");
/// assert!(PathRules::default().normalise("/v1/charges%2F7").is_err());
/// # Ok::<(), tollgate::PathError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathRules {
    /// Whether `/V1/Charges` is `/v1/charges`: so it is for servers such as Express. Only matching ignores it; what is forwarded keeps it.
    pub ignore_case: bool,
    /// What to do with `%2F`.
    pub encoded_slash: EncodedSlash,
}

/// What to do with a slash that is written as `%2F`. Some servers take it for a slash, and some for a letter like any other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncodedSlash {
    /// The path is refused.
    #[default]
    Reject,
    /// It stays as it is, part of a segment: for servers that do not take it for a slash.
    Keep,
}

/// A path that was normalised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    text: Cow<'a, str>,
    /// As it is matched, if that differs: without what comes behind a `;`, and in small letters if case is ignored.
    matched: Option<Box<str>>,
}

impl PathRules {
    /// Normalises a path as it came. A query behind it is left out.
    ///
    /// # Errors
    /// When it cannot be said for sure what the path means.
    pub fn normalise<'a>(&self, raw: &'a str) -> Result<Path<'a>, PathError> {
        let raw = raw.split_once('?').map_or(raw, |(path, _)| path);
        if raw.len() > LONGEST {
            return Err(PathError::TooLong { bytes: raw.len() });
        }
        let text = match raw {
            "" => Cow::Borrowed("/"),
            // What OPTIONS asks of a server as a whole.
            "*" => Cow::Borrowed(raw),
            raw if spelling::is_plain(raw) => Cow::Borrowed(raw),
            raw => Cow::Owned(spelling::normal(raw, self.encoded_slash)?),
        };
        let matched = spelling::to_match(&text, self.ignore_case);
        Ok(Path { text, matched })
    }
}

impl Path<'_> {
    /// The same, for who keeps it.
    #[must_use]
    pub fn into_owned(self) -> Path<'static> {
        Path {
            text: self.text.into_owned().into(),
            matched: self.matched,
        }
    }

    /// The path as it is forwarded.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What stands between the slashes, as it is matched. A slash at the end does not matter.
    pub(crate) fn segments(&self) -> Segments<'_> {
        let text = self.matched.as_deref().unwrap_or(&self.text);
        Segments(text.strip_prefix('/').unwrap_or(text))
    }
}

/// What is left of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments<'a>(&'a str);

impl<'a> Iterator for Segments<'a> {
    type Item = &'a str;

    #[inline]
    fn next(&mut self) -> Option<&'a str> {
        if self.0.is_empty() {
            return None;
        }
        let (segment, rest) = self.0.split_once('/').unwrap_or((self.0, ""));
        self.0 = rest;
        Some(segment)
    }
}

#[cfg(test)]
mod tests;
