//! The one way in: rules and a store together.

#[cfg(feature = "redis")]
mod breaker;
#[cfg(feature = "redis")]
mod denials;
#[cfg(feature = "redis")]
mod heartbeat;
mod inspection;
#[cfg(feature = "redis")]
mod instances;
#[cfg(feature = "redis")]
mod late;
mod local;
#[cfg(feature = "redis")]
mod prober;
#[cfg(feature = "redis")]
mod recent;
mod reset;
#[cfg(feature = "redis")]
mod shared;
mod together;

#[cfg(feature = "redis")]
pub use breaker::BreakerConfig;
#[cfg(feature = "redis")]
pub use instances::Instances;
pub use local::LocalLimiter;
#[cfg(feature = "redis")]
pub use shared::{SharedConfig, SharedStats};
pub use together::Joint;

use std::sync::Arc;

use crate::decision::Decision;
use crate::limit::Limit;
use crate::request::Request;
use crate::rule::{Met, Rule, RuleSet, RuleSetError};
use crate::store::{MemoryConfig, MemoryStats};
use crate::usage::Usage;

#[cfg(feature = "redis")]
use crate::{
    bucket::Bucket,
    store::{RedisStore, StoreCalls},
};
#[cfg(feature = "redis")]
use local::key_charge;
#[cfg(feature = "redis")]
use shared::SharedLimiter;
use together::Together;

/// Says whether a request may go.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{Dimension, Limiter, Request, Rule};
///
/// // Just a key and a limit:
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
/// # std::pin::pin!(example()).poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
/// ```
#[derive(Debug)]
pub struct Limiter {
    home: Home,
}

/// Where usage is kept.
#[derive(Debug)]
enum Home {
    Here(Box<LocalLimiter>),
    #[cfg(feature = "redis")]
    Shared(Box<SharedLimiter>),
}

impl Limiter {
    /// A limiter that keeps usage in this process, without rules.
    #[must_use]
    pub fn in_memory() -> Self {
        LocalLimiter::new().into()
    }

    /// A limiter that keeps usage in this process, set up as told.
    #[must_use]
    pub fn in_memory_with(config: MemoryConfig) -> Self {
        LocalLimiter::with(config).into()
    }

    /// A limiter that shares usage with other processes, without rules. It goes on when the store fails.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::store::{RedisConfig, RedisStore};
    /// use tollgate::{Limiter, SharedConfig};
    ///
    /// let store = RedisStore::open("redis://127.0.0.1:6379", RedisConfig::default())?;
    /// let limiter = Limiter::over(store, SharedConfig::default());
    /// let decision = limiter.check("client-7", &"10/s burst 50".parse()?, 1).await;
    /// println!("{:?}, by {:?}", decision.verdict(), decision.source());
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn over(store: RedisStore, config: SharedConfig) -> Self {
        Self {
            home: Home::Shared(Box::new(SharedLimiter::new(store, config))),
        }
    }

    /// Decides by these rules.
    ///
    /// # Errors
    /// When the rules do not fit together.
    pub fn with_rules(self, rules: impl IntoIterator<Item = Rule>) -> Result<Self, RuleSetError> {
        self.set_rules(RuleSet::new(rules)?);
        Ok(self)
    }

