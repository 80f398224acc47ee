//! The name of a request, by which it is found in the logs of everybody it came by.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use siphasher::sip128::SipHasher13;

/// The field that carries it, in requests and in answers.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const LONGEST: usize = 64;

/// Makes names that nobody else makes, and that cannot be guessed from others: a keyed hash of a counter. The key is drawn at the start.
#[derive(Debug)]
pub(super) struct RequestIds {
    key: SipHasher13,
    next: AtomicU64,
}

impl RequestIds {
    pub(super) fn new() -> Self {
        // The system's randomness, by the one way that the standard library has to it.
        let word = || RandomState::new().hash_one(0_u64);
        Self {
            key: SipHasher13::new_with_keys(word(), word()),
            next: AtomicU64::new(0),
        }
    }

    pub(super) fn make(&self) -> HeaderValue {
        let nth = self.next.fetch_add(1, Relaxed);
        let hash = self.key.hash(&nth.to_le_bytes());
        let mut text = [0; 32];
        let (first, second) = text.split_at_mut(16);
        first.copy_from_slice(&hex(hash.h1));
        second.copy_from_slice(&hex(hash.h2));
        // It is made of what may stand there.
        HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("0"))
    }
}

/// The sixteen digits of a number, all at once: each half byte of it becomes a byte, and each of those a digit.
fn hex(number: u64) -> [u8; 16] {
    const LOW: u128 = 0x0f0f_0f0f_0f0f_0f0f_0f0f_0f0f_0f0f_0f0f;
    const ONES: u128 = 0x0101_0101_0101_0101_0101_0101_0101_0101;
    let mut spread = u128::from(number);
    spread = (spread | (spread << 32)) & 0x0000_0000_ffff_ffff_0000_0000_ffff_ffff;
    spread = (spread | (spread << 16)) & 0x0000_ffff_0000_ffff_0000_ffff_0000_ffff;
    spread = (spread | (spread << 8)) & 0x00ff_00ff_00ff_00ff_00ff_00ff_00ff_00ff;
    spread = (spread | (spread << 4)) & LOW;
    // What is above 9 carries into its upper half.
    let is_letter = ((spread + ONES * 6) >> 4) & ONES;
    let digits = spread + ONES * u128::from(b'0') + is_letter * u128::from(b'a' - b'0' - 10);
    digits.to_be_bytes()
}

/// What a request is called already, if it is called something plain. Only to be asked of requests that a trusted proxy sent.
pub(super) fn given(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut lines = headers.get_all(X_REQUEST_ID).iter();
    let id = lines.next()?;
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let bytes = id.as_bytes();
    let is_id = (1..=LONGEST).contains(&bytes.len()) && bytes.iter().all(is_plain);
    (is_id && lines.next().is_none()).then_some(id)
}

/// The same as text, for whoever repeats it to the caller.
pub(crate) fn plain_request_id(headers: &HeaderMap) -> Option<&str> {
    given(headers)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unlike_each_other_and_those_of_others() {
        let (one, other) = (RequestIds::new(), RequestIds::new());
        let all: HashSet<HeaderValue> = (0..10_000)
            .flat_map(|_| [one.make(), other.make()])
            .collect();
        assert_eq!(all.len(), 20_000);
        assert!(all.iter().all(|id| id.len() == 32));
        // Not only their ends differ.
        let beginnings: HashSet<&[u8]> = all.iter().map(|id| &id.as_bytes()[..8]).collect();
        assert!(beginnings.len() > 19_900, "{}", beginnings.len());
    }

    #[test]
    fn digits_are_those_of_the_number() {
        let mut number = 0x0123_4567_89ab_cdef_u64;
        for _ in 0..1_000 {
            assert_eq!(hex(number), format!("{number:016x}").as_bytes());
            number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number >> 29);
        }
        assert_eq!(&hex(0), b"0000000000000000");
        assert_eq!(&hex(u64::MAX), b"ffffffffffffffff");
    }

    #[test]
    fn only_plain_names_are_taken_over() {
        let with = |lines: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                let value = HeaderValue::from_bytes(line).unwrap();
                headers.append(X_REQUEST_ID, value);
            }
            given(&headers).cloned()
        };
        for plain in ["a", "7f9c-AB_c.9", &"x".repeat(64)] {
            assert_eq!(with(&[plain.as_bytes()]).unwrap(), plain);
        }
        for wrong in ["", "a b", "a\"b", "a/b", "a\tb", "a,b", &"x".repeat(65)] {
            assert_eq!(with(&[wrong.as_bytes()]), None, "{wrong}");
        }
        assert_eq!(with(&[b"caf\xc3\xa9"]), None);
        assert_eq!(with(&[b"a", b"a"]), None);
        assert_eq!(with(&[]), None);
    }
}
