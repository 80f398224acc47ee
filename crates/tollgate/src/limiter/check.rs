//! One form for everything that can be asked about a request or a key.

use std::fmt;

use super::charge_target::Subject;
use super::joint::{JointDecision, JointTarget, TooManyBuckets};
use super::owned::OwnedCheck;
use super::{Backend, Limiter, LocalLimiter, StoreError};
use crate::decision::Decision;
use crate::rule::MatchedRules;
use crate::usage::Usage;
#[cfg(feature = "tokio")]
use {super::wait, crate::decision::Denied, std::time::Duration};

/// A question to a limiter about a request or a key, asked by one of its methods.
///
/// | made by | about |
/// |---|---|
/// | [`Limiter::request`] | a request, by the limiter's own rules |
/// | [`Limiter::matched`] | a request whose rules were [matched](crate::RuleSet::matching) before |
/// | [`Limiter::key`] | a key and a limit |
///
/// With a [`Limiter`] its methods are async, and with a [`LocalLimiter`] they are not. A check is small and `Copy`: keep it to refund
/// what it charged.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{Dimension, Limiter, Request, Rule};
///
/// let limiter = Limiter::in_memory()
///     .with_rules([Rule::new("client", "50 per 1h sliding_log".parse()?)?.per([Dimension::Client])])?;
/// let request = Request::new().client("merchant_123");
/// let check = limiter.request(&request).cost(20);
///
/// let decision = check.decide().await.into_result()?;
/// assert_eq!(decision.remaining(), Some(30));
///
/// // The work was not done after all.
/// check.refund(decision).await;
/// assert_eq!(check.peek().await.remaining(), Some(50));
/// # Ok(())
/// # }
/// ```
#[must_use = "a check does nothing until it is decided"]
pub struct Check<'a, L> {
    pub(super) limiter: &'a L,
    pub(super) subject: Subject<'a>,
    pub(super) cost: Option<u64>,
}

/// A question to a limiter about several requests that pass together or not at all: see [`Limiter::all_of`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{Dimension, Limiter, Request, Rule};
///
/// let limiter = Limiter::in_memory()
///     .with_rules([Rule::new("account", "1/h burst 5".parse()?)?.per([Dimension::Client])])?;
/// let rules = limiter.rules();
/// let (from, to) = (Request::new().client("a").cost(3), Request::new().client("b").cost(3));
/// let transfer = [rules.matching(&from), rules.matching(&to)];
///
/// let check = limiter.all_of(&transfer)?;
/// let joint = check.decide().await;
/// assert!(joint.whole.allowed());
/// check.refund(joint).await;
/// # Ok(())
/// # }
/// ```
#[must_use = "a check does nothing until it is decided"]
pub struct JointCheck<'a, L> {
    limiter: &'a L,
    target: JointTarget<'a>,
}

impl<'a, L> Check<'a, L> {
    pub(super) fn new(limiter: &'a L, subject: Subject<'a>) -> Self {
        Self {
            limiter,
            subject,
            cost: None,
        }
    }

    /// Sets what the request costs, in place of what it and the [costs](crate::RuleSet::with_costs) of the rules say; a key costs 1
    /// otherwise. 0 looks without charging. Rules with a [cost of their own](crate::Rule::cost) charge that.
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }
}

