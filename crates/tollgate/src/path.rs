//! The path of a URL, normalised once for matching. Knows no rules.
//!
//! Another spelling of a path must not lead to another bucket: percent-encoding, dots, doubled slashes and the like are
//! undone, or refused where no reading is certain. What is forwarded may still be the spelling that came, so `readings` lists the
//! ways in which a server may read it.

mod class;
mod error;
mod pattern;
mod readings;
mod spelling;

use std::borrow::Cow;

pub use class::{PathClass, PathClasses};
pub use error::PathError;
pub use pattern::{Pattern, PatternError};
pub(crate) use pattern::{Segment, Shape};
pub(crate) use readings::Readings;

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
#[must_use = "how paths are read matters to the rule set that has it"]
#[non_exhaustive]
pub struct PathRules {
    /// Whether `/V1/Charges` is `/v1/charges`: so it is for servers such as Express. Only matching ignores it; what is forwarded keeps it.
    pub ignore_case: bool,
    /// What to do with `%2F`.
    pub encoded_slash: EncodedSlash,
    /// Which form of a path servers see.
    pub forward: ForwardedPath,
    /// Classes of paths that are not refused.
    pub accept: PathClasses,
}

/// Which form of a path goes on to the server.
///
/// ```
/// use tollgate::{ForwardedPath, PathRules, RuleSet};
///
/// let rules = RuleSet::default().with_paths(PathRules::default().forward(ForwardedPath::Normalised));
/// # let _ = rules;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForwardedPath {
    /// The bytes that came.
    #[default]
    Original,
    /// The normal form, which is matched: escapes that are not needed are decoded, doubled slashes merged, dots resolved.
    Normalised,
}

/// What to do with a slash that is written as `%2F`. Some servers take it for a slash, and some for a letter like any other.
///
/// ```
/// use tollgate::{EncodedSlash, PathRules};
///
/// let rules = PathRules::default().encoded_slash(EncodedSlash::Keep);
/// assert_eq!(rules.normalise("/packages/%40scope%2Fname")?.as_str(), "/packages/@scope%2Fname");
/// # Ok::<(), tollgate::PathError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodedSlash {
    /// The path is refused.
    #[default]
    Reject,
    /// It stays as it is, part of a segment: for servers that do not take it for a slash.
    Keep,
}

/// A path that was normalised, by [`RuleSet::read_path`](crate::RuleSet::read_path) or [`PathRules::normalise`].
///
/// ```
/// use tollgate::{Request, RuleSet};
///
/// let rules = RuleSet::default();
/// let path = rules.read_path("/v1//charges")?;
/// assert_eq!(path.as_str(), "/v1/charges");
/// let request = Request::new().path(&path);
/// # let _ = request;
/// # Ok::<(), tollgate::PathError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    text: Cow<'a, str>,
    /// As it is matched, if that differs: without what comes behind a `;`, and in small letters if case is ignored.
    matched: Option<Box<str>>,
}

impl PathRules {
    /// Rules that refuse as little as possible: for code that routes paths which were accepted before.
    pub fn permissive() -> Self {
        Self {
            encoded_slash: EncodedSlash::Keep,
            accept: PathClasses::all(),
            ..Self::default()
        }
    }

    /// Sets [`ignore_case`](Self::ignore_case).
    pub fn ignore_case(mut self, ignore: bool) -> Self {
        self.ignore_case = ignore;
        self
    }

    /// Sets [`encoded_slash`](Self::encoded_slash).
    pub fn encoded_slash(mut self, encoded_slash: EncodedSlash) -> Self {
        self.encoded_slash = encoded_slash;
        self
    }

    /// Sets [`forward`](Self::forward).
    pub fn forward(mut self, forward: ForwardedPath) -> Self {
        self.forward = forward;
        self
    }

    /// Sets [`accept`](Self::accept).
    pub fn accept(mut self, classes: impl IntoIterator<Item = PathClass>) -> Self {
        self.accept = classes.into_iter().collect();
        self
    }

    /// Normalises a path as it came. A query behind it is left out.
    ///
    /// Servers may read the path that came in another way: [`RuleSet::read_path`](crate::RuleSet::read_path) checks that this
    /// makes no difference to the rules.
    ///
    /// # Errors
    /// When it is uncertain what the path means.
    pub fn normalise<'a>(&self, raw: &'a str) -> Result<Path<'a>, PathError> {
        let raw = without_query(raw);
        if raw.len() > LONGEST {
            return Err(PathError::TooLong { bytes: raw.len() });
        }
        let text = match raw {
            "" => Cow::Borrowed("/"),
            // What OPTIONS asks of a server as a whole.
            "*" => Cow::Borrowed(raw),
            raw if spelling::is_plain(raw) => Cow::Borrowed(raw),
            raw => Cow::Owned(spelling::normal(raw, self)?),
        };
        let matched = spelling::to_match(&text, self.ignore_case);
        Ok(Path { text, matched })
    }

    /// The ways in which servers may read what is forwarded of a path that came, if there is more than one. `path` is its normal form.
    pub(crate) fn readings<'a>(
        &self,
        raw: &'a str,
        path: &'a Path<'_>,
        forward: ForwardedPath,
    ) -> Option<Readings<'a>> {
        if let Cow::Borrowed(_) = path.text {
            // It is plain.
            return None;
        }
        let forwarded = match forward {
            ForwardedPath::Original => without_query(raw),
            ForwardedPath::Normalised => path.as_str(),
        };
        (!spelling::is_plain(forwarded)).then(|| Readings::of(forwarded, self))
    }
}

fn without_query(raw: &str) -> &str {
    raw.split_once('?').map_or(raw, |(path, _)| path)
}

impl Path<'_> {
    /// The same path, borrowed from nothing.
    #[must_use]
    pub fn into_owned(self) -> Path<'static> {
        Path {
            text: self.text.into_owned().into(),
            matched: self.matched,
        }
    }

    /// The path in its normal form.
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
