//! Short names that are given once and shown everywhere: rule ids and attribute names.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// The longest name.
const MAX_CHARS: usize = 64;

/// A name of 1 to 64 characters from `A–Z a–z 0–9 _ - . :`, safe in keys, logs and metrics.
///
/// It is copied into every decision, and therefore interned: each distinct name is kept once for the life of the program. Take
/// names from those who write rules, never from clients.
///
/// ```
/// use tollgate::Name;
///
/// let name = Name::new("header:x-region")?;
/// assert_eq!(name.as_str(), "header:x-region");
/// assert!(Name::new("with spaces").is_err());
/// # Ok::<(), tollgate::NameError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Name(&'static Interned);

/// What is kept of a name.
#[derive(Debug)]
struct Interned {
    text: &'static str,
    /// Names are numbered from 1 on as they appear.
    number: u32,
}

/// The name that belongs to no rule.
static NONE: Interned = Interned {
    text: "",
    number: 0,
};

impl Name {
    /// Interns a name.
    ///
    /// # Errors
    /// When it is empty, longer than 64 characters, or holds other characters.
    pub fn new(name: &str) -> Result<Self, NameError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        if name.is_empty() || name.len() > MAX_CHARS || !name.chars().all(allowed) {
            return Err(NameError(name.to_owned()));
        }
        Ok(Self(intern(name)))
    }

    /// The name that belongs to no rule: that of a key.
    pub(crate) const NONE: Self = Self(&NONE);

    /// Interned names differ by where they are; the name of no rule is nowhere.
    #[inline]
    pub(crate) fn address(self) -> u64 {
        match self.0.number {
            0 => 0,
            _ => std::ptr::from_ref(self.0).addr() as u64,
        }
    }

    /// A small number of this name in this process; 0 for the name of no rule.
    #[cfg(feature = "metrics")]
    pub(crate) fn number(self) -> usize {
        self.0.number as usize
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        self.0.text
    }
}

impl PartialEq for Name {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

fn intern(name: &str) -> &'static Interned {
    static NAMES: Mutex<Option<HashMap<&'static str, &'static Interned>>> = Mutex::new(None);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    if let Some(known) = names.get(name) {
        return known;
    }
    let text: &'static str = String::leak(name.to_owned());
    let number = u32::try_from(names.len() + 1).unwrap_or(u32::MAX);
    let kept = Box::leak(Box::new(Interned { text, number }));
    names.insert(text, kept);
    kept
}

/// Text that is not a [`Name`].
///
/// ```
/// let error = tollgate::Name::new("with spaces").unwrap_err();
/// assert_eq!(error.to_string(), "\"with spaces\" cannot be a name; use 1 to 64 of A-Z a-z 0-9 _ - . :");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError(String);

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: String = self.0.chars().take(MAX_CHARS).collect();
        write!(
            f,
            "{shown:?} cannot be a name; use 1 to {MAX_CHARS} of A-Z a-z 0-9 _ - . :"
        )
    }
}

impl std::error::Error for NameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_one_name() {
        let (a, b) = (Name::new("client").unwrap(), Name::new("client").unwrap());
        assert_eq!(a.as_str().as_ptr(), b.as_str().as_ptr());
    }

    #[test]
    fn what_could_break_a_key_or_a_log_line_is_refused() {
        for bad in ["", "a b", "a{b}", "a\nb", "ü", &"x".repeat(65)] {
            let error = Name::new(bad).unwrap_err().to_string();
            assert!(error.contains("use 1 to 64 of A-Z"), "{error}");
        }
    }
}
