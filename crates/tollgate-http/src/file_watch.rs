//! Notices when a file changes: the configuration, a certificate.

use std::path::Path;
use std::sync::Arc;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// Notifies when a file may have changed. Its folder is watched, because editors and orchestrators replace files.
pub struct FileWatch {
    /// Notified when the file may have changed.
    pub changed: Arc<Notify>,
    /// `None` where the system cannot watch files; the caller has to poll as well.
    _watcher: Option<RecommendedWatcher>,
}

impl FileWatch {
    /// Watches a file.
    #[must_use]
    pub fn of(file: &Path) -> Self {
        let changed = Arc::new(Notify::new());
        let watcher = watch(file, Arc::clone(&changed));
        if let Err(error) = &watcher {
            tracing::warn!(%error, ?file, "failed to watch a file; polling it instead");
        }
        Self {
            changed,
            _watcher: watcher.ok(),
        }
    }
}

fn watch(file: &Path, changed: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading is no change; an error may hide one.
        if !event.is_ok_and(|event| event.kind.is_access()) {
            changed.notify_one();
        }
    })?;
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}
