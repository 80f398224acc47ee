//! The files of a chart, which are complete or absent.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// The files of a chart.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ChartPaths {
    pub(super) svg: PathBuf,
    pub(super) png: PathBuf,
}

impl ChartPaths {
    /// The files for `--out`: a directory, or a path with or without an extension.
    pub(super) fn new(out: Option<&Path>, name: &str) -> Self {
        let default = format!("simulation-{name}");
        let path = match out {
            None => PathBuf::from(default),
            Some(path) if path.is_dir() || path.as_os_str().to_string_lossy().ends_with('/') => {
                path.join(default)
            }
            Some(path) => path.to_owned(),
        };
        let stem = match path.extension() {
            Some(extension) if extension == "svg" || extension == "png" => path.with_extension(""),
            _ => path,
        };
        // Not `with_extension`: "v1.2" is a name, not a file with the extension "2".
        let with = |extension: &str| {
            let mut path = stem.clone().into_os_string();
            path.push(extension);
            PathBuf::from(path)
        };
        Self {
            svg: with(".svg"),
            png: with(".png"),
        }
    }
}

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

    #[test]
    fn charts_are_written_where_out_points() {
        let paths = |out: Option<&str>| {
            let ChartPaths { svg, png } = ChartPaths::new(out.map(Path::new), "surge");
            (svg.display().to_string(), png.display().to_string())
        };
        let pair = |stem: &str| (format!("{stem}.svg"), format!("{stem}.png"));
        assert_eq!(paths(None), pair("simulation-surge"));
        assert_eq!(paths(Some("a/b")), pair("a/b"));
        assert_eq!(paths(Some("a/b.png")), pair("a/b"));
        assert_eq!(paths(Some("a/v1.2")), pair("a/v1.2"));
        assert_eq!(paths(Some("new/")), pair("new/simulation-surge"));
        assert_eq!(paths(Some("/")), pair("/simulation-surge"));
    }
}
