//! The database of the rules, as the reloader follows it, and its cache.

use std::sync::Arc;

use tollgate_config::DatabaseSettings;

use super::cache;
use crate::database::{Database, DatabaseError, Loaded, Watch, WatchCounts};

pub(super) struct RulesDatabase {
    settings: DatabaseSettings,
    writes_cache: bool,
    counts: Arc<WatchCounts>,
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
        counts: Arc<WatchCounts>,
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
        let watch = database.watch_with(loaded.generation_number, watch, counts);
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

    /// Reads the cache, if one is configured. If that fails, the error has its path and the reason.
    pub(super) fn read_cache(&self) -> Option<Result<Loaded, (std::path::PathBuf, String)>> {
        let file = self.settings.cache.clone()?;
        let loaded = cache::read(&file, self.settings.scope.as_str());
        Some(loaded.map_err(|why| (file, why)))
    }

    /// Writes the content in force to the cache.
    pub(super) async fn write_cache(&self) {
        let Some(file) = self.settings.cache.clone().filter(|_| self.writes_cache) else {
            return;
        };
        let (scope, loaded) = (self.settings.scope, self.in_force.clone());
        let writing = tokio::task::spawn_blocking(move || {
            (cache::write(&file, scope.as_str(), &loaded), file)
        });
        if let Ok((Err(error), file)) = writing.await {
            tracing::warn!(%error, "cannot write the rules to the cache {}", file.display());
        }
    }
}
