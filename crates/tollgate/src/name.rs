//! Short names that are said once and shown everywhere: rule ids and attribute names.

use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// The longest name.
const LONGEST: usize = 64;

/// A name of 1 to 64 characters from `A–Z a–z 0–9 _ - . :`, safe in keys, logs and metrics.
///
/// Copied into every decision, so it is interned: each distinct name is kept once for the life of the program.
/// Names come from those who write rules, never from callers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(&'static str);

impl Name {
    /// Interns a name.
    ///
    /// # Errors
    /// When it is empty, longer than 64 characters, or holds other characters.
    pub fn new(name: &str) -> Result<Self, NameError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        if name.is_empty() || name.len() > LONGEST || !name.chars().all(allowed) {
            return Err(NameError(name.to_owned()));
        }
        Ok(Self(intern(name)))
    }

    /// The name that belongs to no rule: checks by key alone.
    pub(crate) const NONE: Self = Self("");

    /// Interned names differ where they lie; the name of no rule is nowhere.
    pub(crate) fn address(self) -> u64 {
        match self.0.is_empty() {
            true => 0,
            false => self.0.as_ptr().addr() as u64,
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        self.0
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

fn intern(name: &str) -> &'static str {
    static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    if let Some(known) = names.get(name) {
        return known;
    }
    let kept: &'static str = String::leak(name.to_owned());
    names.insert(kept);
    kept
}

/// A name that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError(String);

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: String = self.0.chars().take(LONGEST).collect();
        write!(
            f,
            "{shown:?} cannot be a name; use 1 to {LONGEST} of A-Z a-z 0-9 _ - . :"
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
