//! Lines of a document with their secrets left out.
//!
//! By the name of a key and by the form of an address, so that it also works on a text that could not be parsed, and
//! on a field whose name was mistyped.

use std::ops::Range;

/// What stands for a secret.
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

/// Whether the value of this key is a secret.
pub(super) fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    // What names a kind of thing, or stands for a key that nobody can guess from it, is no secret.
    let is_harmless = key.contains("bucket") || key.ends_with("sha256");
    !is_harmless && SECRET.iter().any(|part| key.contains(part))
}

/// A line without its secrets, and where the marked part of it is now. Bytes, within the line.
pub(super) fn masked(line: &str, marked: Range<usize>) -> (String, Range<usize>) {
    let mut secrets = secret_values(line);
    secrets.extend(passwords(line));
    secrets.sort_by_key(|range| range.start);
    let mut shown = String::with_capacity(line.len());
    let (mut start, mut end) = (marked.start, marked.end);
    let mut from = 0;
    for secret in secrets {
        if secret.start < from {
            continue;
        }
        shown.push_str(line.get(from..secret.start).unwrap_or_default());
        let now = shown.len()..shown.len() + MASK.len();
        shown.push_str(MASK);
        if marked.start >= secret.end {
            start = now.end + (marked.start - secret.end);
        } else if marked.start >= secret.start {
            start = now.start;
        }
        if marked.end >= secret.end {
            end = now.end + (marked.end - secret.end);
        } else if marked.end > secret.start {
            end = now.end;
        }
        from = secret.end;
    }
    shown.push_str(line.get(from..).unwrap_or_default());
    (shown, start..end.max(start))
}

/// The values of keys that name a secret, but not those that name a variable.
fn secret_values(line: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (colon, _) in line.match_indices(':') {
        let before = line.get(..colon).unwrap_or_default();
        let before = before.trim_end_matches(['"', '\'', ' ']);
        let begin = before.rfind(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')));
        let key = before
            .get(begin.map_or(0, |at| at + 1)..)
            .unwrap_or_default();
        let after = line.get(colon + 1..).unwrap_or_default();
        let value = after.trim_start();
        // "header:X-API-Key" is a value, and "a key: value" needs the space.
        let is_value = value.len() < after.len() || before.len() < colon;
        if !is_value || !is_secret(key) {
            continue;
        }
        let length = length_of_value(value);
        let said = value.get(..length).unwrap_or_default();
        let inside = said.trim_matches(['"', '\'']);
        let is_variable = inside.starts_with("${") && inside.find('}') == Some(inside.len() - 1);
        if said.is_empty() || is_variable && !inside.contains(":-") {
            continue;
        }
        let start = line.len() - value.len();
        found.push(start..start + length);
    }
    found
}

fn length_of_value(value: &str) -> usize {
    let end = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let inside = value.get(1..).unwrap_or_default();
            inside.find(quote).map(|at| at + 2)
        }
        _ => value
            .find(" #")
            .into_iter()
            .chain(value.find([',', '}']))
            .min(),
    };
    // A "}" may belong to a variable: better too much than too little.
    match value.contains("${") {
        true => value.trim_end().len(),
        false => value
            .get(..end.unwrap_or(value.len()))
            .unwrap_or(value)
            .trim_end()
            .len(),
    }
}

/// `scheme://user:password@host`: the password.
fn passwords(line: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
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

/// A text that may be an address, without its password.
pub(super) fn without_password(text: &str) -> String {
    let mut shown = text.to_owned();
    for range in passwords(text).into_iter().rev() {
        shown.replace_range(range, MASK);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_left_out_and_the_rest_stays() {
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
            ("  token: abc${TOKEN}", "  token: ***"),
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
            ("algorithm: token_bucket", "algorithm: token_bucket"),
            (
                "client: [\"api_key:X-API-Key\", ip]",
                "client: [\"api_key:X-API-Key\", ip]",
            ),
            ("api_key: abc", "api_key: ***"),
            ("api_key_sha256: 9f86d0", "api_key_sha256: 9f86d0"),
        ] {
            assert_eq!(masked(line, 0..0).0, expected, "{line}");
        }
    }

    #[test]
    fn the_mark_moves_with_the_text() {
        let line = "token: hunter2hunter2, listen: here";
        let (shown, marked) = masked(line, 31..35);
        assert_eq!(&shown[marked], "here");
        let (shown, marked) = masked(line, 7..21);
        assert_eq!(&shown[marked], "***");
    }
}
