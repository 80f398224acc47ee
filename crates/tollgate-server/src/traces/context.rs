//! Who asked whom: `traceparent` as the W3C has it.

use http::header::{HeaderMap, HeaderName, HeaderValue};

pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(crate) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The span of whoever asked: its ids, and nothing else of what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    pub(super) trace: u128,
    pub(super) span: u64,
}

impl Parent {
    /// What the caller says, if it can be read. Takes nothing but the ids.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(TRACEPARENT).iter();
        let line = lines.next()?.to_str().ok()?;
        if lines.next().is_some() {
            return None;
        }
        let mut parts = line.split('-');
        let version = parts.next().and_then(|text| hex(text, 2))?;
        let trace = parts.next().and_then(|text| hex(text, 32))?;
        let span = parts.next().and_then(|text| hex(text, 16))?;
        parts.next().and_then(|flags| hex(flags, 2))?;
        // Later versions may say more behind; 255 is none.
        let is_whole = version < 255 && (version > 0 || parts.next().is_none());
        let parent = Self {
            trace,
            span: u64::try_from(span).ok()?,
        };
        (is_whole && parent.trace != 0 && parent.span != 0).then_some(parent)
    }
}

/// The line that says these ids, and that the request is traced.
pub(super) fn line(trace: u128, span: u64) -> HeaderValue {
    let line = format!("00-{trace:032x}-{span:016x}-01");
    // It is made of what may stand there.
    HeaderValue::from_str(&line).unwrap_or(HeaderValue::from_static("00"))
}

/// Small letters only, as the standard has it.
fn hex(text: &str, length: usize) -> Option<u128> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_hex = text.len() == length && text.bytes().all(is_digit);
    is_hex
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Option<Parent> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(TRACEPARENT, HeaderValue::from_str(line).unwrap());
        }
        Parent::of(&headers)
    }

    #[test]
    fn only_what_is_right_is_taken_over() {
        let right = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        let parent = read(&[right]).unwrap();
        assert_eq!(parent.trace, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(parent.span, 0x00f0_67aa_0ba9_02b7);
        let said = line(parent.trace, parent.span);
        assert_eq!(said, right.replace("-00", "-01").replacen("-01", "-00", 1));
        assert_eq!(read(&[&format!("cc{}-what", &right[2..])]), Some(parent));
        for wrong in [
            "",
            "00",
            &right[..54],
            &right.to_uppercase(),
            &format!("{right}-what"),
            &format!("ff{}", &right[2..]),
            &right.replace("00f067aa0ba902b7", "0000000000000000"),
            &right.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &right.replace('4', "g"),
            &right.replace("4bf", "+bf"),
        ] {
            assert_eq!(read(&[wrong]), None, "{wrong}");
        }
        assert_eq!(read(&[right, right]), None);
        assert_eq!(read(&[]), None);
    }
}