    /// Decides by these rules from now on. Each decision is by one set as a whole, the old or the new one; what was used stays used.
    ///
    /// ```
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Dimension, Limiter, Rule, RuleSet};
    ///
    /// let limiter = Limiter::in_memory();
    /// let slower = Rule::new("client", "5/s burst 10".parse()?)?.per([Dimension::Client]);
    /// limiter.set_rules(RuleSet::new([slower])?.with_generation(2));
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn set_rules(&self, rules: impl Into<Arc<RuleSet>>) {
        match &self.home {
            Home::Here(local) => local.set_rules(rules),
            #[cfg(feature = "redis")]
            Home::Shared(shared) => shared.set_rules(rules.into()),
        }
    }

    /// The rules by which it decides.
    #[must_use]
    pub fn rules(&self) -> Arc<RuleSet> {
        match &self.home {
            Home::Here(local) => local.rules(),
            #[cfg(feature = "redis")]
            Home::Shared(shared) => shared.rules().load_full(),
        }
    }

    /// Takes `cost` from the bucket of `key`, which holds `limit`. A cost of 0 looks without taking.
    ///
    /// One key is one bucket, whatever limit it is checked against: what was used stays used when the limit changes. For
    /// two limits at once, use rules, or two keys.
    pub async fn check(&self, key: impl AsRef<[u8]>, limit: &Limit, cost: u64) -> Decision {
        match &self.home {
            Home::Here(local) => local.check(key, limit, cost),
            #[cfg(feature = "redis")]
            Home::Shared(shared) => shared.check(&key_charge(key.as_ref(), limit, cost)).await,
        }
    }

    /// Takes a request's cost from the buckets of all rules it meets, or from none.
    pub async fn decide(&self, request: &Request<'_>) -> Decision {
        match &self.home {
            Home::Here(local) => local.decide(request),
            #[cfg(feature = "redis")]
            Home::Shared(shared) => {
                let rules = shared.rules().load_full();
                shared.decide(&rules.meet(request), true).await
            }
        }
    }

    /// Takes the cost of a request from all buckets it was found to [meet](RuleSet::meet), or from none: for who keeps rules
    /// together with something else that belongs to them.
    pub async fn decide_on(&self, met: &Met<'_>) -> Decision {
        match &self.home {
            Home::Here(local) => local.decide_on(met),
            #[cfg(feature = "redis")]
            Home::Shared(shared) => shared.decide(met, true).await,
        }
    }

    /// Takes the costs of several requests from all buckets that any of them meets, or from none: for what is one call and is seen from several
    /// sides, such as Envoy's descriptors. A bucket that several of them meet is charged once, with what costs most of them.
    ///
    /// `None`, and nothing is taken, if they meet more than 255 buckets.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Dimension, Limiter, Request, Rule, RuleSet};
    ///
    /// let rules = RuleSet::new([Rule::new("client", "1/h burst 2".parse()?)?.per([Dimension::Client])])?;
    /// let (small, large) = (Request::new().client("a"), Request::new().client("b").cost(3));
    /// let met = [rules.meet(&small), rules.meet(&large)];
    /// let joint = Limiter::in_memory().decide_together(&met).await.ok_or("too many buckets")?;
    /// assert!(!joint.whole.allowed());
    /// assert!(joint.each[0].allowed() && !joint.each[1].allowed());
    /// assert_eq!(joint.each[0].remaining(), Some(2), "nothing was taken");
    /// # Ok(())
    /// # }
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # assert!(matches!(std::pin::pin!(example()).poll(&mut context), std::task::Poll::Ready(Ok(()))));
    /// ```
    pub async fn decide_together(&self, all: &[Met<'_>]) -> Option<Joint> {
        let together = Together::of(all)?;
        Some(match &self.home {
            Home::Here(local) => local.take_together(&together),
            #[cfg(feature = "redis")]
            Home::Shared(shared) => shared.take_together(&together).await,
        })
    }

    /// Says what [`decide_together`](Self::decide_together) would, and takes nothing.
    pub async fn peek_together(&self, all: &[Met<'_>]) -> Option<Joint> {
        let together = Together::of(all)?;
        Some(match &self.home {
            Home::Here(local) => local.peek_together(&together),
            #[cfg(feature = "redis")]
            Home::Shared(shared) => shared.peek_together(&together).await,
        })
    }

    /// Gives back what [`decide_together`](Self::decide_together) took.
    pub async fn refund_together(&self, all: &[Met<'_>], joint: Joint) {
        let Some(together) = Together::of(all) else {
            return;
        };
        for (charge, decision) in together.charged(&joint.each) {
            let charge = std::slice::from_ref(charge);
            match &self.home {
                Home::Here(local) => local.give_back(charge, decision),
                #[cfg(feature = "redis")]
                Home::Shared(shared) => shared.give_back(charge, decision).await,
            }
        }
    }

    /// Says what [`decide`](Self::decide) would, and takes nothing.
    pub async fn peek(&self, request: &Request<'_>) -> Decision {
        match &self.home {
            Home::Here(local) => local.peek(request),
            #[cfg(feature = "redis")]
            Home::Shared(shared) => {
                let rules = shared.rules().load_full();
                shared.decide(&rules.meet(request), false).await
            }
        }
    }

    /// Says what [`decide_on`](Self::decide_on) would, and takes nothing.
    pub async fn peek_on(&self, met: &Met<'_>) -> Decision {
        match &self.home {
            Home::Here(local) => local.peek_on(met),
            #[cfg(feature = "redis")]
            Home::Shared(shared) => shared.decide(met, false).await,
        }
    }

    /// Says what was used by those whom the request names, and changes nothing: for whoever looks after a client.
    ///
    /// First comes what [`decide`](Self::decide) would meet, used or not: the rules that count for somebody the request names, and
    /// those for everybody. Over a shared store, whatever else was used of the same subjects follows: a request that names only a client
    /// shows all its routes, and what a rule counted that is not there any more. In memory keys are known by their fingerprints
    /// only, so there it is just what the request meets.
    ///
    /// What a rule counts by a client, an address, an attribute or a method that is not one of HTTP's own *behind* its subject lies elsewhere, and is shown only to a request that names it.
    /// The figures of plans are those of the request's plan.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Dimension, Limiter, Request, Rule};
    ///
    /// let limiter = Limiter::in_memory().with_rules([
    ///     Rule::new("client", "10/s burst 50".parse()?)?.per([Dimension::Client]),
    /// ])?;
    /// let request = Request::new().client("merchant_123");
    /// limiter.decide(&request.clone().cost(20)).await;
    /// for usage in limiter.inspect(&request).await? {
    ///     println!("{:?}: {:?} used, full again in {:?}", usage.rule(), usage.used(), usage.reset_after());
    ///     assert_eq!(usage.used(), Some(20));
    /// }
    /// # Ok(())
    /// # }
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # assert!(matches!(std::pin::pin!(example()).poll(&mut context), std::task::Poll::Ready(Ok(()))));
    /// ```
    ///
    /// # Errors
    /// When the store cannot be reached. It is asked also while the breaker is open, and what was remembered does not matter.
    pub async fn inspect(&self, request: &Request<'_>) -> Result<Vec<Usage>, StoreError> {
        match &self.home {
            Home::Here(local) => Ok(local.inspect(request)),
            #[cfg(feature = "redis")]
            Home::Shared(shared) => {
                let rules = shared.rules().load_full();
                (shared.inspect(&rules, request).await).map_err(StoreError::new)
            }
        }
    }

    /// [Inspects](Self::inspect) by these rules in place of its own: for who keeps rules together with something else that belongs to them.
    ///
    /// # Errors
    /// When the store cannot be reached.
    pub async fn inspect_by(
        &self,
        rules: &RuleSet,
        request: &Request<'_>,
    ) -> Result<Vec<Usage>, StoreError> {
        match &self.home {
            Home::Here(local) => Ok(local.inspect_by(rules, request)),
            #[cfg(feature = "redis")]
            Home::Shared(shared) => (shared.inspect(rules, request).await).map_err(StoreError::new),
        }
    }

    /// Gives back what a decision took, as far as it still counts: a caller who has gone frees its place. What took
    /// nothing (a denial, a peek) gives nothing back, nor does what was taken under a limit that has changed since, or by rules of
    /// another [generation](RuleSet::generation): number rules that change.
    ///
    /// In a leaky bucket those behind keep their times: after a refund, as many may go at one time as were refunded.
    pub async fn refund(&self, request: &Request<'_>, decision: Decision) {
        match &self.home {
            Home::Here(local) => local.refund(request, decision),
            #[cfg(feature = "redis")]
            Home::Shared(shared) => shared.refund(request, &decision).await,
        }
    }

    /// Gives back what [`decide_on`](Self::decide_on) took.
    pub async fn refund_on(&self, met: &Met<'_>, decision: Decision) {
        match &self.home {
            Home::Here(local) => local.refund_on(met, decision),
            #[cfg(feature = "redis")]
            Home::Shared(shared) => shared.refund_on(met, &decision).await,
        }
    }

    /// Gives back what an allowed [`check`](Self::check) took.
    pub async fn refund_key(
        &self,
        key: impl AsRef<[u8]>,
        limit: &Limit,
        cost: u64,
        decision: Decision,
    ) {
        match &self.home {
            Home::Here(local) => local.refund_key(key, limit, cost, decision),
            #[cfg(feature = "redis")]
            Home::Shared(shared) => {
                let charge = key_charge(key.as_ref(), limit, cost);
                let charges = std::slice::from_ref(&charge);
                shared.give_back(charges, &decision).await;
            }
        }
    }

    /// Forgets what was used by the callers whom the request names by client, address or attribute, and says what that was, as
    /// [`inspect`](Self::inspect) would have. Nothing is searched for.
    ///
    /// - Over a shared store: everything of theirs, on all routes, and what rules counted that are not there any more; as with
    ///   `inspect`, what is counted by a client, an address or an attribute *behind* them only if the request names that as well. Denials that this
    ///   process remembers are forgotten too, and what it counts by itself while the store fails, of the buckets that the request names. Other processes
    ///   keep to denials that they remember, for five seconds at the most.
    /// - In memory: the buckets that the request meets and that count for one of them, and those of other rules that count by nothing but what the request
    ///   says. Keys are known by their fingerprints only, so what was used on routes that the request does not name stays.
    ///
    /// What callers share with others, such as a bucket for everybody or one for a route, stays. A request that names no caller means just that: the
    /// buckets it meets that are for everybody, or for its route, its method or its plan, over a shared store with all that these used. One that
    /// says nothing at all means every bucket for everybody.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Dimension, Limiter, Request, Rule};
    ///
    /// let limiter = Limiter::in_memory().with_rules([
    ///     Rule::new("client", "10/h burst 50".parse()?)?.per([Dimension::Client]),
    ///     Rule::new("everyone", "100/h".parse()?)?,
    /// ])?;
    /// let request = Request::new().client("merchant_123");
    /// limiter.decide(&request.clone().cost(20)).await;
    /// let forgotten = limiter.reset(&request).await?;
    /// assert_eq!((forgotten.len(), forgotten[0].used()), (1, Some(20)));
    /// assert_eq!(limiter.peek(&request).await.tiers()[1].remaining(), 80, "everyone's is still used");
    /// # Ok(())
    /// # }
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # assert!(matches!(std::pin::pin!(example()).poll(&mut context), std::task::Poll::Ready(Ok(()))));
    /// ```
    ///
    /// # Errors
    /// When the store cannot be reached: then only a part may have been forgotten, or nothing. It is asked also while the breaker is open.
    pub async fn reset(&self, request: &Request<'_>) -> Result<Vec<Usage>, StoreError> {
        match &self.home {
            Home::Here(local) => Ok(local.reset(request)),
            #[cfg(feature = "redis")]
            Home::Shared(shared) => {
                let rules = shared.rules().load_full();
                (shared.reset(&rules, request).await).map_err(StoreError::new)
            }
        }
    }

    /// [Resets](Self::reset) by these rules in place of its own: for who keeps rules together with something else that belongs to them.
    ///
    /// # Errors
    /// When the store cannot be reached: then only a part may have been forgotten, or nothing.
    pub async fn reset_by(
        &self,
        rules: &RuleSet,
        request: &Request<'_>,
    ) -> Result<Vec<Usage>, StoreError> {
        match &self.home {
            Home::Here(local) => Ok(local.reset_by(rules, request)),
            #[cfg(feature = "redis")]
            Home::Shared(shared) => (shared.reset(rules, request).await).map_err(StoreError::new),
        }
    }

    /// Forgets what was used of a key.
    ///
    /// # Errors
    /// When the store cannot be reached: then nothing may have been forgotten.
    pub async fn reset_key(&self, key: impl AsRef<[u8]>) -> Result<(), StoreError> {
        match &self.home {
            Home::Here(local) => local.reset_key(key),
            #[cfg(feature = "redis")]
            Home::Shared(shared) => {
                let bucket = Bucket::of_key(key.as_ref());
                (shared.reset_bucket(&bucket).await).map_err(StoreError::new)?;
            }
        }
        Ok(())
    }

    /// What is held in this process; `None` if usage is kept elsewhere.
    #[must_use]
    pub fn stats(&self) -> Option<MemoryStats> {
        match &self.home {
            Home::Here(local) => Some(local.stats()),
            #[cfg(feature = "redis")]
            Home::Shared(_) => None,
        }
    }

    /// What happened between this process and the store it shares; `None` if it shares none.
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn shared_stats(&self) -> Option<SharedStats> {
        match &self.home {
            Home::Here(_) => None,
            Home::Shared(shared) => Some(shared.stats()),
        }
    }

    /// What calls to the store cost that it shares; `None` if it shares none.
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn store_calls(&self) -> Option<StoreCalls> {
        match &self.home {
            Home::Here(_) => None,
            Home::Shared(shared) => Some(shared.calls()),
        }
    }
}

impl Default for Limiter {
    fn default() -> Self {
        Self::in_memory()
    }
}

impl From<LocalLimiter> for Limiter {
    fn from(local: LocalLimiter) -> Self {
        Self {
            home: Home::Here(Box::new(local)),
        }
    }
}

/// The store could not do what was asked.
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
