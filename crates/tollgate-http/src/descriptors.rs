//! What happens when the process has no file descriptors left. Every connection needs one.

use std::io;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;

const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Whether an error means that this process, or the whole system, has no descriptors left.
pub(crate) fn are_exhausted(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
    exhausted.contains(&error.raw_os_error())
}

/// Logs that there are none left, at most every ten seconds.
pub(crate) fn report_exhausted(while_doing: &'static str) {
    static REPORTED: Mutex<Option<Instant>> = Mutex::new(None);
    let mut reported = REPORTED.lock();
    if reported.is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
        *reported = Some(Instant::now());
        tracing::error!(
            while_doing,
            "out of file descriptors; raise the limit (LimitNOFILE= in systemd, ulimit -n in a shell) or lower max_connections"
        );
    }
}
