//! What was decided, and why.

use std::cell::Cell;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::limit::Limit;
use crate::name::Name;
use crate::store::{Charge, Fit, Outcome};

/// Whether a request may pass, and why.
///
/// A denial is a value like any other: look at [`allowed`](Self::allowed), or use [`into_result`](Self::into_result) and `?`. The
/// figures of the whole ([`limit`](Self::limit), [`remaining`](Self::remaining), …) are those of the tier that [bound](Self::tier) the
/// decision: of an admitted request the one with the least left, of a denied one that with the longest wait.
///
/// ```
/// use tollgate::{LocalLimiter, Verdict};
///
/// let (limiter, limit) = (LocalLimiter::new(), "1/s burst 1".parse()?);
/// let first = limiter.check("client-7", &limit, 1);
/// assert_eq!((first.allowed(), first.remaining()), (true, Some(0)));
///
/// let second = limiter.check("client-7", &limit, 1);
/// assert!(matches!(second.verdict(), Verdict::Deny { .. }));
/// assert!(second.retry_after().is_some_and(|wait| wait.as_secs_f64() <= 1.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a denial that is ignored limits nothing"]
pub struct Decision {
    at_us: u64,
    tiers: Tiers,
    /// Index of the tier that bound the decision; past the end when no rule applied.
    bound: u8,
    source: Source,
    /// By how many seconds the wall clock is ahead of the store's.
    step_s: i32,
    generation: u64,
    /// What the request cost, to rules that set no cost of their own.
    cost: u64,
}

/// Past any tier: a decision has at most 255.
const NO_TIER: u8 = u8::MAX;

/// Most decisions have one tier, and need no memory of their own.
#[derive(Clone, Debug, PartialEq)]
enum Tiers {
    One([Tier; 1]),
    Many(TierList),
}

/// Several tiers. The next decision of the same thread uses their memory again: to allocate and free it would take a twentieth of
/// a check.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TierList(Vec<Tier>);

/// Longer lists are not kept.
const MAX_KEPT: usize = 8;

thread_local! {
    static SPARE: Cell<Vec<Tier>> = const { Cell::new(Vec::new()) };
}

impl TierList {
    #[inline]
    pub(crate) fn of(tiers: impl Iterator<Item = Tier>) -> Self {
        // There is none if the thread is ending.
        let mut list = SPARE.try_with(Cell::take).unwrap_or_default();
        list.extend(tiers);
        Self(list)
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [Tier] {
        &mut self.0
    }

    /// The first of the deciding tiers with the least left.
    #[inline]
    fn with_least_left(&self) -> u8 {
        let (mut bound, mut least) = (usize::MAX, u64::MAX);
        for (index, tier) in self.0.iter().enumerate() {
            // No limit holds as much as the initial value.
            if !tier.shadow && tier.remaining() < least {
                (bound, least) = (index, tier.remaining());
            }
        }
        u8::try_from(bound).unwrap_or(NO_TIER)
    }

    #[cold]
    fn with_longest_wait(&self) -> u8 {
        let deciding = self.0.iter().enumerate().filter(|(_, tier)| !tier.shadow);
        let bound = deciding.max_by_key(|(_, tier)| tier.verdict().severity());
        bound.map_or(NO_TIER, |(index, _)| u8::try_from(index).unwrap_or(NO_TIER))
    }
}

impl Drop for TierList {
    #[inline]
    fn drop(&mut self) {
        if (1..=MAX_KEPT).contains(&self.0.capacity()) {
            let mut list = std::mem::take(&mut self.0);
            list.clear();
            let _ = SPARE.try_with(|spare| spare.set(list));
        }
    }
}

/// What to do with a request.
///
/// ```
/// use tollgate::{LocalLimiter, Verdict};
///
/// let (limiter, limit) = (LocalLimiter::new(), "1/s burst 1".parse()?);
/// match limiter.check("client-7", &limit, 1).verdict() {
///     Verdict::Allow => println!("go"),
///     Verdict::AllowAfter(delay) => println!("go in {delay:?}"),
///     Verdict::Deny { retry_after } => println!("come back in {retry_after:?}"),
///     Verdict::NeverFits => println!("ask for less"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a denial that is ignored limits nothing"]
pub enum Verdict {
    /// It may pass.
    Allow,
    /// It is admitted and may pass after this time: a leaky bucket has queued it.
    AllowAfter(Duration),
    /// It is denied; alone, it passes after exactly this time.
    Deny {
        /// How long to wait.
        retry_after: Duration,
    },
    /// It is denied for ever: it costs more than a limit holds. Waiting does not help.
    NeverFits,
}

impl Verdict {
    /// Whether the request may pass, now or after its delay.
    #[must_use]
    pub fn allowed(self) -> bool {
        matches!(self, Self::Allow | Self::AllowAfter(_))
    }

