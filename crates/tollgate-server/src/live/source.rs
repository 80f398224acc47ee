//! What a policy is made of: the file's part and the database's, and the cache for when that is away.

use std::sync::Arc;

use tollgate_tower::policy::Policy;

use super::cache;
use crate::database::{Database, DatabaseError, Loaded, Watch};
use tollgate_config::Config;
use tollgate_config::document::Node;

/// Where rules come from, for the log and for problems.
pub(super) const FROM_DATABASE: &str = "the database";

pub(super) async fn open(config: &Config) -> Result<(Database, Loaded), DatabaseError> {
    let Some(settings) = &config.database else {
        return Err(DatabaseError::Url {
            database: "none".to_owned(),
            why: "no database is configured".to_owned(),
        });
    };
    let database = Database::open_existing(settings.url.expose()).await?;
    let loaded = database.load(settings.scope.as_str()).await?;
    Ok((database, loaded))
}

pub(super) fn watch(config: &Config, database: &Database, known: i64) -> Watch {
    let watch = config.database.as_ref().map(|settings| settings.watch);
    database.watch(known, watch.unwrap_or_default())
}

pub(super) async fn keep(config: &Config, loaded: &Loaded) {
    let Some(settings) = &config.database else {
        return;
    };
    let Some(file) = settings.cache.clone() else {
        return;
    };
    let (scope, loaded) = (settings.scope, loaded.clone());
    let written =
        tokio::task::spawn_blocking(move || (cache::write(&file, scope.as_str(), &loaded), file));
    if let Ok((Err(error), file)) = written.await {
        tracing::warn!(%error, "cannot keep the rules in the cache {}", file.display());
    }
}

/// Makes a policy of what the file and the database say, apart from those who decide meanwhile.
pub(super) async fn compile(
    config: &Arc<Config>,
    loaded: Option<&Loaded>,
) -> Result<Policy, String> {
    let (config, loaded) = (Arc::clone(config), loaded.cloned());
    let compiled = tokio::task::spawn_blocking(move || {
        let Some(loaded) = loaded else {
            return Ok(config.policy.policy());
        };
        let [rules, clients] = [&loaded.rules, &loaded.clients]
            .map(|documents| documents.iter().map(Node::from_json).collect::<Vec<_>>());
        match config.policy.with_documents(&rules, &clients) {
            Ok(policy) => Ok(policy.policy()),
            Err(problems) => Err(problems.render(FROM_DATABASE, "")),
        }
    });
    match compiled.await {
        Ok(compiled) => compiled,
        Err(error) => Err(format!("the rules could not be compiled: {error}")),
    }
}
