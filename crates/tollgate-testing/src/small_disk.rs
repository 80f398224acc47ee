//! A disk that is soon full.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A small file system in memory, mounted until it is dropped.
#[derive(Debug)]
pub struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// Mounts one of this size.
    #[must_use]
    pub fn of(bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("size={bytes},mode=0700");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tollgate-small-disk"])
            .arg(folder.path())
            .output()
            .unwrap();
        assert!(
            mount.status.success(),
            "a small disk cannot be mounted: run this as root, or within `unshare --user --map-root-user --mount`: {}",
            String::from_utf8_lossy(&mount.stderr)
        );
        Self { folder }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Fills it with another file, and leaves this many bytes free.
    pub fn fill_but(&self, room: u64) {
        let mut ballast = File::create(self.ballast()).unwrap();
        while ballast.write_all(&[b'#'; 4096]).is_ok() {}
        let length = ballast.metadata().unwrap().len();
        ballast.set_len(length.saturating_sub(room)).unwrap();
    }

    /// Removes the file that fills it.
    pub fn make_room(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, because files on it may still be open.
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.path())
            .status();
    }
}