    /// Orders verdicts: allowed before denied, short waits before long ones.
    fn severity(self) -> (u8, Duration) {
        match self {
            Self::Allow => (0, Duration::ZERO),
            Self::AllowAfter(delay) => (1, delay),
            Self::Deny { retry_after } => (2, retry_after),
            Self::NeverFits => (3, Duration::ZERO),
        }
    }
}

/// Where a decision came from.
///
/// ```
/// use tollgate::{LocalLimiter, Source};
///
/// let decision = LocalLimiter::new().check("client-7", &"1/s".parse()?, 1);
/// assert_eq!(decision.source(), Source::Store);
/// assert_eq!(decision.source().as_str(), "store");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The store decided.
    Store,
    /// The store denied the same before, until a time that has not come yet.
    Remembered,
    /// The store was unavailable: this process decided, by its share of the limits.
    Local,
    /// The store was unavailable, and a rule denies everything then.
    Closed,
}

impl Source {
    /// The name in logs, metrics and responses: `store`, `remembered`, `local` or `closed`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Remembered => "remembered",
            Self::Local => "local",
            Self::Closed => "closed",
        }
    }
}

/// What one rule decided about a request.
///
/// ```
/// use tollgate::{LocalLimiter, Request, Rule};
///
/// let limiter = LocalLimiter::new().with_rules([
///     Rule::new("second", "10/s".parse()?)?,
///     Rule::new("hour", "100/h".parse()?)?,
/// ])?;
/// for tier in limiter.decide(&Request::new()).tiers() {
///     println!("{}: {} of {} left", tier.rule(), tier.remaining(), tier.limit());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Tier {
    rule: Name,
    limit: Limit,
    outcome: Outcome,
    shadow: bool,
}

impl Tier {
    #[inline(always)]
    pub(crate) fn new(charge: &Charge<'_>, outcome: Outcome) -> Self {
        Self {
            rule: charge.bucket.rule(),
            limit: *charge.limit,
            outcome,
            shadow: charge.shadow,
        }
    }

    /// The rule; empty for a key.
    #[must_use]
    pub fn rule(&self) -> Name {
        self.rule
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The verdict of this rule by itself.
    pub fn verdict(&self) -> Verdict {
        let from_now = |us: u64| Duration::from_micros(us.saturating_sub(self.at_us()));
        match self.outcome.fit {
            Fit::Now => Verdict::Allow,
            Fit::Queued { go_at_us } => Verdict::AllowAfter(from_now(go_at_us)),
            Fit::Later { ready_at_us } => Verdict::Deny {
                retry_after: from_now(ready_at_us),
            },
            Fit::Never => Verdict::NeverFits,
        }
    }

    /// Whole tokens left.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.outcome.remaining
    }

