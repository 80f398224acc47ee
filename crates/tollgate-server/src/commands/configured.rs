//! The rules and the store of a configuration, for commands that report what the running program has.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tollgate::{Instances, Limiter};
use tollgate_config::{Config, StoreConfig};
use tollgate_tower::policy::Policy;

use crate::decider;
use crate::failure::Failure;
use crate::live::{Live, LiveConfig};

/// A command can wait longer for the store than a request.
const DEADLINE: Duration = Duration::from_secs(2);

/// A configuration, and its rules from the file or the database.
pub(super) struct Configured {
    pub(super) policy: Arc<Policy>,
    pub(super) config: Arc<Config>,
}

impl Configured {
    pub(super) async fn read(file: &Path) -> Result<Self, Failure> {
        let live = LiveConfig {
            writes_cache: false,
            ..LiveConfig::of(file)
        };
        let started = Live::start(live).await;
        let (live, config) = started.map_err(|error| error.into_failure(file))?;
        let policy = Arc::clone(&live.policy());
        if live.stats().from_cache {
            let warning =
                "the database is unavailable; these are its last valid rules, from the cache";
            writeln!(io::stderr(), "warning: {warning}")?;
        }
        Ok(Self { policy, config })
    }

    /// A limiter over Redis, if that is the store. It is not counted among the instances that share the limits.
    pub(super) fn limiter(&self) -> Result<Option<Limiter>, Failure> {
        let StoreConfig::Redis(redis) = &self.config.store else {
            return Ok(None);
        };
        let mut redis = redis.clone();
        redis.config.deadline = redis.config.deadline.max(DEADLINE);
        redis.shared.instances = Instances::Fixed(1);
        let limiter = decider::limiter(&StoreConfig::Redis(redis));
        (limiter.map(Some)).map_err(|error| Failure::BadInput(error.to_string()))
    }
}
