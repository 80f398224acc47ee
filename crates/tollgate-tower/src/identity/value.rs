//! One header's value, if there is one that means one thing. Knows nothing of what it is for.

use std::borrow::Cow;

use http::header::{COOKIE, HeaderMap, HeaderName, HeaderValue};

use super::explanation::Outcome;

/// The longest id that somebody may write into a header.
pub(crate) const LONGEST_ID: usize = 256;

/// The longest API key that is hashed, so that nobody keeps us busy with hashing. As long as the longest header that nginx
/// accepts by default.
pub(crate) const LONGEST_KEY: usize = 8 * 1024;

/// The longest plan's name.
pub(crate) const LONGEST_PLAN: usize = 64;

/// The value of a header, without spaces around it.
///
/// Several lines with different values are ambiguous: some servers take the first, some the last, some join them.
pub(crate) fn single<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<Cow<'h, [u8]>, Outcome> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next().ok_or(Outcome::NotPresent)?;
    let value = match lines.next() {
        None => Cow::Borrowed(trimmed(first.as_bytes())),
        Some(second) if *name == COOKIE => Cow::Owned(joined_cookies(first, second, lines)),
        Some(second) if second != first || lines.any(|other| other != first) => {
            return Err(Outcome::Ambiguous);
        }
        Some(_) => Cow::Borrowed(trimmed(first.as_bytes())),
    };
    match value.is_empty() {
        true => Err(Outcome::Empty),
        false => Ok(value),
    }
}

/// HTTP/2 may send each cookie in a line of its own, and they mean one line (RFC 9113, 8.2.3).
fn joined_cookies<'h>(
    first: &'h HeaderValue,
    second: &'h HeaderValue,
    others: impl Iterator<Item = &'h HeaderValue>,
) -> Vec<u8> {
    let mut joined = first.as_bytes().to_vec();
    for line in std::iter::once(second).chain(others) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(line.as_bytes());
    }
    joined
}

/// The value as text that may be shown.
pub(crate) fn single_text<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
    longest: usize,
) -> Result<Cow<'h, str>, Outcome> {
    let text = match single(headers, name)? {
        value if value.len() > longest => return Err(Outcome::TooLong),
        Cow::Borrowed(value) => std::str::from_utf8(value).ok().map(Cow::Borrowed),
        Cow::Owned(value) => String::from_utf8(value).ok().map(Cow::Owned),
    };
    let text = text.ok_or(Outcome::Unreadable)?;
    check_text(&text, longest).map(|()| text)
}

/// Whether text is of at most `longest` bytes and may be shown.
pub(crate) fn check_text(text: &str, longest: usize) -> Result<(), Outcome> {
    match text.len() > longest {
        true => Err(Outcome::TooLong),
        false if is_printable(text) => Ok(()),
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
