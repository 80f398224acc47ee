//! Files that are whole or not there: written under another name first, and renamed when complete.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A file that could not be written.
#[derive(Debug)]
pub(super) struct WriteError {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write {}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for WriteError {}

/// Writes all of these, or says which could not be. Directories are created.
pub(super) fn write_all(files: &[(&Path, &[u8])]) -> Result<(), WriteError> {
    // All are written before the first is renamed: a full disk leaves none of them.
    let drafts: Vec<Draft<'_>> = files
        .iter()
        .map(|(path, content)| Draft::of(path, content))
        .collect::<Result<_, _>>()?;
    drafts.into_iter().try_for_each(Draft::publish)
}

/// A file under its temporary name, which goes away unless it is published.
struct Draft<'a> {
    path: &'a Path,
    draft: PathBuf,
}

impl<'a> Draft<'a> {
    fn of(path: &'a Path, content: &[u8]) -> Result<Self, WriteError> {
        let failed = |error| WriteError {
            path: path.to_owned(),
            error,
        };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}.tmp", std::process::id()));
        let draft = Self {
            path,
            draft: path.with_file_name(name),
        };
        fs::write(&draft.draft, content).map_err(failed)?;
        Ok(draft)
    }

    fn publish(self) -> Result<(), WriteError> {
        fs::rename(&self.draft, self.path).map_err(|error| WriteError {
            path: self.path.to_owned(),
            error,
        })
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // After the rename there is nothing left to remove.
        let _ = fs::remove_file(&self.draft);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_created_and_nothing_else_is_left() {
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
        assert!(error.to_string().contains("file/below"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
