//! The date of an answer, written once a second.

use std::cell::Cell;
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

const LENGTH: usize = "Sun, 06 Nov 1994 08:49:37 GMT".len();

/// The last second of the last year that such a date can have.
const LATEST: u64 = 253_402_300_799;

thread_local! {
    /// The second that was written last, and what was written.
    static WRITTEN: Cell<(u64, [u8; LENGTH])> = const { Cell::new((u64::MAX, [0; LENGTH])) };
}

/// Writes the date of now.
pub(super) fn push(text: &mut Vec<u8>) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let second = since.map_or(0, |since| since.as_secs().min(LATEST));
    let (last, mut written) = WRITTEN
        .try_with(Cell::get)
        .unwrap_or((u64::MAX, [0; LENGTH]));
    if last != second {
        let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(second));
        // It is as long as that.
        let _ = write!(&mut written[..], "{date}");
        let _ = WRITTEN.try_with(|cell| cell.set((second, written)));
    }
    text.extend_from_slice(&written);
}
