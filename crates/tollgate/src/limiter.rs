//! The one way in: rules and a store together.

mod local;

pub use local::LocalLimiter;

use crate::decision::Decision;
use crate::limit::Limit;
use crate::request::Request;
use crate::rule::{Rule, RuleSetError};
use crate::store::{MemoryConfig, MemoryStats};

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
/// if let Some(wait) = decision.retry_after() {
///     println!("denied by {}: come back in {wait:?}", decision.tier().unwrap().rule());
/// }
/// # Ok(())
/// # }
/// # std::pin::pin!(example()).poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
/// ```
#[derive(Debug, Default)]
pub struct Limiter {
    local: LocalLimiter,
}

impl Limiter {
    /// A limiter that keeps usage in this process, without rules.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// A limiter that keeps usage in this process, set up as told.
    #[must_use]
    pub fn in_memory_with(config: MemoryConfig) -> Self {
        LocalLimiter::with(config).into()
    }

    /// Decides by these rules.
    ///
    /// # Errors
    /// When the rules do not fit together.
    pub fn with_rules(self, rules: impl IntoIterator<Item = Rule>) -> Result<Self, RuleSetError> {
        Ok(self.local.with_rules(rules)?.into())
    }

    /// Takes `cost` from the bucket of `key`, which holds `limit`. A cost of 0 looks without taking.
    ///
    /// One key is one bucket, whatever limit it is checked against: what was used stays used when the limit changes. For
    /// two limits at once, use rules, or two keys.
    pub async fn check(&self, key: impl AsRef<[u8]>, limit: &Limit, cost: u64) -> Decision {
        self.local.check(key, limit, cost)
    }

    /// Takes a request's cost from the buckets of all rules it meets, or from none.
    pub async fn decide(&self, request: &Request<'_>) -> Decision {
        self.local.decide(request)
    }

    /// Says what [`decide`](Self::decide) would, and takes nothing.
    pub async fn peek(&self, request: &Request<'_>) -> Decision {
        self.local.peek(request)
    }

    /// Gives back what a decision took, as far as it still counts: a caller who has gone frees its place. What took
    /// nothing (a denial, a peek) gives nothing back, nor does what was taken under a limit that has changed since.
    ///
    /// In a leaky bucket those behind keep their times: after a refund, as many may go at one time as were refunded.
    pub async fn refund(&self, request: &Request<'_>, decision: Decision) {
        self.local.refund(request, decision);
    }

    /// Gives back what an allowed [`check`](Self::check) took.
    pub async fn refund_key(
        &self,
        key: impl AsRef<[u8]>,
        limit: &Limit,
        cost: u64,
        decision: Decision,
    ) {
        self.local.refund_key(key, limit, cost, decision);
    }

    /// Forgets what was used in all buckets this request meets, those it shares with others included.
    pub async fn reset(&self, request: &Request<'_>) {
        self.local.reset(request);
    }

    /// Forgets what was used of a key.
    pub async fn reset_key(&self, key: impl AsRef<[u8]>) {
        self.local.reset_key(key);
    }

    /// What the store holds.
    #[must_use]
    pub fn stats(&self) -> MemoryStats {
        self.local.stats()
    }
}

impl From<LocalLimiter> for Limiter {
    fn from(local: LocalLimiter) -> Self {
        Self { local }
    }
}
