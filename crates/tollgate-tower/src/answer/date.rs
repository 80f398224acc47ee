//! Dates as HTTP writes them. Only the one form that may be written today; the two of the last century are not read.

/// Unix time of `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn unix_seconds(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once(", ")?;
    let rest = rest.strip_suffix(" GMT")?;
    let mut parts = rest.split(' ');
    let (day, month, year, time) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let day: u64 = digits(day, 2)?;
    let year: u64 = digits(year, 4)?;
    let names = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = (0u64..12).find(|m| {
        let start = usize::try_from(*m).unwrap_or(0) * 3;
        names.get(start..start + 3) == Some(month)
    })?;
    let mut time = time.split(':');
    let (hour, minute, second) = (time.next()?, time.next()?, time.next()?);
    let (hour, minute, second) = (digits(hour, 2)?, digits(minute, 2)?, digits(second, 2)?);
    let in_range = (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if parts.next().is_some() || time.next().is_some() || year < 1970 || !in_range {
        return None;
    }
    let days = days_before_year(year) + DAYS_BEFORE_MONTH.get(usize::try_from(month).ok()?)?;
    let leap_day = u64::from(month > 1 && is_leap(year));
    let days = days + leap_day + day - 1;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

const DAYS_BEFORE_MONTH: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Since 1970.
fn days_before_year(year: u64) -> u64 {
    let leaps = |until: u64| until / 4 - until / 100 + until / 400;
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969)
}

fn digits(text: &str, len: usize) -> Option<u64> {
    let is_number = text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::unix_seconds;

    #[test]
    fn dates_are_read_to_the_second() {
        let known = [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Tue, 29 Feb 2000 23:59:59 GMT", 951_868_799),
            ("Wed, 01 Mar 2000 00:00:00 GMT", 951_868_800),
            ("Tue, 14 Nov 2023 22:13:20 GMT", 1_700_000_000),
            ("Mon, 01 Mar 2100 00:00:00 GMT", 4_107_542_400),
        ];
        for (text, seconds) in known {
            assert_eq!(unix_seconds(text), Some(seconds), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_is_not_read() {
        for text in [
            "",
            "soon",
            "-1",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nob 1994 08:49:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37:00 GMT",
        ] {
            assert_eq!(unix_seconds(text), None, "{text}");
        }
    }
}