impl Check<'_, Limiter> {
    /// The same check of the limiter behind.
    fn on<'l>(&'l self, local: &'l LocalLimiter) -> Check<'l, LocalLimiter> {
        Check {
            limiter: local,
            subject: self.subject,
            cost: self.cost,
        }
    }

    /// Charges all buckets, or none.
    ///
    /// # Cancel safety
    /// In memory the decision is made in the first poll. Over a shared store, a call that was sent is carried out: if the future is
    /// dropped meanwhile, the charge stays. To wait for admission, use [`until_ready`](Self::until_ready), which gives back.
    pub async fn decide(self) -> Decision {
        match &self.limiter.backend {
            Backend::Memory(local) => self.on(local).decide(),
            #[cfg(feature = "redis")]
            Backend::Shared(shared) => {
                let rules = shared.rules().load_full();
                let resolved = self.subject.resolve(&rules);
                shared.decide(&resolved.target(self.cost), true).await
            }
        }
    }

    /// Waits until the request may pass, for at most this long.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tollgate::Limiter;
    ///
    /// let (limiter, limit) = (Limiter::in_memory(), "50/s burst 1".parse()?);
    /// for mail in ["one", "two", "three"] {
    ///     let permit = limiter.key("mailer", &limit).until_ready(Duration::from_secs(10)).await?;
    ///     println!("{mail} goes at {:?}", permit.at() + permit.delay());
    /// }
    ///
    /// // A wait that would be too long is not begun.
    /// let hourly = "1/h burst 1".parse()?;
    /// let check = limiter.key("report", &hourly);
    /// assert!(check.until_ready(Duration::ZERO).await.is_ok());
    /// let denied = check.until_ready(Duration::from_secs(60)).await.unwrap_err();
    /// assert!(denied.retry_after().is_some_and(|wait| wait > Duration::from_secs(3_500)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Waiting
    /// A leaky bucket *reserves*: the request is charged at once, in one call, and goes when it is its turn. So the first to ask is the
    /// first to go, in all processes that share a store.
    ///
    /// With the other algorithms, the requests of this limiter stand in line for each bucket: the first asks, sleeps for as long as it
    /// is denied, and asks again; the others wait behind it without asking. So a request of a high cost is not overtaken by cheap ones
    /// of this limiter. Requests of other processes, and plain [decisions](Self::decide), may come in between.
    ///
    /// With several rules, the request waits for the latest of them. While the store is unavailable, it waits for this process's share
    /// of the limits.
    ///
    /// # Errors
    /// The denial, at once, if the request would have to wait longer than `max_wait`, or costs more than a limit holds. Its
    /// [`retry_after`](Denied::retry_after) tells after how long the request would pass without waiting.
    ///
    /// # Bounds
    /// It waits for at most `max_wait`, and for the store's reply to its last question: for as long as the store's
    /// [deadline](crate::store::RedisConfig::deadline) more. Waiting requests are not bounded in number: bound the tasks that wait.
    ///
    /// # Cancel safety
    /// If the future is dropped, what it has charged is given back, in memory at once and over a shared store by a task of its own, and
    /// its place in line goes to the next. In a bucket, the requests behind it keep their times.
    #[cfg(feature = "tokio")]
    pub async fn until_ready(self, max_wait: Duration) -> Result<Decision, Denied> {
        let rules = self.limiter.rules();
        let resolved = self.subject.resolve(&rules);
        wait::until_ready(self.limiter, &resolved.target(self.cost), max_wait).await
    }

    /// Returns what [`decide`](Self::decide) would, and charges nothing.
    ///
    /// # Cancel safety
    /// Nothing is changed, whenever the future is dropped.
    pub async fn peek(self) -> Decision {
        match &self.limiter.backend {
            Backend::Memory(local) => self.on(local).peek(),
            #[cfg(feature = "redis")]
            Backend::Shared(shared) => {
                let rules = shared.rules().load_full();
                let resolved = self.subject.resolve(&rules);
                shared.decide(&resolved.target(self.cost), false).await
            }
        }
    }

    /// Gives back what a decision of this check charged, as far as it still counts. A denial or a peek charged nothing, so nothing is
    /// given back; nor is what was charged under a limit that has changed since, or by another
    /// [generation](crate::RuleSet::generation) of the rules.
    ///
    /// In a leaky bucket the requests behind keep their times: after a refund, as many may go at one time as were refunded.
    ///
    /// # Cancel safety
    /// Over a shared store, tasks of their own call it for all buckets side by side. If the future is dropped after its first poll, they
    /// go on, so a caller may bound how long it waits.
    pub async fn refund(self, decision: Decision) {
        match &self.limiter.backend {
            Backend::Memory(local) => self.on(local).refund(decision),
            #[cfg(feature = "redis")]
            Backend::Shared(shared) => {
                let rules = shared.rules().load_full();
                let resolved = self.subject.resolve(&rules);
                let target = resolved.target(self.cost);
                shared
                    .refund(&target.charges_of(&decision), &decision)
                    .await;
            }
        }
    }

    /// The same check without its request and rules: to give back a charge later, when they are gone.
    #[must_use]
    pub fn into_owned(self) -> OwnedCheck {
        let rules = self.limiter.rules();
        let resolved = self.subject.resolve(&rules);
        OwnedCheck::of(&resolved.target(self.cost))
    }

    /// Returns what the clients that the request names have used, and changes nothing: for those who look after clients.
    ///
    /// First come the buckets that [`decide`](Self::decide) would charge, used or not: those of rules that count by something the
    /// request has, and those for all requests. Over a shared store, all other usage of the same subjects follows: a request that
    /// names only a client shows all its routes, and what a rule counted that has been removed since. In memory, keys are known by
    /// their fingerprints only, so there it is just the buckets of the request.
    ///
    /// What a rule counts by a client, an address, an attribute or a method other than HTTP's own *behind* its subject is stored
    /// elsewhere, and is shown only if the request names it. The figures of plans are those of the request's plan.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Dimension, Limiter, Request, Rule};
    ///
    /// let limiter = Limiter::in_memory()
    ///     .with_rules([Rule::new("client", "10/s burst 50".parse()?)?.per([Dimension::Client])])?;
    /// let request = Request::new().client("merchant_123");
    /// limiter.request(&request).cost(20).decide().await.into_result()?;
    /// for usage in limiter.request(&request).inspect().await? {
    ///     println!("{:?}: {:?} used, full again in {:?}", usage.rule(), usage.used(), usage.reset_after());
    ///     assert_eq!(usage.used(), Some(20));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the store is unavailable. It is asked even while the breaker is open, and remembered denials do not matter.
    ///
    /// # Cancel safety
    /// Nothing is changed, whenever the future is dropped.
    pub async fn inspect(self) -> Result<Vec<Usage>, StoreError> {
        match &self.limiter.backend {
            Backend::Memory(local) => Ok(self.on(local).inspect()),
            #[cfg(feature = "redis")]
            Backend::Shared(shared) => {
                let rules = shared.rules().load_full();
                let resolved = self.subject.resolve(&rules);
                let target = resolved.target(self.cost);
                shared.inspect(&target).await.map_err(StoreError::new)
            }
        }
    }

    /// Forgets what the clients that the request names have used, and returns what that was, as [`inspect`](Self::inspect) would have.
    /// A client is named by a client, an address or an attribute. No keys are searched for.
    ///
    /// - Over a shared store: everything of theirs, on all routes, and what rules counted that have been removed since; as with
    ///   `inspect`, what is counted by a client, an address or an attribute *behind* them only if the request names that as well. Denials
    ///   that this process remembers are forgotten too, and what it counts itself while the store is unavailable, of the buckets that the
    ///   request names. Other processes rely on denials that they remember for at most five seconds.
    /// - In memory: the buckets of the request that count by one of them, and those of other rules that count by nothing but what the
    ///   request has. Keys are known by their fingerprints only, so usage on routes that the request does not name stays.
    ///
    /// What clients share with others stays, such as a bucket for all requests or one for a route. A request that names no client
    /// resets exactly that: its buckets that are for all requests, or for its route, its method or its plan; over a shared store with
    /// all usage of these. A request without anything resets every bucket for all requests.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Dimension, Limiter, Request, Rule};
    ///
    /// let limiter = Limiter::in_memory().with_rules([
    ///     Rule::new("client", "10/h burst 50".parse()?)?.per([Dimension::Client]),
    ///     Rule::new("everyone", "100/h".parse()?)?,
    /// ])?;
    /// let request = Request::new().client("merchant_123");
    /// limiter.request(&request).cost(20).decide().await.into_result()?;
    /// let forgotten = limiter.request(&request).reset().await?;
    /// assert_eq!((forgotten.len(), forgotten[0].used()), (1, Some(20)));
    /// let left = limiter.request(&request).peek().await;
    /// assert_eq!(left.tiers()[1].remaining(), 80, "the bucket for all requests is still used");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the store is unavailable: then only a part may have been forgotten, or nothing. It is asked even while the breaker is open.
    ///
    /// # Cancel safety
    /// If the future is dropped, a part may have been forgotten. To reset again does no harm.
    pub async fn reset(self) -> Result<Vec<Usage>, StoreError> {
        match &self.limiter.backend {
            Backend::Memory(local) => Ok(self.on(local).reset()),
            #[cfg(feature = "redis")]
            Backend::Shared(shared) => {
                let rules = shared.rules().load_full();
                let resolved = self.subject.resolve(&rules);
                let target = resolved.target(self.cost);
                shared.reset(&target).await.map_err(StoreError::new)
            }
        }
    }
}