    /// How long until the bucket is full again.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.outcome.full_at_us.saturating_sub(self.at_us()))
    }

    /// When the store looked at it.
    pub(crate) fn at_us(&self) -> u64 {
        self.outcome.at_us
    }

    /// Whether something was charged that can be given back. What was charged to a bucket that stands for many keys cannot.
    pub(crate) fn gives_back(&self) -> bool {
        self.outcome.charged && !self.outcome.shared
    }

    /// Whether the rule only watches: a shadow never changes the decision.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Whether the store was full and this bucket stands for many keys.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.outcome.shared
    }
}

impl AsMut<Outcome> for Tier {
    fn as_mut(&mut self) -> &mut Outcome {
        &mut self.outcome
    }
}

impl Decision {
    /// The decision about a request with one charge.
    #[inline(always)]
    pub(crate) fn of_one(charge: &Charge<'_>, outcome: Outcome) -> Self {
        Self {
            at_us: outcome.at_us,
            tiers: Tiers::One([Tier::new(charge, outcome)]),
            bound: if charge.shadow { NO_TIER } else { 0 },
            source: Source::Store,
            step_s: 0,
            generation: 0,
            cost: charge.cost,
        }
    }

    /// Sets the generation of the rules, and what the request cost.
    #[inline(always)]
    pub(crate) fn by(mut self, generation: u64, cost: u64) -> Self {
        self.generation = generation;
        self.cost = cost;
        self
    }

    /// Sets by how many seconds the wall clock is ahead of the clock that decided.
    #[inline(always)]
    pub(crate) fn stepped(mut self, step_s: i32) -> Self {
        self.step_s = step_s;
        self
    }

    pub(crate) fn step_s(&self) -> i32 {
        self.step_s
    }

    /// What the request cost, to rules that set no cost of their own.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// The decision about a request with any number of tiers.
    #[inline(always)]
    pub(crate) fn of_many(tiers: TierList, admitted: bool, at_us: u64, source: Source) -> Self {
        Self {
            at_us,
            bound: match admitted {
                true => tiers.with_least_left(),
                false => tiers.with_longest_wait(),
            },
            tiers: Tiers::Many(tiers),
            source,
            step_s: 0,
            generation: 0,
            cost: 0,
        }
    }

    /// The same by these tiers alone, whatever others decided.
    pub(crate) fn of_many_by_themselves(tiers: TierList, at_us: u64, source: Source) -> Self {
        let mut deciding = tiers.0.iter().filter(|tier| !tier.shadow);
        let admitted = deciding.all(|tier| tier.outcome.fit.admits());
        Self::of_many(tiers, admitted, at_us, source)
    }

