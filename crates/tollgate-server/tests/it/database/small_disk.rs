//! A disk of its own that is soon full: a file system in memory, mounted for as long as it lives.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    pub(crate) fn of(bytes: u64) -> Self {
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

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Fills it with something else, but for this much room.
    pub(crate) fn fill_but(&self, room: u64) {
        let mut ballast = File::create(self.ballast()).unwrap();
        while ballast.write_all(&[b'#'; 4096]).is_ok() {}
        let length = ballast.metadata().unwrap().len();
        ballast.set_len(length.saturating_sub(room)).unwrap();
    }

    /// Somebody has cleaned up.
    pub(crate) fn make_room(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Whoever has a file open there may go on; the folder is free.
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.path())
            .status();
    }
}