impl Check<'_, LocalLimiter> {
    /// Charges all buckets, or none.
    #[inline]
    pub fn decide(self) -> Decision {
        match self.subject {
            Subject::Request(request) => {
                let rules = self.limiter.current_rules();
                self.limiter
                    .decide_by(&rules.matching(request).view(), self.cost)
            }
            Subject::Matched(view) => self.limiter.decide_by(&view, self.cost),
            Subject::Key { key, limit } => {
                self.limiter.take_key(key, limit, self.cost.unwrap_or(1))
            }
        }
    }

    /// Returns what [`decide`](Self::decide) would, and charges nothing.
    pub fn peek(self) -> Decision {
        let rules = self.limiter.current_rules();
        let resolved = self.subject.resolve(&rules);
        self.limiter.peek_at(&resolved.target(self.cost))
    }

    /// Gives back what a decision of this check charged, as far as it still counts. A denial or a peek charged nothing, so nothing is
    /// given back; nor is what was charged under a limit that has changed since, or by another
    /// [generation](crate::RuleSet::generation) of the rules.
    ///
    /// In a leaky bucket the requests behind keep their times: after a refund, as many may go at one time as were refunded.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "so that nothing is given back twice"
    )]
    pub fn refund(self, decision: Decision) {
        let rules = self.limiter.current_rules();
        let resolved = self.subject.resolve(&rules);
        let target = resolved.target(self.cost);
        let charges = target.charges_of(&decision);
        self.limiter.give_back(&charges, &decision);
    }

    /// Returns what the clients that the request names have used, and changes nothing: of each rule that counts by something the
    /// request has or for all requests, the bucket of the request. Other buckets cannot be shown, because keys are known by their
    /// fingerprints only.
    ///
    /// ```
    /// use tollgate::{Dimension, LocalLimiter, Request, Rule};
    ///
    /// let limiter = LocalLimiter::new()
    ///     .with_rules([Rule::new("client", "10/s burst 50".parse()?)?.per([Dimension::Client])])?;
    /// let request = Request::new().client("merchant_123");
    /// limiter.request(&request).cost(20).decide().into_result()?;
    /// assert_eq!(limiter.request(&request).inspect()[0].used(), Some(20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn inspect(self) -> Vec<Usage> {
        let rules = self.limiter.current_rules();
        let resolved = self.subject.resolve(&rules);
        self.limiter.inspect_at(&resolved.target(self.cost))
    }

    /// Forgets what the clients that the request names have used, and returns what that was: the buckets of the request that count by
    /// one of them, and those of other rules that count by nothing but what the request has. Other buckets stay, because keys are
    /// known by their fingerprints only.
    ///
    /// What clients share with others stays, such as a bucket for all requests or one for a route. A request that names no client
    /// resets exactly that: its buckets that are for all requests, or for its route, its method or its plan; and a request without
    /// anything every bucket for all requests.
    ///
    /// ```
    /// use tollgate::{Dimension, LocalLimiter, Request, Rule};
    ///
    /// let limiter = LocalLimiter::new().with_rules([
    ///     Rule::new("client", "10/h burst 50".parse()?)?.per([Dimension::Client]),
    ///     Rule::new("everyone", "100/h".parse()?)?,
    /// ])?;
    /// let request = Request::new().client("merchant_123");
    /// limiter.request(&request).cost(20).decide().into_result()?;
    /// assert_eq!(limiter.request(&request).reset()[0].used(), Some(20));
    /// let used: Vec<_> = limiter.request(&request).inspect().iter().map(|usage| usage.used()).collect();
    /// assert_eq!(used, [Some(0), Some(20)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reset(self) -> Vec<Usage> {
        let rules = self.limiter.current_rules();
        let resolved = self.subject.resolve(&rules);
        self.limiter.reset_at(&resolved.target(self.cost))
    }
}

