//! Rules and a store together: the way to a decision.

#[cfg(feature = "redis")]
mod breaker;
mod builder;
mod charge_target;
mod check;
#[cfg(feature = "metrics")]
mod counters;
#[cfg(feature = "redis")]
mod denials;
#[cfg(feature = "redis")]
mod heartbeat;
mod inspection;
#[cfg(feature = "redis")]
mod instances;
mod joint;
#[cfg(feature = "redis")]
mod late;
#[cfg(feature = "tokio")]
mod line;
mod local;
#[cfg(feature = "metrics")]
mod metrics;
mod owned;
#[cfg(feature = "redis")]
mod prober;
#[cfg(feature = "redis")]
mod recent;
#[cfg(feature = "tokio")]
mod reservation;
mod reset;
#[cfg(feature = "redis")]
mod shared;
#[cfg(feature = "tokio")]
mod wait;

#[cfg(feature = "redis")]
pub use breaker::BreakerConfig;
pub use builder::LimiterBuilder;
pub use check::{Check, JointCheck};
#[cfg(feature = "redis")]
pub use instances::Instances;
pub use joint::{JointDecision, TooManyBuckets};
pub use local::LocalLimiter;
pub use owned::OwnedCheck;
#[cfg(feature = "redis")]
pub use shared::{SharedConfig, SharedStats};

use std::sync::Arc;

use crate::decision::Decision;
use crate::limit::Limit;
use crate::request::Request;
use crate::rule::{MatchedRules, Rule, RuleSet, RuleSetError};
use crate::store::{MemoryStats, Store};

#[cfg(feature = "redis")]
use crate::store::StoreCalls;
use charge_target::Subject;
#[cfg(feature = "redis")]
use shared::SharedLimiter;

/// Decides whether requests may pass.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{Dimension, Limiter, Request, Rule};
///
/// // A key and a limit:
/// let limiter = Limiter::in_memory();
/// let decision = limiter.check("client-7", &"10/s burst 50".parse()?, 1).await;
/// assert!(decision.allowed());
/// assert_eq!(decision.remaining(), Some(49));
///
/// // Or rules, all of which must have room:
/// let limiter = Limiter::in_memory().with_rules([
///     Rule::new("client", "10/s burst 50".parse()?)?.per([Dimension::Client]),
///     Rule::new("everyone", "5000/s".parse()?)?,
/// ])?;
/// let decision = limiter.decide(&Request::new().client("merchant_123")).await;
/// if let Err(denied) = decision.into_result() {
///     println!("{denied}");
/// }
/// # Ok(())
/// # }
/// ```
///
/// [`check`](Self::check) and [`decide`](Self::decide) are the short forms of a [`Check`], which can also
/// [look](Check::<Limiter>::peek), [wait](Check::<Limiter>::until_ready), [give back](Check::<Limiter>::refund),
/// [inspect](Check::<Limiter>::inspect) and [reset](Check::<Limiter>::reset):
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tollgate::Limiter;
/// let (limiter, limit) = (Limiter::in_memory(), "10/min".parse()?);
/// let check = limiter.key("client-7", &limit).cost(3);
/// let decision = check.decide().await.into_result()?;
/// check.refund(decision).await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Limiter {
    backend: Backend,
    #[cfg(feature = "tokio")]
    waiters: wait::Waiters,
}

/// Where usage is kept.
#[derive(Debug)]
enum Backend {
    Memory(Box<LocalLimiter>),
    #[cfg(feature = "redis")]
    Shared(Arc<SharedLimiter>),
}

