//! From when and until when a certificate counts.

use std::time::{SystemTime, UNIX_EPOCH};

use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

/// What is wrong with the dates of a certificate in DER form at a time; `None` if nothing is, or if it is not a certificate.
pub(super) fn wrong_at(certificate: &[u8], now: SystemTime) -> Option<String> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    let validity = certificate.validity();
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = ASN1Time::from_timestamp(i64::try_from(now).ok()?).ok()?;
    if validity.not_after < now {
        return Some(format!("expired on {}", day(validity.not_after)));
    }
    let is_early = validity.not_before > now;
    is_early.then(|| format!("is not valid before {}", day(validity.not_before)))
}

/// `2026-11-15`.
fn day(time: ASN1Time) -> String {
    time.to_datetime().date().to_string()
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
                Some("is not valid before 2027-01-16"),
            ),
            ((2026, 1, 1), (2060, 1, 1), None),
        ] {
            let wrong = wrong_at(&certificate(from, until), now);
            assert_eq!(wrong.as_deref(), expected);
        }
    }

    #[test]
    fn damaged_certificates_have_no_dates() {
        let whole = certificate((2020, 1, 1), (2030, 1, 1));
        for end in 0..whole.len() {
            assert_eq!(wrong_at(&whole[..end], UNIX_EPOCH), None, "{end}");
        }
        for junk in [
            &b"\x30\x84\xff\xff\xff\xff"[..],
            b"\x30\x80",
            b"\x30\x89123456789",
        ] {
            assert_eq!(wrong_at(junk, UNIX_EPOCH), None);
        }
    }
}
