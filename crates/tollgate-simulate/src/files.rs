//! Files that are complete or absent: written under a temporary name, and renamed when complete.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Writes all of these files, and creates their directories.
///
/// # Errors
/// The file that could not be written, and why. Then none is written.
pub(super) fn write_all(files: &[(&Path, &[u8])]) -> Result<(), String> {
    let failed = |path: &Path, error| format!("cannot write {}: {error}", path.display());
    // All are written before the first is renamed, so that a full disk leaves none of them.
    let mut drafts = Vec::new();
    for (path, content) in files {
        drafts.push(Draft::write(path, content).map_err(|error| failed(path, error))?);
    }
    for ((path, _), Draft(draft)) in files.iter().zip(&drafts) {
        fs::rename(draft, path).map_err(|error| failed(path, error))?;
    }
    Ok(())
}

/// A file with a temporary name, which is removed unless it was renamed.
struct Draft(PathBuf);

impl Draft {
    fn write(path: &Path, content: &[u8]) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let name = path.file_name().unwrap_or_default().display();
        let draft = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
        let draft = Self(draft);
        fs::write(&draft.0, content)?;
        Ok(draft)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a rename there is nothing to remove.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_created_and_no_draft_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c.txt");
        write_all(&[(&path, b"content")]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"content");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn one_file_that_fails_leaves_none() {
        let dir = tempfile::tempdir().unwrap();
        let (good, blocked) = (dir.path().join("good"), dir.path().join("file/below"));
        fs::write(dir.path().join("file"), "").unwrap();
        let error = write_all(&[(&good, b"1"), (&blocked, b"2")]).unwrap_err();
        assert!(error.contains("file/below"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
