//! The rules and the store of a configuration, for commands that look at what the running program has.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tollgate::{Instances, Limiter};
use tollgate_tower::policy::Policy;

use crate::decider;
use crate::failure::Failure;
use crate::live::{Live, LiveConfig, StartError};
use tollgate_config::{Config, StoreConfig};

/// Nobody waits for this but the one who asked.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a configuration says, and the rules wherever it has them.
pub(super) struct Setting {
    pub(super) policy: Arc<Policy>,
    pub(super) config: Arc<Config>,
}

impl Setting {
    pub(super) async fn read(file: &Path) -> Result<Self, Failure> {
        let live = LiveConfig {
            keep_cache: false,
            ..LiveConfig::of(file)
        };
        let (live, config) = Live::start(live).await.map_err(failure)?;
        let policy = Arc::clone(&live.policy());
        if live.stats().from_cache {
            let said =
                "the database is of no use now: these are the last good rules, from the cache";
            writeln!(io::stderr(), "warning: {said}")?;
        }
        Ok(Self { policy, config })
    }

    /// A limiter over the store that is shared, if there is one. It waits longer than a request would, and is not counted among those that
    /// share the limits.
    pub(super) fn limiter(&self) -> Result<Option<Limiter>, Failure> {
        let StoreConfig::Redis(redis) = &self.config.store else {
            return Ok(None);
        };
        let mut patient = redis.clone();
        patient.config.deadline = patient.config.deadline.max(PATIENCE);
        patient.shared.instances = Instances::Fixed(1);
        let limiter = decider::limiter(&StoreConfig::Redis(patient));
        (limiter.map(Some)).map_err(|error| Failure::BadInput(error.to_string()))
    }
}

fn failure(error: StartError) -> Failure {
    match error {
        StartError::Wrong(problems) => Failure::BadInput(problems),
        other => Failure::Unavailable(other.to_string()),
    }
}
