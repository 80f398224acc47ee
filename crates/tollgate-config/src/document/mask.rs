//! Excerpts of a document with their secrets masked.
//!
//! A secret is recognised by the name of its key or by the form of an address. So masking also works on a text that
//! could not be parsed, and on a field whose name was mistyped.

use std::ops::Range;

/// Replaces a secret.
const MASK: &str = "***";

/// Parts of keys whose values are secrets.
const SECRET: [&str; 8] = [
    "token",
    "passw",
    "secret",
    "apikey",
    "api_key",
    "api-key",
    "credential",
    "private_key",
];

pub(super) fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    // A token bucket is not a secret. The hash of a key is, because the key itself may have been put there.
    !key.contains("bucket") && SECRET.iter().any(|part| key.contains(part))
}

/// A line without its secrets, and the new range of the marked part of it. Ranges are bytes within the line.
pub(super) fn masked(line: &str, marked: Range<usize>) -> (String, Range<usize>) {
    let mut secrets = secret_values(line);
    secrets.extend(passwords(line));
    hide(line, secrets, marked)
}

/// A text that may be an address, without its password.
pub(super) fn without_password(text: &str) -> String {
    hide(text, passwords(text), 0..0).0
}

fn hide(
    line: &str,
    mut secrets: Vec<Range<usize>>,
    marked: Range<usize>,
) -> (String, Range<usize>) {
    secrets.sort_by_key(|range| range.start);
    secrets.dedup_by(|next, kept| {
        let overlap = next.start < kept.end;
        if overlap {
            kept.end = kept.end.max(next.end);
        }
        overlap
    });
    let mut shown = String::with_capacity(line.len());
    let (mut start, mut end) = (marked.start, marked.end);
    let mut from = 0;
    for secret in secrets {
        shown.push_str(line.get(from..secret.start).unwrap_or_default());
        let mask_start = shown.len();
        shown.push_str(MASK);
        if marked.start >= secret.end {
            start = shown.len() + (marked.start - secret.end);
        } else if marked.start >= secret.start {
            start = mask_start;
        }
        if marked.end >= secret.end {
            end = shown.len() + (marked.end - secret.end);
        } else if marked.end > secret.start {
            end = shown.len();
        }
        from = secret.end;
    }
    shown.push_str(line.get(from..).unwrap_or_default());
    (shown, start..end.max(start))
}

/// The values of keys that name a secret, except variables.
fn secret_values(line: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (colon, _) in line.match_indices(':') {
        let before = line.get(..colon).unwrap_or_default();
        let before = before.trim_end_matches(['"', '\'', ' ']);
        let in_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let key = before.rsplit(|c| !in_key(c)).next().unwrap_or_default();
        let after = line.get(colon + 1..).unwrap_or_default();
        let value = after.trim_start();
        // "header:X-API-Key" is a value, and "a key: value" needs the space.
        let is_value = value.len() < after.len() || before.len() < colon;
        if !is_value || !is_secret(key) {
            continue;
        }
        let length = length_of_value(value, before.contains('{'));
        let inside = value.get(..length).unwrap_or_default();
        if length == 0 || is_variable(inside.trim_matches(['"', '\''])) {
            continue;
        }
        let start = line.len() - value.len();
        found.push(start..start + length);
    }
    found
}

/// Whether this is `${NAME}` and nothing else; a default may be a secret.
fn is_variable(value: &str) -> bool {
    let name = value
        .strip_prefix("${")
        .and_then(|name| name.strip_suffix('}'));
    name.is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

/// Length of the value that begins here. Rather too long than too short.
fn length_of_value(value: &str, is_in_braces: bool) -> usize {
    let end = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => end_of_quoted(value, quote),
        _ => {
            // The "}" of a variable does not end a map.
            let variable = value.starts_with("${").then(|| value.find('}')).flatten();
            let from = variable.map_or(0, |at| at + 1);
            let rest = value.get(from..).unwrap_or_default();
            let is_mixed = rest.contains("${");
            let brace = rest.find([',', '}']).filter(|_| is_in_braces && !is_mixed);
            let ends = rest.find(" #").into_iter().chain(brace);
            ends.min().map(|at| from + at)
        }
    };
    let end = end.unwrap_or(value.len());
    value.get(..end).unwrap_or(value).trim_end().len()
}