impl Limiter {
    /// A limiter over this store, without rules.
    ///
    /// Over a [`RedisStore`](crate::store::RedisStore), limits are shared with all other processes on the same Redis, and stay
    /// enforced while it is down: see [`SharedConfig`].
    ///
    /// ```
    /// use tollgate::Limiter;
    /// use tollgate::store::{MemoryConfig, MemoryStore, RedisConfig, RedisStore};
    ///
    /// let small = MemoryConfig::default().max_keys(10_000);
    /// let in_memory = Limiter::new(MemoryStore::with_config(small));
    ///
    /// let store = RedisStore::open("redis://127.0.0.1:6379", RedisConfig::default())?;
    /// let over_redis = Limiter::new(store);
    /// # let _ = (in_memory, over_redis);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(store: impl Store) -> Self {
        Self::builder(store).build()
    }

    /// A limiter that keeps usage in this process, without rules: short for `Limiter::new(MemoryStore::new())`.
    #[must_use]
    pub fn in_memory() -> Self {
        LocalLimiter::new().into()
    }

    /// Starts to build a limiter over this store.
    ///
    /// ```
    /// use tollgate::store::{RedisConfig, RedisStore};
    /// use tollgate::{BreakerConfig, Instances, Limiter, RuleSet};
    ///
    /// let store = RedisStore::open("redis://127.0.0.1:6379", RedisConfig::default())?;
    /// let limiter = Limiter::builder(store)
    ///     .rules(RuleSet::default())
    ///     .instances(Instances::counted())
    ///     .breaker(BreakerConfig::default())
    ///     .remembered_denials(10_000)
    ///     .build();
    /// # let _ = limiter;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder<S: Store>(store: S) -> LimiterBuilder<S> {
        LimiterBuilder::new(store)
    }

    /// Decides by these rules.
    ///
    /// # Errors
    /// When the rules do not form a [`RuleSet`].
    pub fn with_rules(self, rules: impl IntoIterator<Item = Rule>) -> Result<Self, RuleSetError> {
        self.set_rules(RuleSet::new(rules)?);
        Ok(self)
    }

    /// Decides by these rules from now on. Each decision is by one set as a whole, the old or the new one; usage carries over.
    ///
    /// ```
    /// use tollgate::{Dimension, Limiter, Rule, RuleSet};
    ///
    /// let limiter = Limiter::in_memory();
    /// let slower = Rule::new("client", "5/s burst 10".parse()?)?.per([Dimension::Client]);
    /// limiter.set_rules(RuleSet::new([slower])?.with_generation(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_rules(&self, rules: impl Into<Arc<RuleSet>>) {
        match &self.backend {
            Backend::Memory(local) => local.set_rules(rules),
            #[cfg(feature = "redis")]
            Backend::Shared(shared) => shared.set_rules(rules.into()),
        }
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> Arc<RuleSet> {
        match &self.backend {
            Backend::Memory(local) => local.rules(),
            #[cfg(feature = "redis")]
            Backend::Shared(shared) => shared.rules().load_full(),
        }
    }

    /// Charges `cost` to the bucket of `key`, which has this limit. A cost of 0 looks without charging.
    ///
    /// A key has one bucket, whatever limit it is checked against: usage carries over when the limit changes. For two limits at once,
    /// use rules, or two keys.
    ///
    /// # Cancel safety
    /// As [`Check::decide`](Check::<Limiter>::decide).
    pub async fn check(&self, key: impl AsRef<[u8]>, limit: &Limit, cost: u64) -> Decision {
        match &self.backend {
            Backend::Memory(local) => local.check(key, limit, cost),
            #[cfg(feature = "redis")]
            Backend::Shared(_) => self.key(key.as_ref(), limit).cost(cost).decide().await,
        }
    }

    /// Charges what a request costs to the buckets of all rules that apply to it, or to none.
    ///
    /// # Cancel safety
    /// As [`Check::decide`](Check::<Limiter>::decide).
    pub async fn decide(&self, request: &Request<'_>) -> Decision {
        match &self.backend {
            Backend::Memory(local) => local.decide(request),
            #[cfg(feature = "redis")]
            Backend::Shared(_) => self.request(request).decide().await,
        }
    }

    /// A check of a request, by the limiter's own rules.
    pub fn request<'a>(&'a self, request: &'a Request<'_>) -> Check<'a, Self> {
        Check::new(self, Subject::Request(request))
    }

    /// A check of a request whose rules were [matched](RuleSet::matching) before: for those who keep rules together with something
    /// else, such as clients.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Dimension, Limiter, Request, Rule, RuleSet};
    ///
    /// let rules = RuleSet::new([Rule::new("client", "10/h".parse()?)?.per([Dimension::Client])])?;
    /// let request = Request::new().client("merchant_123");
    /// let matched = rules.matching(&request);
    /// let limiter = Limiter::in_memory();
    /// assert_eq!(limiter.matched(&matched).decide().await.remaining(), Some(9));
    /// # Ok(())
    /// # }
    /// ```
    pub fn matched<'a>(&'a self, matched: &'a MatchedRules<'_>) -> Check<'a, Self> {
        Check::new(self, Subject::Matched(matched.view()))
    }

    /// A check of a key against a limit. It costs 1 unless a [cost](Check::cost) is set.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::Limiter;
    ///
    /// let (limiter, limit) = (Limiter::in_memory(), "10/h".parse()?);
    /// limiter.key("client-7", &limit).cost(4).decide().await.into_result()?;
    /// limiter.key("client-7", &limit).reset().await?;
    /// assert_eq!(limiter.key("client-7", &limit).peek().await.remaining(), Some(10));
    /// # Ok(())
    /// # }
    /// ```
    pub fn key<'a, K: AsRef<[u8]> + ?Sized>(
        &'a self,
        key: &'a K,
        limit: &'a Limit,
    ) -> Check<'a, Self> {
        let key = key.as_ref();
        Check::new(self, Subject::Key { key, limit })
    }

    /// A check of several requests that pass together or not at all: for one call that is described from several sides, such as by
    /// Envoy's descriptors, or one that concerns several clients. A bucket that several of them have is charged once, with the highest
    /// cost of them.
    ///
    /// # Errors
    /// When they have more than 255 buckets.
    pub fn all_of<'a>(
        &'a self,
        all: &'a [MatchedRules<'_>],
    ) -> Result<JointCheck<'a, Self>, TooManyBuckets> {
        JointCheck::new(self, all)
    }

    /// What the store in this process holds; `None` over a shared store.
    #[must_use]
    pub fn memory_stats(&self) -> Option<MemoryStats> {
        match &self.backend {
            Backend::Memory(local) => Some(local.memory_stats()),
            #[cfg(feature = "redis")]
            Backend::Shared(_) => None,
        }
    }

    /// What happened between this process and its shared store; `None` in memory.
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn shared_stats(&self) -> Option<SharedStats> {
        match &self.backend {
            Backend::Memory(_) => None,
            Backend::Shared(shared) => Some(shared.stats()),
        }
    }

    /// How long calls to the shared store took, and how many checks they carried; `None` in memory.
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn store_calls(&self) -> Option<StoreCalls> {
        match &self.backend {
            Backend::Memory(_) => None,
            Backend::Shared(shared) => Some(shared.calls()),
        }
    }
}

impl Default for Limiter {
    fn default() -> Self {
        Self::in_memory()
    }
}

impl From<Backend> for Limiter {
    fn from(backend: Backend) -> Self {
        Self {
            backend,
            #[cfg(feature = "tokio")]
            waiters: wait::Waiters::default(),
        }
    }
}

impl From<LocalLimiter> for Limiter {
    fn from(local: LocalLimiter) -> Self {
        Backend::Memory(Box::new(local)).into()
    }
}

/// Why the store could not do what was asked. Its text is the store's own.
///
/// ```no_run
/// # async fn example(limiter: tollgate::Limiter) {
/// let request = tollgate::Request::new().client("merchant_123");
/// match limiter.request(&request).inspect().await {
///     Ok(usages) => println!("{usages:?}"),
///     Err(error) => eprintln!("usage is not known: {error}"),
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct StoreError(Box<str>);

impl StoreError {
    #[cfg(feature = "redis")]
    fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string().into())
    }
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StoreError {}
