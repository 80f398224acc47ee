//! From when and until when a certificate counts: the two dates in its DER form, and nothing else of it.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::calendar::utc;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Two dates, each as `YYYYMMDDhhmmss` in UTC, so that they compare as text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Validity {
    from: String,
    until: String,
}

impl Validity {
    /// Of a certificate in DER form; `None` if it is none.
    pub(super) fn of(certificate: &[u8]) -> Option<Self> {
        let (_, certificate, _) = element(certificate)?;
        let (_, mut fields, _) = element(certificate)?;
        // The version may be left out; then come number, algorithm and issuer.
        if fields.first() == Some(&VERSION) {
            (_, _, fields) = element(fields)?;
        }
        for _ in 0..3 {
            (_, _, fields) = element(fields)?;
        }
        let (tag, dates, _) = element(fields)?;
        let (from_tag, from, rest) = element(dates)?;
        let (until_tag, until, _) = element(rest)?;
        let validity = Self {
            from: date(from_tag, from)?,
            until: date(until_tag, until)?,
        };
        (tag == SEQUENCE).then_some(validity)
    }

    /// What is wrong with it at this time.
    pub(super) fn wrong_at(&self, now: SystemTime) -> Option<String> {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = utc(i64::try_from(now.as_micros()).unwrap_or(i64::MAX));
        let now: String = now.chars().filter(char::is_ascii_digit).take(14).collect();
        if self.until < now {
            return Some(format!("expired on {}", day(&self.until)));
        }
        (self.from > now).then(|| format!("does not count before {}", day(&self.from)))
    }
}

/// The tag, the contents and what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, mut rest) = rest.split_first()?;
    let mut length = usize::from(*first);
    if length >= 0x80 {
        let digits;
        (digits, rest) = rest.split_at_checked(length - 0x80)?;
        if digits.len() > 4 {
            return None;
        }
        length = (digits.iter()).fold(0, |length, digit| length << 8 | usize::from(*digit));
    }
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((*tag, contents, rest))
}

fn date(tag: u8, text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let century = match tag {
        // Two digits of a year, from 1950 to 2049.
        UTC_TIME if text < "50" => "20",
        UTC_TIME => "19",
        GENERALIZED_TIME => "",
        _ => return None,
    };
    let date = format!("{century}{text}");
    let is_date = date.len() == 14 && date.bytes().all(|byte| byte.is_ascii_digit());
    is_date.then_some(date)
}

/// `2026-11-15`.
fn day(date: &str) -> String {
    let part = |range| date.get(range).unwrap_or_default();
    format!("{}-{}-{}", part(0..4), part(4..6), part(6..8))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(from: (i32, u8, u8), until: (i32, u8, u8)) -> Vec<u8> {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from.0, from.1, from.2);
        params.not_after = date_time_ymd(until.0, until.1, until.2);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn dates_are_read_before_and_after_2050() {
        // 2027-01-15.
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        for (from, until, expected) in [
            ((1999, 1, 1), (2027, 1, 16), None),
            ((1999, 1, 1), (2027, 1, 14), Some("expired on 2027-01-14")),
            ((1951, 1, 1), (1960, 2, 3), Some("expired on 1960-02-03")),
            (
                (2027, 1, 16),
                (2060, 1, 1),
                Some("does not count before 2027-01-16"),
            ),
            ((2026, 1, 1), (2060, 1, 1), None),
        ] {
            let validity = Validity::of(&certificate(from, until)).unwrap();
            assert_eq!(validity.wrong_at(now).as_deref(), expected);
        }
    }

    #[test]
    fn whatever_is_cut_off_is_none() {
        let whole = certificate((2020, 1, 1), (2030, 1, 1));
        for end in 0..whole.len() {
            assert_eq!(Validity::of(&whole[..end]), None, "{end}");
        }
        for junk in [
            &b"\x30\x84\xff\xff\xff\xff"[..],
            b"\x30\x80",
            b"\x30\x89123456789",
        ] {
            assert_eq!(Validity::of(junk), None);
        }
    }
}
