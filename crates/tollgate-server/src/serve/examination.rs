//! Looks once, when the program starts, whether the store would break promises, and says so in the log.

use std::time::Duration;

use tollgate::store::RedisStore;

use tollgate_config::StoreConfig;

/// How long to wait for a server that does not answer before the next try.
const TRY_EVERY: Duration = Duration::from_secs(5);

/// Begins to look, beside everything else: nobody waits for it.
pub(super) fn begin(store: &StoreConfig) {
    let StoreConfig::Redis(redis) = store else {
        return;
    };
    // A connection of its own, which ends with it.
    if let Ok(store) = RedisStore::open(redis.url.expose(), redis.config.clone()) {
        tokio::spawn(examine(store));
    }
}

async fn examine(store: RedisStore) {
    loop {
        // That it is away is said by whoever needs it.
        if let Ok(warnings) = store.examine().await {
            for warning in warnings {
                tracing::warn!(%warning, "the store may break promises");
            }
            return;
        }
        tokio::time::sleep(TRY_EVERY).await;
    }
}
