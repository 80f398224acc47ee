//! The header `Forwarded` of RFC 7239, read from the right. Knows the header's grammar, not what an address is.
//!
//! Each proxy adds an element on the right, so what stands to the left may come from anybody: also a quote that is
//! never closed. Read from the left, such a quote would swallow what the proxies behind it wrote. Read from the right,
//! every element is found without looking at those before it.

use std::borrow::Cow;
use std::fmt;

/// The elements of one line of a `Forwarded` header, the last first.
///
/// ```
/// use tollgate_tower::identity::{forwarded_elements, forwarded_for};
///
/// let line = br#"for="never closed, for=192.0.2.60;proto=http, For="[2001:db8::1]:4711""#;
/// let mut elements = forwarded_elements(line);
/// let last = std::str::from_utf8(elements.next().unwrap())?;
/// assert_eq!(forwarded_for(last)?, "[2001:db8::1]:4711");
/// let before = std::str::from_utf8(elements.next().unwrap())?;
/// assert_eq!(forwarded_for(before)?, "192.0.2.60");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn forwarded_elements(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest?;
        match comma_before_last_element(line) {
            Some(comma) => {
                rest = line.get(..comma);
                line.get(comma + 1..)
            }
            None => {
                rest = None;
                Some(line)
            }
        }
    })
}

/// Where the last comma outside of quotes is.
fn comma_before_last_element(line: &[u8]) -> Option<usize> {
    let mut quoted = false;
    for (at, byte) in line.iter().enumerate().rev() {
        match byte {
            b',' if !quoted => return Some(at),
            // From the right, the first quote closes; what stands before it is text. Inside, a quote behind a backslash is
            // text too: the one that opens stands behind `=`.
            b'"' if !quoted => quoted = true,
            b'"' if !is_behind_backslash(line, at) => quoted = false,
            _ => {}
        }
    }
    None
}

fn is_behind_backslash(line: &[u8], at: usize) -> bool {
    line.get(..at).is_some_and(|before| before.ends_with(b"\\"))
}

/// What an element of a `Forwarded` header says of who sent the request: the value of `for`, out of its quotes.
///
/// # Errors
/// When the element breaks the grammar, or does not say `for` exactly once.
pub fn forwarded_for(element: &str) -> Result<Cow<'_, str>, ForwardedError> {
    let mut found = None;
    let mut rest = element.trim_matches(SPACE);
    while !rest.is_empty() {
        // The grammar allows pairs that are empty: `;;for=192.0.2.60`.
        if let Some(after) = rest.strip_prefix(';') {
            rest = after.trim_start_matches(SPACE);
            continue;
        }
        let (name, after) = token(rest)?;
        let (value, after) = value(after.strip_prefix('=').ok_or(ForwardedError::Malformed)?)?;
        if name.eq_ignore_ascii_case("for") && found.replace(value).is_some() {
            return Err(ForwardedError::Twice);
        }
        rest = after.trim_start_matches(SPACE);
        if !rest.is_empty() && !rest.starts_with(';') {
            return Err(ForwardedError::Malformed);
        }
    }
    found.ok_or(ForwardedError::Missing)
}

const SPACE: [char; 2] = [' ', '\t'];

/// A token and what follows it.
fn token(text: &str) -> Result<(&str, &str), ForwardedError> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    match text.split_at(end) {
        ("", _) => Err(ForwardedError::Malformed),
        parts => Ok(parts),
    }
}

/// A token or the text of a quoted string, and what follows it.
fn value(text: &str) -> Result<(Cow<'_, str>, &str), ForwardedError> {
    let Some(inside) = text.strip_prefix('"') else {
        return token(text).map(|(value, after)| (Cow::Borrowed(value), after));
    };
    let mut escaped = false;
    let mut any_escaped = false;
    for (at, c) in inside.char_indices() {
        match c {
            _ if c.is_control() && c != '\t' => return Err(ForwardedError::Malformed),
            _ if escaped => escaped = false,
            '\\' => (escaped, any_escaped) = (true, true),
            '"' => {
                let (value, after) = (&inside[..at], &inside[at + 1..]);
                return match any_escaped {
                    true => Ok((Cow::Owned(unescaped(value)), after)),
                    false => Ok((Cow::Borrowed(value), after)),
                };
            }
            _ => {}
        }
    }
    Err(ForwardedError::Malformed)
}

