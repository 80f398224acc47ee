//! The id of a request, by which it is found in the logs of every server on its way.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::header::HeaderValue;
use siphasher::sip128::SipHasher13;

/// Makes ids that are unique and cannot be guessed from others: a keyed hash of a counter, with a random key.
#[derive(Debug)]
pub(super) struct RequestIds {
    key: SipHasher13,
    next: AtomicU64,
}

impl RequestIds {
    pub(super) fn new() -> Self {
        // The only access to the system's randomness in the standard library.
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
        // Hexadecimal digits are valid in a header.
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_unique_across_workers() {
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
}
