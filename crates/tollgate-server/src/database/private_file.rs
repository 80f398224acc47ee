//! A SQLite file that only its owner can read.
//!
//! It holds hashes of API keys, and who was denied what. SQLite gives its files for the log and for shared memory the
//! mode of the database.

use std::fs::{File, Permissions};
use std::path::Path;

/// Makes the file if it is not there. If that fails, SQLite says why when it opens it.
pub(super) fn make(file: &Path) {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    if options.open(file).is_ok() {
        return;
    }
    if let Ok(metadata) = file.metadata()
        && is_open_to_all(&metadata.permissions())
    {
        tracing::warn!(
            file = %file.display(),
            "all users of this machine can read the database: chmod 600 it, and the files beside it that begin with its name"
        );
    }
}

#[cfg(unix)]
fn is_open_to_all(permissions: &Permissions) -> bool {
    std::os::unix::fs::PermissionsExt::mode(permissions) & 0o007 != 0
}

#[cfg(not(unix))]
fn is_open_to_all(_: &Permissions) -> bool {
    false
}