fn unescaped(text: &str) -> String {
    let mut chars = text.chars();
    std::iter::from_fn(|| match chars.next() {
        Some('\\') => chars.next(),
        other => other,
    })
    .collect()
}

/// What is wrong with an element of a `Forwarded` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedError {
    /// It breaks the grammar.
    Malformed,
    /// It does not say `for`.
    Missing,
    /// It says `for` more than once.
    Twice,
}

impl fmt::Display for ForwardedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => {
                "malformed; write it like for=192.0.2.60;proto=http or for=\"[2001:db8::1]:4711\""
            }
            Self::Missing => "says nothing about `for`",
            Self::Twice => "says `for` more than once",
        })
    }
}

impl std::error::Error for ForwardedError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_the_rfc_is_read() {
        for (element, expected) in [
            ("for=192.0.2.60", "192.0.2.60"),
            (
                "For=\"[2001:db8:cafe::17]:4711\"",
                "[2001:db8:cafe::17]:4711",
            ),
            ("FOR=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
            (
                "by=203.0.113.43 ; for=192.0.2.60 ; proto=http",
                "192.0.2.60",
            ),
            (" \tfor=192.0.2.60\t ", "192.0.2.60"),
            ("for=\"192.0.2.60:80\"", "192.0.2.60:80"),
            ("for=unknown", "unknown"),
            ("for=\"_gazonk\"", "_gazonk"),
            ("for=_SEVKISEK", "_SEVKISEK"),
            ("for=\"\\1\\92.0.2.60\"", "192.0.2.60"),
            ("for=\"\\\"\\\\\"", "\"\\"),
            ("for=\"\"", ""),
            (";;for=192.0.2.60;", "192.0.2.60"),
            ("host=\"a,b;for=1.1.1.1\";for=192.0.2.60", "192.0.2.60"),
            ("secret=\"é\";for=192.0.2.60", "192.0.2.60"),
        ] {
            assert_eq!(forwarded_for(element).as_deref(), Ok(expected), "{element}");
        }
    }

    #[test]
    fn whatever_breaks_the_grammar_is_refused() {
        for element in [
            "for",
            "for=",
            "=",
            "=1.2.3.4",
            "for =1.2.3.4",
            "for= 1.2.3.4",
            "for=1.2.3.4:80",
            "for=[::1]",
            "for=[::1]:80",
            "for=\"1.2.3.4",
            "for=1.2.3.4\"",
            "for=\"1.2.3.4\"x",
            "for=\"1.2.3.4\\\"",
            "for=\"a\nb\"",
            "for=1.2.3.4 proto=http",
            "192.0.2.60",
            "\"for\"=1.2.3.4",
            "for=1.2.3.4;x",
            "é=1;for=1.2.3.4",
            "for=é",
        ] {
            assert_eq!(
                forwarded_for(element),
                Err(ForwardedError::Malformed),
                "{element}"
            );
        }
        for element in ["", " ", ";", "proto=http", "fort=1.2.3.4"] {
            assert_eq!(
                forwarded_for(element),
                Err(ForwardedError::Missing),
                "{element}"
            );
        }
        for element in ["for=1.2.3.4;for=1.2.3.4", "for=1.2.3.4;FOR=5.6.7.8"] {
            assert_eq!(
                forwarded_for(element),
                Err(ForwardedError::Twice),
                "{element}"
            );
        }
    }

    #[test]
    fn elements_are_found_from_the_right() {
        for (line, expected) in [
            ("", vec![""]),
            ("a=1", vec!["a=1"]),
            ("a=1,b=2, c=3", vec![" c=3", "b=2", "a=1"]),
            ("a=1,,", vec!["", "", "a=1"]),
            ("a=\"x,y\",b=2", vec!["b=2", "a=\"x,y\""]),
            ("a=1,b=\"x\\\",y\"", vec!["b=\"x\\\",y\"", "a=1"]),
            ("a=1,b=\"x\\\\\",c=3", vec!["c=3", "b=\"x\\\\\"", "a=1"]),
            // A quote that somebody else left open reaches no further than to what stands left of it.
            ("a=1,x=\", b=2,c=\"3\"", vec!["c=\"3\"", " b=2", "a=1,x=\""]),
        ] {
            let elements: Vec<_> = forwarded_elements(line.as_bytes())
                .map(|e| std::str::from_utf8(e).unwrap())
                .collect();
            assert_eq!(elements, expected, "{line}");
        }
    }
}
