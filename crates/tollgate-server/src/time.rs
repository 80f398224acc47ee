//! Times and durations as figures and as text.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// Microseconds since 1970, as databases store times.
pub(crate) fn unix_micros(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// A time in UTC: `2026-11-15T18:04:05.000250Z`.
pub(crate) fn utc(at_us: i64) -> String {
    let at = Timestamp::from_microsecond(at_us).unwrap_or(Timestamp::MAX);
    format!("{at:.6}")
}

/// A time in UTC to the second, for tables: `2026-11-15 18:04:05`.
pub(crate) fn utc_second(at_us: i64) -> String {
    let text = utc(at_us).replace('T', " ");
    text.split('.').next().unwrap_or_default().to_owned()
}

/// Milliseconds, rounded up, because a client that waits that long must have waited long enough.
pub(crate) fn ceil_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (951_868_799, "2000-02-29T23:59:59.000000Z"),
            (1_078_012_800, "2004-02-29T00:00:00.000000Z"),
            (1_767_225_599, "2025-12-31T23:59:59.000000Z"),
            (1_800_000_000, "2027-01-15T08:00:00.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
            (-1, "1969-12-31T23:59:59.000000Z"),
        ] {
            assert_eq!(utc(seconds * 1_000_000), text);
        }
        assert_eq!(utc(1), "1970-01-01T00:00:00.000001Z");
    }

    #[test]
    fn times_in_tables_are_whole_seconds() {
        assert_eq!(utc_second(1_800_000_000_999_999), "2027-01-15 08:00:00");
    }
}
