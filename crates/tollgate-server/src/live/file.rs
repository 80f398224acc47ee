//! A sign when a file may say something else: the configuration, a certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// Tells when the file may have changed. Its folder is watched, as editors and orchestrators put another file in its place.
pub(crate) struct FileSign {
    pub(crate) heard: Arc<Notify>,
    /// `None` where the system does not tell; then it is looked at from time to time.
    _watcher: Option<RecommendedWatcher>,
}

impl FileSign {
    pub(crate) fn of(file: &Path) -> Self {
        let heard = Arc::new(Notify::new());
        let watcher = watcher(file, Arc::clone(&heard));
        if let Err(error) = &watcher {
            tracing::warn!(%error, ?file, "changes of a file are not told by the system: looking from time to time");
        }
        Self {
            heard,
            _watcher: watcher.ok(),
        }
    }
}

fn watcher(file: &Path, heard: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Only to read it is no change; what cannot be told may be one.
        if event.is_ok_and(|event| event.kind.is_access()) {
            return;
        }
        heard.notify_one();
    })?;
    watcher.watch(&folder_of(file), RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}