fn end_of_quoted(value: &str, quote: char) -> Option<usize> {
    let mut letters = value.char_indices().skip(1).peekable();
    while let Some((at, c)) = letters.next() {
        let is_doubled = quote == '\'' && letters.peek().is_some_and(|(_, next)| *next == quote);
        match c {
            '\\' if quote == '"' => drop(letters.next()),
            c if c == quote && is_doubled => drop(letters.next()),
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// The passwords of addresses such as `scheme://user:password@host` and `scheme://host?password=…`.
fn passwords(line: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for name in ["?pass=", "&pass=", "?password=", "&password="] {
        for (at, _) in line.match_indices(name) {
            let start = at + name.len();
            let rest = line.get(start..).unwrap_or_default();
            let end = rest.find(['&', ' ', '"', '\'', ',', '}']);
            let end = end.unwrap_or(rest.len());
            if end > 0 && !rest.starts_with("${") {
                found.push(start..start + end);
            }
        }
    }
    for (scheme, _) in line.match_indices("://") {
        let start = scheme + 3;
        let rest = line.get(start..).unwrap_or_default();
        let end = rest.find([' ', '"', '\'']).unwrap_or(rest.len());
        let Some(at) = rest.get(..end).unwrap_or_default().rfind('@') else {
            continue;
        };
        let login = rest.get(..at).unwrap_or_default();
        let from = login.find(':').map_or(0, |colon| colon + 1);
        let password = login.get(from..).unwrap_or_default();
        let is_variable = password.starts_with("${") && !password.contains(":-");
        if !password.is_empty() && !is_variable {
            found.push(start + from..start + at);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_and_the_rest_stays() {
        for (line, expected) in [
            ("  token: hunter2 # why", "  token: *** # why"),
            (
                "admin: { token: \"a, b\", listen: x }",
                "admin: { token: ***, listen: x }",
            ),
            ("{\"token\":\"hunter2\",\"a\":1}", "{\"token\":***,\"a\":1}"),
            ("  Admin-Token: 'x y'", "  Admin-Token: ***"),
            ("  token: ${TOKEN}", "  token: ${TOKEN}"),
            ("  token: ${TOKEN:-hunter2}", "  token: ***"),
            ("  token: abc${TOKEN}def", "  token: ***"),
            ("{ token: abc${TOKEN}def, a: 1 }", "{ token: ***"),
            ("  token: a,b}c", "  token: ***"),
            (
                "{\"token\": \"a\\\"b\", \"c\": 1}",
                "{\"token\": ***, \"c\": 1}",
            ),
            ("token: 'a''b' # c", "token: *** # c"),
            ("token: \"never closed, a", "token: ***"),
            ("{ token: ${TOKEN} }", "{ token: ${TOKEN} }"),
            ("{ token: \"${TOKEN}\" }", "{ token: \"${TOKEN}\" }"),
            ("redis: redis://:pa:ss@host/0", "redis: redis://:***@host/0"),
            (
                "redis: redis://u:p@ss@h, b: 1",
                "redis: redis://u:***@h, b: 1",
            ),
            (
                "url: postgres://secret@host/db",
                "url: postgres://***@host/db",
            ),
            (
                "url: postgres://u:${PW}@host/db",
                "url: postgres://u:${PW}@host/db",
            ),
            (
                "redis: unix:///run/r?db=1&pass=hunter2",
                "redis: unix:///run/r?db=1&pass=***",
            ),
            (
                "url: \"postgres://h/db?password=hunter2&x=1\"",
                "url: \"postgres://h/db?password=***&x=1\"",
            ),
            ("algorithm: token_bucket", "algorithm: token_bucket"),
            (
                "client: [\"api_key:X-API-Key\", ip]",
                "client: [\"api_key:X-API-Key\", ip]",
            ),
            ("api_key: abc", "api_key: ***"),
            ("{ä,token: abc}", "{ä,token: ***}"),
            ("ätoken: abc", "ätoken: ***"),
            ("api_key_sha256: 9f86d0", "api_key_sha256: ***"),
            // Two secrets that overlap.
            ("{ token: redis://u:pa,ss@h }", "{ token: ***@h }"),
        ] {
            assert_eq!(masked(line, 0..0).0, expected, "{line}");
        }
    }

    #[test]
    fn the_mark_moves_with_the_text() {
        let line = "{ token: hunter2hunter2, listen: here }";
        let (shown, marked) = masked(line, 33..37);
        assert_eq!(&shown[marked], "here");
        let (shown, marked) = masked(line, 9..23);
        assert_eq!(&shown[marked], "***");
    }
}
