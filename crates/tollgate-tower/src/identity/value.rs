//! One header's value, if there is one that means one thing. Knows nothing of what it is for.

use http::header::{HeaderMap, HeaderName};

use super::explanation::Outcome;

/// The longest id that somebody may write into a header.
pub(crate) const LONGEST_ID: usize = 256;

/// The longest API key that is hashed, so that nobody keeps us busy with hashing.
pub(crate) const LONGEST_KEY: usize = 4096;

/// The longest plan's name.
pub(crate) const LONGEST_PLAN: usize = 64;

/// The value, without spaces around it.
///
/// A header that is there twice with different values says two things; which one a program in front of us or behind us
/// would take, nobody knows.
pub(crate) fn single<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
    longest: usize,
) -> Result<&'h [u8], Outcome> {
    let mut lines = headers.get_all(name).iter();
    let value = lines.next().ok_or(Outcome::NotPresent)?;
    if lines.any(|other| other != value) {
        return Err(Outcome::Ambiguous);
    }
    let value = trimmed(value.as_bytes());
    match value.len() {
        0 => Err(Outcome::Empty),
        length if length > longest => Err(Outcome::TooLong),
        _ => Ok(value),
    }
}

/// The value as text that may be shown.
pub(crate) fn single_text<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
    longest: usize,
) -> Result<&'h str, Outcome> {
    let value = single(headers, name, longest)?;
    let text = std::str::from_utf8(value).map_err(|_| Outcome::Unreadable)?;
    match is_printable(text) {
        true => Ok(text),
        false => Err(Outcome::Unreadable),
    }
}

/// Spaces and tabs around a value are none of it.
pub(crate) fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Without what would break a line of a log, or show another text than is there.
pub(crate) fn is_printable(text: &str) -> bool {
    !text.chars().any(|c| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    })
}

/// Text from outside as an error may show it: short, and escaped by whoever formats it with `{:?}`.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}
