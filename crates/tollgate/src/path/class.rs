//! Classes of unusual paths, which are refused unless they are accepted.

use std::fmt;

/// A class of paths that is refused unless [`PathRules::accept`](super::PathRules::accept) contains it.
///
/// A path of an accepted class still passes only where it makes no difference to the rules how servers read it: see
/// [`RuleSet::read_path`](crate::RuleSet::read_path).
///
/// ```
/// use tollgate::{PathClass, PathRules};
///
/// let lenient = PathRules::default().accept([PathClass::Control]);
/// assert!(PathRules::default().normalise("/a%09b").is_err());
/// assert!(lenient.normalise("/a%09b").is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathClass {
    /// A backslash, as it is or as `%5C`: a slash for some servers.
    Backslash,
    /// An encoded control character, such as `%09` or `%7F`. NUL and line ends are always refused.
    Control,
    /// Encoded bytes that are not UTF-8, such as `%FF`. Overlong forms of ASCII are always refused.
    NotUtf8,
    /// A dot, slash or backslash that is encoded twice, such as `%252F`.
    EncodedTwice,
    /// Parameters without a name before them, or behind dots: `/;a`, `/..;a`.
    Parameters,
}

impl PathClass {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Backslash,
        Self::Control,
        Self::NotUtf8,
        Self::EncodedTwice,
        Self::Parameters,
    ];

    /// The name in a configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Backslash => "backslash",
            Self::Control => "control",
            Self::NotUtf8 => "not_utf8",
            Self::EncodedTwice => "encoded_twice",
            Self::Parameters => "parameters",
        }
    }

    fn bit(self) -> u8 {
        match self {
            Self::Backslash => 1,
            Self::Control => 1 << 1,
            Self::NotUtf8 => 1 << 2,
            Self::EncodedTwice => 1 << 3,
            Self::Parameters => 1 << 4,
        }
    }
}

impl fmt::Display for PathClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A set of [`PathClass`]es. Empty by default.
///
/// ```
/// use tollgate::{PathClass, PathClasses};
///
/// let classes: PathClasses = [PathClass::Control].into_iter().collect();
/// assert!(classes.contains(PathClass::Control) && !classes.contains(PathClass::Backslash));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct PathClasses(u8);

impl PathClasses {
    /// Every class.
    #[must_use]
    pub fn all() -> Self {
        PathClass::ALL.into_iter().collect()
    }

    /// Whether it contains this class.
    #[must_use]
    pub fn contains(self, class: PathClass) -> bool {
        self.0 & class.bit() != 0
    }
}

impl IntoIterator for PathClasses {
    type Item = PathClass;
    type IntoIter = std::vec::IntoIter<PathClass>;

    fn into_iter(self) -> Self::IntoIter {
        let classes = PathClass::ALL.into_iter();
        let contained: Vec<PathClass> = classes.filter(|class| self.contains(*class)).collect();
        contained.into_iter()
    }
}

impl FromIterator<PathClass> for PathClasses {
    fn from_iter<I: IntoIterator<Item = PathClass>>(classes: I) -> Self {
        Self((classes.into_iter()).fold(0, |bits, class| bits | class.bit()))
    }
}

impl fmt::Debug for PathClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let classes = PathClass::ALL.into_iter();
        f.debug_set()
            .entries(classes.filter(|class| self.contains(*class)))
            .finish()
    }
}
