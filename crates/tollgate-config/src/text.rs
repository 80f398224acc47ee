//! Escapes text from clients so that it is safe to store and show: no control characters, no change of direction, and a
//! bounded length.

/// `1234567` as `1,234,567`.
///
/// ```
/// assert_eq!(tollgate_config::text::grouped(4_000_000_000), "4,000,000,000");
/// ```
#[must_use]
pub fn grouped(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        _ => format!("{},{:03}", grouped(n / 1_000), n % 1_000),
    }
}

/// The known word closest to a mistyped one, if one is close enough to be meant.
///
/// ```
/// use tollgate_config::text::nearest;
///
/// let known = ["rate", "burst", "on_store_failure", "id", "sliding_log"];
/// assert_eq!(nearest("slidinglog", &known), Some("sliding_log"));
/// assert_eq!(nearest("brust", &known), Some("burst"));
/// assert_eq!(nearest("onStoreFailure", &known), Some("on_store_failure"));
/// assert_eq!(nearest("ID", &known), Some("id"));
/// assert_eq!(nearest("colour", &known), None);
/// assert_eq!(nearest(&"rate".repeat(100), &known), None);
/// ```
#[must_use]
pub fn nearest<'a>(got: &str, known: &[&'a str]) -> Option<&'a str> {
    // A long word is not a misspelled known one, and comparing takes time.
    if got.len() > 64 {
        return None;
    }
    let plain = |word: &str| {
        let word = word.to_lowercase();
        word.replace(['_', '-', ' '], "")
    };
    let got = plain(got);
    let near = known
        .iter()
        .map(|word| (strsim::osa_distance(&got, &plain(word)), *word));
    near.filter(|(edits, _)| *edits <= (got.chars().count() / 3).max(1))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, word)| word)
}

/// `text` with all characters escaped that do not show as themselves, cut to `max` characters; a cut ends in `…`.
///
/// A backslash is doubled, so that an escape cannot be mistaken for text that was sent.
///
/// ```
/// assert_eq!(tollgate_config::text::escaped("a\nb\u{202e}\\", 80), r"a\nb\u{202e}\\");
/// assert_eq!(tollgate_config::text::escaped("abcdef", 4), "abc…");
/// ```
#[must_use]
pub fn escaped(text: &str, max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max));
    push_escaped(&mut out, text, max, false);
    out
}

/// Appends escaped text, at most `max` characters. In a part of a name, spaces and equal signs are escaped as well.
pub fn push_escaped(out: &mut String, text: &str, max: usize, in_name: bool) {
    let mut room = max;
    // Where to cut if the rest does not fit, so that `…` does.
    let mut cut = out.len();
    for c in text.chars() {
        let used = push_char(out, c, in_name);
        if used > room {
            out.truncate(cut);
            if max > 0 {
                out.push('…');
            }
            return;
        }
        room -= used;
        if room > 0 {
            cut = out.len();
        }
    }
}

/// Appends a character, and returns how many were appended for it.
fn push_char(out: &mut String, c: char, in_name: bool) -> usize {
    let hidden = c.is_control() || is_invisible(c) || in_name && matches!(c, ' ' | '=');
    if !hidden && c != '\\' {
        out.push(c);
        return 1;
    }
    let before = out.len();
    match c {
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c => out.extend(c.escape_unicode()),
    }
    // Escapes are ASCII.
    out.len() - before
}

/// Whether a character changes direction, joins others or has no width, so that the text does not read as it is.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_escaped() {
        for (text, expected) in [
            ("merchant_123", "merchant_123"),
            ("crème 🦀", "crème 🦀"),
            ("a\0b", "a\\u{0}b"),
            ("a\r\n\tb", "a\\r\\n\\tb"),
            ("\u{1b}[31m", "\\u{1b}[31m"),
            ("evil\u{202e}txt", "evil\\u{202e}txt"),
            ("\u{200b}\u{feff}\u{2066}", "\\u{200b}\\u{feff}\\u{2066}"),
            ("\\u{0}", "\\\\u{0}"),
            ("'; DROP TABLE rules; --", "'; DROP TABLE rules; --"),
        ] {
            assert_eq!(escaped(text, 200), expected);
        }
    }

    #[test]
    fn long_text_is_cut_between_characters_and_marked() {
        assert_eq!(escaped("abcd", 4), "abcd");
        assert_eq!(escaped("abcde", 4), "abc…");
        assert_eq!(escaped("ab\n\n", 5), "ab\\n…");
        assert_eq!(escaped("🦀🦀🦀", 2), "🦀…");
        assert_eq!(escaped("x", 0), "");
        let long = escaped(&"\0".repeat(1_000_000), 256);
        assert!(long.chars().count() <= 256 && long.ends_with('…'), "{long}");
    }

    #[test]
    fn a_value_cannot_imitate_another_part_of_a_name() {
        let mut name = String::new();
        push_escaped(&mut name, "a route=/admin", 100, true);
        assert_eq!(name, "a\\u{20}route\\u{3d}/admin");
    }
}
