//! Rules and a store together: the one way through.

use std::convert::Infallible;

use smallvec::SmallVec;

use crate::bucket::Bucket;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::request::Request;
use crate::rule::{Rule, RuleSet, RuleSetError};
use crate::store::{Charge, MemoryConfig, MemoryStats, MemoryStore, Refund, Store};

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
    store: MemoryStore,
    rules: RuleSet,
}

type Charges<'a> = SmallVec<[Charge<'a>; 4]>;

impl Limiter {
    /// A limiter that keeps usage in this process, without rules.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// A limiter that keeps usage in this process, set up as told.
    #[must_use]
    pub fn in_memory_with(config: MemoryConfig) -> Self {
        Self {
            store: MemoryStore::with(config),
            rules: RuleSet::default(),
        }
    }

    /// Decides by these rules.
    ///
    /// # Errors
    /// When the rules do not fit together.
    pub fn with_rules(
        mut self,
        rules: impl IntoIterator<Item = Rule>,
    ) -> Result<Self, RuleSetError> {
        self.rules = RuleSet::new(rules)?;
        Ok(self)
    }

    /// Takes `cost` from the bucket of `key`, which holds `limit`. A cost of 0 looks without taking.
    ///
    /// One key is one bucket, whatever limit it is checked against: what was used stays used when the limit changes. For
    /// two limits at once, use rules, or two keys.
    pub async fn check(&self, key: impl AsRef<[u8]>, limit: &Limit, cost: u64) -> Decision {
        self.take_one(&key_charge(key.as_ref(), limit, cost))
    }

    /// Takes a request's cost from the buckets of all rules it meets, or from none.
    pub async fn decide(&self, request: &Request<'_>) -> Decision {
        let mut matching = self.rules.matching(request);
        if let (Some(only), None) = (matching.next(), matching.next()) {
            return self.take_one(&charge(only, request));
        }
        let charges = self.charges(request);
        Decision::new(&charges, &certain(self.store.take(&charges).await))
    }

    /// Says what [`decide`](Self::decide) would, and takes nothing.
    pub async fn peek(&self, request: &Request<'_>) -> Decision {
        let charges = self.charges(request);
        let taken = self.store.peek(&charges).await;
        Decision::new(&charges, &certain(taken))
    }

    /// Gives back what a decision took, as far as it still counts: a caller who has gone frees its place. What took
    /// nothing (a denial, a peek) gives nothing back, nor does what was taken under a limit that has changed since.
    ///
    /// In a leaky bucket those behind keep their times: after a refund, as many may go at one time as were refunded.
    pub async fn refund(&self, request: &Request<'_>, decision: Decision) {
        self.give_back(&self.charges(request), &decision).await;
    }

    /// Gives back what an allowed [`check`](Self::check) took.
    pub async fn refund_key(
        &self,
        key: impl AsRef<[u8]>,
        limit: &Limit,
        cost: u64,
        decision: Decision,
    ) {
        let charge = key_charge(key.as_ref(), limit, cost);
        self.give_back(std::slice::from_ref(&charge), &decision)
            .await;
    }

    /// Forgets what was used in all buckets this request meets, those it shares with others included.
    pub async fn reset(&self, request: &Request<'_>) {
        let buckets: SmallVec<[Bucket<'_>; 4]> = (self.charges(request).into_iter())
            .map(|charge| charge.bucket)
            .collect();
        certain(self.store.reset(&buckets).await);
    }

    /// Forgets what was used of a key.
    pub async fn reset_key(&self, key: impl AsRef<[u8]>) {
        certain(self.store.reset(&[Bucket::of_key(key.as_ref())]).await);
    }

    /// What the store holds.
    #[must_use]
    pub fn stats(&self) -> MemoryStats {
        self.store.stats()
    }

    /// One bucket in memory needs nothing to wait for: the shortest way.
    fn take_one(&self, charge: &Charge<'_>) -> Decision {
        let (outcome, at_us) = self.store.take_one(charge);
        Decision::of_one(charge, &outcome, at_us)
    }

    async fn give_back(&self, charges: &[Charge<'_>], decision: &Decision) {
        let refund = |charge: &Charge<'_>| {
            let tier =
                (decision.tiers().iter()).find(|tier| tier.rule() == charge.bucket.rule())?;
            (tier.gives_back() && tier.limit() == charge.limit).then_some(tier.at_us())
        };
        let refunds: SmallVec<[Refund<'_>; 4]> = (charges.iter())
            .filter_map(|charge| {
                Some(Refund {
                    bucket: charge.bucket,
                    limit: charge.limit,
                    cost: charge.cost,
                    charged_at_us: refund(charge)?,
                })
            })
            .collect();
        certain(self.store.refund(&refunds).await);
    }

    fn charges<'a>(&'a self, request: &'a Request<'_>) -> Charges<'a> {
        (self.rules.matching(request))
            .map(|rule| charge(rule, request))
            .collect()
    }
}

fn charge<'a>(rule: &'a Rule, request: &'a Request<'_>) -> Charge<'a> {
    Charge {
        bucket: rule.bucket(request),
        limit: rule.limit(),
        cost: request.tokens(),
        shadow: rule.is_shadow(),
    }
}

fn key_charge<'a>(key: &'a [u8], limit: &'a Limit, cost: u64) -> Charge<'a> {
    Charge {
        bucket: Bucket::of_key(key),
        limit,
        cost,
        shadow: false,
    }
}

/// Memory cannot fail.
fn certain<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
    }
}
