//! The last good rules and clients of the database, kept beside the program for a start while the database is away.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::database::Loaded;

/// Written by another version, it is of no use.
const FORM: u32 = 1;

#[derive(Deserialize, Serialize)]
struct Kept {
    form: u32,
    scope: String,
    generation_number: i64,
    rules: Vec<serde_json::Value>,
    clients: Vec<serde_json::Value>,
}

/// Reads what was kept for this scope; or says why it is of no use.
pub(super) fn read(file: &Path, scope: &str) -> Result<Loaded, String> {
    let text = fs::read(file).map_err(|error| format!("cannot be read: {error}"))?;
    let kept: Kept = serde_json::from_slice(&text)
        .map_err(|error| format!("is not what was written: {error}"))?;
    if kept.form != FORM {
        return Err("was written by another version".to_owned());
    }
    if kept.scope != scope {
        return Err("is for another scope".to_owned());
    }
    Ok(Loaded {
        generation_number: kept.generation_number,
        rules: kept.rules,
        clients: kept.clients,
    })
}

/// Keeps them, whole or not at all. Hashes of API keys are among them, so only we may read it.
pub(super) fn write(file: &Path, scope: &str, loaded: &Loaded) -> io::Result<()> {
    let kept = Kept {
        form: FORM,
        scope: scope.to_owned(),
        generation_number: loaded.generation_number,
        rules: loaded.rules.clone(),
        clients: loaded.clients.clone(),
    };
    let beside = beside(file);
    // One that an earlier run left, or that somebody put there to read along or to have us write elsewhere.
    if let Err(error) = fs::remove_file(&beside)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let write = || {
        let mut out = options.open(&beside)?;
        out.write_all(&serde_json::to_vec(&kept)?)?;
        out.sync_all()?;
        fs::rename(&beside, file)
    };
    // On a disk that is full, nothing of it may stay.
    write().inspect_err(|_| drop(fs::remove_file(&beside)))
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    name.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_file_or_link_that_somebody_put_there_is_not_written_to() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules.cache");
        let precious = folder.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        std::os::unix::fs::symlink(&precious, beside(&file)).unwrap();
        write(&file, "default", &Loaded::default()).unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert!(!fs::symlink_metadata(&file).unwrap().is_symlink());

        fs::write(beside(&file), "").unwrap();
        fs::set_permissions(beside(&file), fs::Permissions::from_mode(0o666)).unwrap();
        write(&file, "default", &Loaded::default()).unwrap();
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn what_was_kept_is_read_again_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules.cache");
        assert!(
            read(&file, "default")
                .unwrap_err()
                .contains("cannot be read")
        );
        let loaded = Loaded {
            generation_number: 7,
            rules: vec![json!({ "id": "a" })],
            clients: vec![json!({ "id": "b" })],
        };
        write(&file, "default", &loaded).unwrap();
        write(&file, "default", &loaded).unwrap();
        assert_eq!(read(&file, "default").unwrap(), loaded);
        assert!(read(&file, "other").unwrap_err().contains("another scope"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::PermissionsExt::mode(
                &fs::metadata(&file).unwrap().permissions(),
            );
            assert_eq!(mode & 0o777, 0o600);
        }
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("\"form\":1", "\"form\":2")).unwrap();
        assert!(
            read(&file, "default")
                .unwrap_err()
                .contains("another version")
        );
        fs::write(&file, &text[..text.len() / 2]).unwrap();
        assert!(
            read(&file, "default")
                .unwrap_err()
                .contains("not what was written")
        );
    }
}
