//! The date of an answer, written once a second.

use std::cell::Cell;
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;
use quanta::Instant;

const LENGTH: usize = "Sun, 06 Nov 1994 08:49:37 GMT".len();

const SECOND: Duration = Duration::from_secs(1);

/// The last second of the last year that such a date can have.
const LATEST: u64 = 253_402_300_799;

thread_local! {
    /// What was written last, and when its second is over.
    static WRITTEN: Cell<[u8; LENGTH]> = const { Cell::new([0; LENGTH]) };
    static UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Writes the date of `now`.
pub(super) fn push(now: Instant, text: &mut Vec<u8>) {
    let until = UNTIL.try_with(Cell::get).ok().flatten();
    // A counter that was set back, as that of a machine that was moved may be, must not stop the clock.
    let is_kept = |until: Instant| now < until && until.duration_since(now) <= SECOND;
    let written = match until {
        Some(until) if is_kept(until) => WRITTEN.try_with(Cell::get),
        _ => Ok(write(now)),
    };
    text.extend_from_slice(&written.unwrap_or_else(|_| write(now)));
}

#[cold]
fn write(now: Instant) -> [u8; LENGTH] {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default();
    let second = Duration::from_secs(since.as_secs().min(LATEST));
    let date = HttpDate::from(UNIX_EPOCH + second);
    let mut written = [0; LENGTH];
    // It is as long as that.
    let _ = write!(&mut written[..], "{date}");
    let rest = SECOND.saturating_sub(since.saturating_sub(second));
    // A thread that ends has nothing to keep.
    let _ = WRITTEN.try_with(|kept| kept.set(written));
    let _ = UNTIL.try_with(|kept| kept.set(Some(now + rest)));
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_kept_for_its_second_and_no_longer() {
        let pushed = |now| {
            let mut text = Vec::new();
            push(now, &mut text);
            httpdate::parse_http_date(std::str::from_utf8(&text).unwrap()).unwrap()
        };
        let now = Instant::now();
        let before = SystemTime::now();
        let first = pushed(now);
        assert!(first <= SystemTime::now());
        assert!(first + Duration::from_secs(1) > before);
        // Kept, whatever the clock says now; then it is asked again.
        WRITTEN.set(*b"Sun, 06 Nov 1994 08:49:37 GMT");
        UNTIL.set(Some(now + Duration::from_secs(1)));
        assert!(pushed(now + Duration::from_millis(999)) < first);
        assert!(pushed(now + Duration::from_secs(1)) >= first);
        // Nor is it kept by a counter that was set back.
        WRITTEN.set(*b"Sun, 06 Nov 1994 08:49:37 GMT");
        UNTIL.set(Some(now + Duration::from_secs(3_600)));
        assert!(pushed(now) >= first);
    }
}