    /// This decision after what it charged was [given back](crate::Check::<crate::Limiter>::refund), because the request cannot wait for
    /// its [delay](Self::delay): the same verdicts, with the figures that `now`, a look at the same buckets, found, and bound by the tier
    /// with the longest delay. A tier that `now` does not have, such as that of a store that has become unavailable, keeps its figures.
    ///
    /// ```
    /// use tollgate::{LocalLimiter, Request, Rule};
    ///
    /// let limiter = LocalLimiter::new().with_rules([Rule::new("queue", "1/s queue 5 leaky_bucket".parse()?)?])?;
    /// let request = Request::new();
    /// assert!(limiter.decide(&request).delay().is_zero());
    /// let queued = limiter.decide(&request);
    /// assert_eq!(queued.remaining(), Some(3));
    ///
    /// limiter.request(&request).refund(queued.clone());
    /// let denied = queued.after_refund(&limiter.request(&request).peek());
    /// assert_eq!(denied.remaining(), Some(4), "its place is free again");
    /// assert!(!denied.delay().is_zero(), "and it would still have to wait");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn after_refund(mut self, now: &Self) -> Self {
        for (tier, found) in self.tiers_mut().iter_mut().zip(now.tiers()) {
            tier.outcome.charged = false;
            if tier.rule == found.rule && tier.limit == found.limit {
                tier.outcome.remaining = found.outcome.remaining;
                tier.outcome.full_at_us = found.outcome.full_at_us;
            }
        }
        self.bind_longest_wait()
    }

    /// The denial of a request whose [delay](Self::delay) is longer than it may wait, after what it charged was given back: these costs,
    /// of the tiers in order. It passes without waiting when its turn would have come.
    #[cfg(feature = "tokio")]
    pub(crate) fn turned_away(
        mut self,
        patience: Duration,
        costs: impl Iterator<Item = u64>,
    ) -> Self {
        for (tier, cost) in self.tiers_mut().iter_mut().zip(costs) {
            if tier.outcome.charged {
                tier.outcome.charged = false;
                tier.outcome.remaining += cost;
            }
            if let Fit::Queued { go_at_us } = tier.outcome.fit
                && !tier.shadow
                && Duration::from_micros(go_at_us.saturating_sub(tier.at_us())) > patience
            {
                tier.outcome.fit = Fit::Later {
                    ready_at_us: go_at_us,
                };
            }
        }
        self.bind_longest_wait()
    }

    /// The denial of a request for which others are first: in these tiers it passes after this time, or later if they deny it for longer.
    #[cfg(feature = "tokio")]
    pub(crate) fn denied_for(mut self, wait: Duration, is_in_line: impl Fn(usize) -> bool) -> Self {
        let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        for (nth, tier) in self.tiers_mut().iter_mut().enumerate() {
            let after_wait_us = tier.at_us().saturating_add(wait_us);
            if tier.shadow || !is_in_line(nth) {
                continue;
            }
            tier.outcome.fit = match tier.outcome.fit {
                Fit::Later { ready_at_us } => Fit::Later {
                    ready_at_us: ready_at_us.max(after_wait_us),
                },
                Fit::Never => Fit::Never,
                Fit::Now | Fit::Queued { .. } => Fit::Later {
                    ready_at_us: after_wait_us,
                },
            };
        }
        self.bind_longest_wait()
    }

    fn tiers_mut(&mut self) -> &mut [Tier] {
        match &mut self.tiers {
            Tiers::One(tier) => tier.as_mut_slice(),
            Tiers::Many(tiers) => tiers.as_mut_slice(),
        }
    }

    /// Bound by the deciding tier with the longest wait.
    fn bind_longest_wait(mut self) -> Self {
        if let Tiers::Many(tiers) = &self.tiers {
            self.bound = tiers.with_longest_wait();
        }
        self
    }

    /// When the decision was made.
    pub(crate) fn at_us(&self) -> u64 {
        self.at_us
    }

    /// Whether the request may pass, now or after its [delay](Self::delay).
    #[must_use]
    pub fn allowed(&self) -> bool {
        let mut deciding = self.tiers().iter().filter(|tier| !tier.shadow);
        deciding.all(|tier| tier.outcome.fit.admits())
    }

    /// What to do with the request: the strictest verdict of its tiers.
    pub fn verdict(&self) -> Verdict {
        if let [tier] = self.tiers() {
            return match tier.shadow {
                true => Verdict::Allow,
                false => tier.verdict(),
            };
        }
        let deciding = self.tiers().iter().filter(|tier| !tier.shadow);
        deciding
            .map(Tier::verdict)
            .max_by_key(|verdict| verdict.severity())
            .unwrap_or(Verdict::Allow)
    }

    /// How long an admitted request must wait before it passes: zero except for a leaky bucket.
    #[must_use]
    pub fn delay(&self) -> Duration {
        match self.verdict() {
            Verdict::AllowAfter(delay) => delay,
            _ => Duration::ZERO,
        }
    }

    /// After how long a denied request passes, alone and to the microsecond. `None` if it is allowed, and also if it can never pass: use
    /// [`allowed`](Self::allowed) or [`into_result`](Self::into_result) to know whether it may pass.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.verdict() {
            Verdict::Deny { retry_after } => Some(retry_after),
            _ => None,
        }
    }

    /// Returns the decision if the request may pass, and the denial as an error otherwise: with `?`, no denied request passes, whatever the
    /// reason.
    ///
    /// ```
    /// use tollgate::{Denied, LocalLimiter};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = LocalLimiter::new();
    /// let limit = "1/m burst 2".parse()?;
    /// let decision = limiter.check("client-7", &limit, 1).into_result()?;
    /// assert_eq!(decision.remaining(), Some(1));
    ///
    /// let denied: Denied = limiter.check("client-7", &limit, 3).into_result().unwrap_err();
    /// assert_eq!(denied.retry_after(), None, "it never fits, so waiting does not help");
    /// assert!(denied.never_fits());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the request is denied.
    pub fn into_result(self) -> Result<Self, Denied> {
        match self.allowed() {
            true => Ok(self),
            false => Err(Denied(Box::new(self))),
        }
    }

    /// The tier that bound the decision; `None` when no rule applied, or only shadows did.
    #[must_use]
    pub fn tier(&self) -> Option<&Tier> {
        self.tiers().get(usize::from(self.bound))
    }

    /// All tiers, in the order of the rules, shadows included. A [remembered](Source::Remembered) denial has only the tier that denied.
    #[must_use]
    pub fn tiers(&self) -> &[Tier] {
        match &self.tiers {
            Tiers::One(tier) => tier,
            Tiers::Many(tiers) => &tiers.0,
        }
    }

    /// What the tier that bound the decision holds.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.tier().map(|tier| tier.limit.capacity())
    }

    /// What is left in the tier that bound the decision.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.tier().map(Tier::remaining)
    }

    /// How long until the tier that bound the decision is full again.
    #[must_use]
    pub fn reset_after(&self) -> Option<Duration> {
        self.tier().map(Tier::reset_after)
    }

    /// When the decision was made, by the store's clock. In memory, this follows the wall clock within a second when it is set.
    #[must_use]
    pub fn at(&self) -> SystemTime {
        let at = Duration::from_micros(self.at_us);
        let step = Duration::from_secs(self.step_s.unsigned_abs().into());
        UNIX_EPOCH
            + match self.step_s {
                0.. => at + step,
                _ => at.saturating_sub(step),
            }
    }

    /// The [generation](crate::RuleSet::generation) of the rules that decided; 0 for a key, and for rules without a number.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Where the decision came from.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }
}

