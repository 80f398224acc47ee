//! The last valid rules and clients of the database, in a file for a start while the database is unavailable.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::database::Loaded;

/// The version of the layout.
const FORM: u32 = 1;

#[derive(Deserialize, Serialize)]
struct Cached {
    form: u32,
    scope: String,
    generation_number: i64,
    rules: Vec<serde_json::Value>,
    clients: Vec<serde_json::Value>,
}

/// Reads the cache of this scope. The error completes a sentence that begins with its path.
pub(super) fn read(file: &Path, scope: &str) -> Result<Loaded, String> {
    let text = fs::read(file).map_err(|error| format!("cannot be read: {error}"))?;
    let cached: Cached =
        serde_json::from_slice(&text).map_err(|error| format!("is damaged: {error}"))?;
    if cached.form != FORM {
        return Err("was written by another version".to_owned());
    }
    if cached.scope != scope {
        return Err("is for another scope".to_owned());
    }
    Ok(Loaded {
        generation_number: cached.generation_number,
        rules: cached.rules,
        clients: cached.clients,
    })
}

/// Replaces the cache as a whole. It has hashes of API keys, so only its owner may read it.
pub(super) fn write(file: &Path, scope: &str, loaded: &Loaded) -> io::Result<()> {
    let cached = Cached {
        form: FORM,
        scope: scope.to_owned(),
        generation_number: loaded.generation_number,
        rules: loaded.rules.clone(),
        clients: loaded.clients.clone(),
    };
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    // A new file that no other user can read or prepare; it is removed if writing fails.
    let mut out = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    out.write_all(&serde_json::to_vec(&cached)?)?;
    out.as_file().sync_all()?;
    out.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_foreign_file_or_link_is_replaced_and_not_written_to() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules.cache");
        let precious = folder.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        std::os::unix::fs::symlink(&precious, &file).unwrap();
        write(&file, "default", &Loaded::default()).unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert!(!fs::symlink_metadata(&file).unwrap().is_symlink());

        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        write(&file, "default", &Loaded::default()).unwrap();
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn only_a_valid_cache_of_the_same_scope_is_read() {
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
        assert!(read(&file, "default").unwrap_err().contains("is damaged"));
    }
}
