//! `Retry-After`, and how long "after" is in whole units.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::date;
use super::sheet::Sheet;

static RETRY_AFTER: HeaderName = HeaderName::from_static("retry-after");

/// Rounded up, as who comes earlier is denied again, and never 0, which says "at once".
pub(super) fn seconds(wait: Duration) -> u64 {
    ceil_seconds(wait).max(1)
}

/// Rounded up and never 0.
pub(super) fn milliseconds(wait: Duration) -> u64 {
    let below_a_second = u64::from(wait.subsec_nanos().div_ceil(1_000_000));
    let whole_seconds = wait.as_secs().saturating_mul(1_000);
    whole_seconds.saturating_add(below_a_second).max(1)
}

pub(super) fn ceil_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// Unix time; 0 before that.
pub(super) fn unix(at: SystemTime) -> Duration {
    at.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Says the wait, unless a longer one stands there.
pub(super) fn write(wait: Duration, now: SystemTime, headers: &HeaderMap, sheet: &mut Sheet) {
    let ours = seconds(wait);
    if let Some(theirs) = headers.get(&RETRY_AFTER) {
        let theirs = waits(theirs, now);
        if theirs.is_none_or(|theirs| theirs >= ours) {
            return;
        }
    }
    sheet.set(&RETRY_AFTER, ours);
}

/// How many seconds somebody else says; `None` if that cannot be read.
fn waits(value: &HeaderValue, now: SystemTime) -> Option<u64> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(seconds);
    }
    let at = Duration::from_secs(date::unix_seconds(text)?);
    Some(ceil_seconds(at.saturating_sub(unix(now))))
}