/// A denial as an error: see [`Decision::into_result`].
///
/// ```
/// use tollgate::{Denied, LocalLimiter};
///
/// let (limiter, limit) = (LocalLimiter::new(), "1/min burst 1".parse()?);
/// limiter.check("client-7", &limit, 1).into_result()?;
/// let denied: Denied = limiter.check("client-7", &limit, 1).into_result().unwrap_err();
/// assert!(denied.to_string().starts_with("denied; it passes in 59."));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Denied(Box<Decision>);

impl Denied {
    /// After how long the request passes, alone and to the microsecond. `None` if waiting does not help, because it costs more than a
    /// limit holds.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after()
    }

    /// Whether the request costs more than a limit holds, so that it never passes.
    #[must_use]
    pub fn never_fits(&self) -> bool {
        self.0.verdict() == Verdict::NeverFits
    }

    /// The decision.
    pub fn decision(&self) -> &Decision {
        &self.0
    }

    /// The decision, by value.
    pub fn into_decision(self) -> Decision {
        *self.0
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("denied")?;
        match self.0.tier().map(|tier| tier.rule().as_str()) {
            None | Some("") => {}
            Some(rule) => write!(f, " by {rule}")?,
        }
        match (self.retry_after(), self.never_fits()) {
            (Some(wait), _) => write!(f, "; it passes in {wait:?}"),
            (None, true) => f.write_str("; it costs more than the limit holds"),
            (None, false) => Ok(()),
        }
    }
}

impl std::error::Error for Denied {}
