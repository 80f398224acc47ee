//! Waiting for events with a timeout.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// How long to wait for what must happen. Never reached when all is well, also on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until a condition holds.
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    until_value(what, holds, |holds| *holds);
}

/// Waits until a value is as expected, and returns it.
pub fn until_value<T: Debug>(
    what: &str,
    mut look: impl FnMut() -> T,
    is_expected: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let value = look();
        if is_expected(&value) {
            return value;
        }
        assert!(
            Instant::now() < deadline,
            "timed out waiting for {what}: {value:?}"
        );
        std::thread::sleep(PAUSE);
    }
}

/// Waits until a condition holds, without blocking other tasks.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(PAUSE).await;
        }
    };
    let in_time = tokio::time::timeout(TIMEOUT, waiting).await;
    assert!(in_time.is_ok(), "timed out waiting for {what}");
}
