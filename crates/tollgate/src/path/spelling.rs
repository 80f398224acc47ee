//! One spelling for all spellings of a path.

use super::{EncodedSlash, PathClass, PathError, PathRules};

/// Characters that stand for themselves in a segment. A `;` does too, and is looked for separately.
const fn stands_for_itself(byte: u8) -> bool {
    matches!(byte,
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~'
        | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b'=' | b':' | b'@')
}

/// Whether nothing needs to be done, which is so for nearly all paths.
pub(super) fn is_plain(raw: &str) -> bool {
    let bytes = raw.as_bytes();
    if bytes.first() != Some(&b'/') {
        return false;
    }
    let mut last = b'a';
    for byte in bytes {
        let is_plain = match *byte {
            b'/' => last != b'/',
            // Only at the head of a segment can a dot mean another one.
            b'.' => last != b'/',
            byte => stands_for_itself(byte),
        };
        if !is_plain {
            return false;
        }
        last = *byte;
    }
    true
}

/// The one spelling.
pub(super) fn normal(raw: &str, rules: &PathRules) -> Result<String, PathError> {
    if !raw.starts_with('/') {
        return Err(PathError::NoSlash);
    }
    let decoded = decode(raw.as_bytes(), rules)?;
    let accepts_parameters = rules.accept.contains(PathClass::Parameters);
    let mut path = String::with_capacity(decoded.len() + 1);
    let mut ends_open = true;
    for segment in decoded.split('/') {
        ends_open = false;
        match segment {
            "" | "." => ends_open = true,
            ".." => {
                path.truncate(path.rfind('/').unwrap_or(0));
                ends_open = true;
            }
            segment => {
                let at = path.len() + 1;
                if segment.starts_with(';') && !accepts_parameters {
                    return Err(PathError::NoNameBefore { at });
                }
                if hides_dots(segment, accepts_parameters) {
                    return Err(PathError::HiddenDots { at });
                }
                path.push('/');
                path.push_str(segment);
            }
        }
    }
    if ends_open {
        path.push('/');
    }
    Ok(path)
}

/// Whether a segment that is no dot segment itself has one beside an encoded slash or a semicolon.
fn hides_dots(segment: &str, accepts_parameters: bool) -> bool {
    let is_dots = |part: &str| matches!(part, "." | "..");
    match accepts_parameters {
        // `..;a` is one of the readings then; what an encoded slash separates is not.
        true => segment.contains("%2F") && segment.split("%2F").any(is_dots),
        false => (segment.split(';').flat_map(|part| part.split("%2F"))).any(is_dots),
    }
}

/// What may stand for itself does; everything else is encoded, in capitals.
pub(super) fn decode(raw: &[u8], rules: &PathRules) -> Result<String, PathError> {
    let accepts = |class| rules.accept.contains(class);
    let mut text = String::with_capacity(raw.len());
    let mut bytes = Vec::with_capacity(raw.len());
    let mut at = 0;
    // Where the last percent sign was that is meant as one.
    let mut percent_at = 0;
    while let Some(&byte) = raw.get(at) {
        let (meant, len) = match byte {
            b'%' => (
                hex_pair(raw, at + 1).ok_or(PathError::BadEncoding { at })?,
                3,
            ),
            byte => (byte, 1),
        };
        let is_encoded = len == 3;
        match meant {
            0 | b'\r' | b'\n' => return Err(PathError::Control { at }),
            0..0x20 | 0x7f if !is_encoded || !accepts(PathClass::Control) => {
                return Err(PathError::Control { at });
            }
            b'\\' if !accepts(PathClass::Backslash) => return Err(PathError::Backslash { at }),
            b'#' if !is_encoded => return Err(PathError::Fragment { at }),
            b'/' if is_encoded => match rules.encoded_slash {
                EncodedSlash::Reject => return Err(PathError::EncodedSlash { at }),
                EncodedSlash::Keep => text.push_str("%2F"),
            },
            b'/' => text.push('/'),
            b';' if !is_encoded => text.push(';'),
            byte if stands_for_itself(byte) => text.push(char::from(byte)),
            byte => push_encoded(&mut text, byte),
        }
        if meant == b'%' {
            percent_at = at;
        }
        bytes.push(meant);
        // Looked for in what is meant, as the digits may be encoded themselves.
        match encoded_still(&bytes) {
            // Servers that are written in C end there.
            Some(0) => return Err(PathError::EncodedTwice { at: percent_at }),
            Some(b'.' | b'/' | b'\\') if !accepts(PathClass::EncodedTwice) => {
                return Err(PathError::EncodedTwice { at: percent_at });
            }
            _ => {}
        }
        at += len;
    }
    let is_text = match std::str::from_utf8(&bytes) {
        Ok(_) => true,
        Err(_) => accepts(PathClass::NotUtf8) && !has_overlong(&bytes),
    };
    is_text.then_some(text).ok_or(PathError::NotUtf8)
}

/// The byte that the end of what was decoded stands for, if it is an escape itself.
fn encoded_still(decoded: &[u8]) -> Option<u8> {
    let start = decoded.len().checked_sub(3)?;
    match decoded.get(start) {
        Some(b'%') => hex_pair(decoded, start + 1),
        _ => None,
    }
}

/// Whether there is a form of a character that is longer than it needs to be: careless decoders find dots and slashes there.
fn has_overlong(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| {
        matches!(
            pair,
            [0xC0 | 0xC1 | 0xF8..=0xFD, 0x80..=0xBF] | [0xE0, 0x80..=0x9F] | [0xF0, 0x80..=0x8F]
        )
    })
}

/// The path with its plain letters, digits, dots and percent signs decoded once: what a server that decodes twice reads then.
pub(super) fn decoded_once(raw: &str) -> String {
    let (bytes, mut text, mut at) = (raw.as_bytes(), Vec::with_capacity(raw.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let meant = match byte {
            b'%' => hex_pair(bytes, at + 1),
            _ => None,
        };
        match meant {
            Some(meant) if meant.is_ascii_alphanumeric() || b".-_~%".contains(&meant) => {
                text.push(meant);
                at += 3;
            }
            _ => {
                text.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(text).unwrap_or_else(|_| raw.to_owned())
}

/// A name in a pattern, spelled as it is in a path.
pub(super) fn literal(name: &str) -> Result<String, PathError> {
    let rules = PathRules {
        encoded_slash: EncodedSlash::Keep,
        ..PathRules::default()
    };
    decode(name.as_bytes(), &rules)
}

fn hex_pair(raw: &[u8], at: usize) -> Option<u8> {
    let digit = |at: usize| char::from(*raw.get(at)?).to_digit(16);
    u8::try_from(digit(at)? << 4 | digit(at + 1)?).ok()
}

fn push_encoded(text: &mut String, byte: u8) {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    text.push('%');
    text.push(DIGITS[usize::from(byte >> 4)]);
    text.push(DIGITS[usize::from(byte & 15)]);
}

/// The form to match, if it differs: some servers leave out what comes behind a `;`, and some do not care for case.
pub(super) fn to_match(text: &str, ignore_case: bool) -> Option<Box<str>> {
    let folds = ignore_case && text.bytes().any(|byte| byte.is_ascii_uppercase());
    if !folds && !text.contains(';') {
        return None;
    }
    let mut matched = String::with_capacity(text.len());
    for segment in text.split('/') {
        let name = segment.split(';').next().unwrap_or_default();
        if !name.is_empty() {
            matched.push('/');
            matched.push_str(name);
        }
    }
    if matched.is_empty() {
        matched.push('/');
    }
    if folds {
        matched.make_ascii_lowercase();
    }
    Some(matched.into())
}