impl<'a, L> JointCheck<'a, L> {
    pub(super) fn new(limiter: &'a L, all: &'a [MatchedRules<'_>]) -> Result<Self, TooManyBuckets> {
        let target = JointTarget::of(all)?;
        Ok(Self { limiter, target })
    }
}

impl JointCheck<'_, Limiter> {
    /// Charges all buckets of all requests, or none.
    ///
    /// # Cancel safety
    /// As [`Check::decide`](Check::<Limiter>::decide): over a shared store, a charge that was sent stays.
    pub async fn decide(&self) -> JointDecision {
        match &self.limiter.backend {
            Backend::Memory(local) => local.decide_jointly(&self.target),
            #[cfg(feature = "redis")]
            Backend::Shared(shared) => shared.decide_jointly(&self.target).await,
        }
    }

    /// Returns what [`decide`](Self::decide) would, and charges nothing.
    ///
    /// # Cancel safety
    /// Nothing is changed, whenever the future is dropped.
    pub async fn peek(&self) -> JointDecision {
        match &self.limiter.backend {
            Backend::Memory(local) => local.peek_jointly(&self.target),
            #[cfg(feature = "redis")]
            Backend::Shared(shared) => shared.peek_jointly(&self.target).await,
        }
    }

    /// Gives back what [`decide`](Self::decide) charged, as far as it still counts.
    ///
    /// # Cancel safety
    /// As [`Check::refund`](Check::<Limiter>::refund): over a shared store, a refund that was begun goes on by itself.
    pub async fn refund(&self, joint: JointDecision) {
        match &self.limiter.backend {
            Backend::Memory(local) => {
                for (charge, decision) in self.target.charged(&joint) {
                    local.give_back(std::slice::from_ref(charge), decision);
                }
            }
            #[cfg(feature = "redis")]
            Backend::Shared(shared) => shared.refund_all(self.target.charged(&joint)).await,
        }
    }
}

impl JointCheck<'_, LocalLimiter> {
    /// Charges all buckets of all requests, or none.
    pub fn decide(&self) -> JointDecision {
        self.limiter.decide_jointly(&self.target)
    }

    /// Returns what [`decide`](Self::decide) would, and charges nothing.
    pub fn peek(&self) -> JointDecision {
        self.limiter.peek_jointly(&self.target)
    }

    /// Gives back what [`decide`](Self::decide) charged, as far as it still counts.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "so that nothing is given back twice"
    )]
    pub fn refund(&self, joint: JointDecision) {
        for (charge, decision) in self.target.charged(&joint) {
            self.limiter
                .give_back(std::slice::from_ref(charge), decision);
        }
    }
}

// Derived, these would ask the same of the limiter.

impl<L> Clone for Check<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for Check<'_, L> {}

impl<L> fmt::Debug for Check<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

impl<L> Clone for JointCheck<'_, L> {
    fn clone(&self) -> Self {
        Self {
            limiter: self.limiter,
            target: self.target.clone(),
        }
    }
}

impl<L> fmt::Debug for JointCheck<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JointCheck").finish_non_exhaustive()
    }
}
