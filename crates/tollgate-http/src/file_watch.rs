//! Notices when a file changes: the configuration, a certificate.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// How long a file must not change before its content counts. A program that writes in several steps may be stalled between them.
const SETTLE: Duration = Duration::from_millis(100);

/// A file that keeps changing is read this many times at most.
const MAX_READS: u32 = 20;

/// How long a writer that was stalled gets to finish a file whose content is faulty.
const SECOND_CHANCE: Duration = Duration::from_millis(500);

/// Reads until two reads in a row agree, so that a file that is still being written is not taken for complete.
pub async fn read_settled<T: PartialEq>(first: T, read: impl Fn() -> T) -> T {
    let mut content = first;
    for _ in 1..MAX_READS {
        tokio::time::sleep(SETTLE).await;
        let next = read();
        if next == content {
            break;
        }
        content = next;
    }
    content
}

/// Reads faulty content again after half a second, because it may be half of a file. Returns the new content if there is any.
pub async fn read_again<T: PartialEq>(faulty: &T, read: impl Fn() -> T) -> Option<T> {
    tokio::time::sleep(SECOND_CHANCE).await;
    let next = read();
    match next == *faulty {
        true => None,
        false => Some(read_settled(next, read).await),
    }
}

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
