//! The database of the rules, as the reloader follows it, and its cache.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use tollgate_config::DatabaseSettings;

use crate::database::{Database, DatabaseError, Loaded, Watch, WatchStats};

pub(super) struct RulesDatabase {
    settings: DatabaseSettings,
    writes_cache: bool,
    counts: Arc<Mutex<WatchStats>>,
    /// `None` until the database was available.
    open: Option<(Database, Watch)>,
    /// Whether a change could not be read yet.
    pub(super) is_behind: bool,
    /// The content in force.
    pub(super) in_force: Loaded,
    /// Newer content that is invalid together with the file in force. It may be valid with the next file.
    pub(super) pending: Option<Loaded>,
}

impl RulesDatabase {
    pub(super) fn new(
        settings: DatabaseSettings,
        writes_cache: bool,
        counts: Arc<Mutex<WatchStats>>,
    ) -> Self {
        Self {
            settings,
            writes_cache,
            counts,
            open: None,
            is_behind: false,
            in_force: Loaded::default(),
            pending: None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Reads the content. Opens the database first, if it has not been available yet.
    pub(super) async fn load(&mut self) -> Result<Loaded, DatabaseError> {
        let scope = self.settings.scope.as_str();
        if let Some((database, _)) = &self.open {
            return database.load(scope).await;
        }
        let database = Database::open_existing(self.settings.url.expose()).await?;
        let loaded = database.load(scope).await?;
        let (watch, counts) = (self.settings.watch, Arc::clone(&self.counts));
        let watch = database.watch(loaded.generation_number, watch, counts);
        self.open = Some((database, watch));
        Ok(loaded)
    }

    /// Closes the database, so that it is opened and read again.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Waits for a change.
    pub(super) async fn changed(&mut self) {
        match &mut self.open {
            Some((_, watch)) => drop(watch.changed().await),
            None => std::future::pending().await,
        }
    }

    /// Reads the cache, if one is configured.
    pub(super) fn read_cache(&self) -> Option<Result<Loaded, String>> {
        let file = self.settings.cache.as_ref()?;
        let loaded = read(file, self.settings.scope.as_str());
        Some(loaded.map_err(|why| format!("the cache {} {why}", file.display())))
    }

    /// Writes the content in force to the cache.
    pub(super) async fn write_cache(&self) {
        let Some(file) = self.settings.cache.clone().filter(|_| self.writes_cache) else {
            return;
        };
        let (scope, loaded) = (self.settings.scope, self.in_force.clone());
        let writing =
            tokio::task::spawn_blocking(move || (write(&file, scope.as_str(), &loaded), file));
        if let Ok((Err(error), file)) = writing.await {
            tracing::warn!(%error, "cannot write the rules to the cache {}", file.display());
        }
    }
}

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
fn read(file: &Path, scope: &str) -> Result<Loaded, String> {
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
fn write(file: &Path, scope: &str, loaded: &Loaded) -> io::Result<()> {
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
