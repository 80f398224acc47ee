//! How a limiter is made.

use std::fmt;
use std::sync::Arc;

use super::{Limiter, LocalLimiter};
use crate::rule::RuleSet;
use crate::store::{AnyStore, Store};

#[cfg(feature = "redis")]
use {
    super::shared::SharedLimiter,
    super::{Backend, BreakerConfig, Instances, SharedConfig},
    crate::store::RedisStore,
};

/// Builds a [`Limiter`] over a store: see [`Limiter::builder`].
///
/// ```
/// use tollgate::store::MemoryStore;
/// use tollgate::{Limiter, Rule, RuleSet};
///
/// let rules = RuleSet::new([Rule::new("everyone", "5000/s".parse()?)?])?;
/// let limiter = Limiter::builder(MemoryStore::new()).rules(rules).build();
/// assert_eq!(limiter.rules().rules().count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a limiter is there when it is built"]
pub struct LimiterBuilder<S> {
    store: S,
    rules: Option<Arc<RuleSet>>,
    #[cfg(feature = "redis")]
    shared: SharedConfig,
}

impl<S: Store> LimiterBuilder<S> {
    pub(super) fn new(store: S) -> Self {
        Self {
            store,
            rules: None,
            #[cfg(feature = "redis")]
            shared: SharedConfig::default(),
        }
    }

    /// Decides by these rules.
    pub fn rules(mut self, rules: impl Into<Arc<RuleSet>>) -> Self {
        self.rules = Some(rules.into());
        self
    }

    /// Makes the limiter. Over a shared store, connecting begins when it is first needed.
    #[must_use]
    pub fn build(self) -> Limiter {
        let limiter: Limiter = match self.store.into_any() {
            AnyStore::Memory(store) => LocalLimiter::with_store(*store).into(),
            #[cfg(feature = "redis")]
            AnyStore::Redis(store) => {
                Backend::Shared(Arc::new(SharedLimiter::new(store, self.shared))).into()
            }
        };
        if let Some(rules) = self.rules {
            limiter.set_rules(rules);
        }
        limiter
    }
}

#[cfg(feature = "redis")]
impl LimiterBuilder<RedisStore> {
    /// Sets how many processes share the limits: without the store, each enforces its share.
    pub fn instances(mut self, instances: Instances) -> Self {
        self.shared.instances = instances;
        self
    }

    /// Sets when a store that fails is no longer asked.
    pub fn breaker(mut self, breaker: BreakerConfig) -> Self {
        self.shared.breaker = breaker;
        self
    }

    /// Sets how many denials are remembered: 100,000 by default, 0 for none.
    pub fn remembered_denials(mut self, denials: usize) -> Self {
        self.shared.remembered_denials = denials;
        self
    }

    /// Sets all of these together.
    pub fn shared(mut self, config: SharedConfig) -> Self {
        self.shared = config;
        self
    }
}

impl<S: fmt::Debug> fmt::Debug for LimiterBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterBuilder")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
