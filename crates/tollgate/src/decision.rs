//! The answer to a check: what was decided, and everything anybody may want to know about it.

use std::cell::Cell;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::limit::Limit;
use crate::name::Name;
use crate::store::{Charge, Fit, Outcome};

/// Whether a request may go, and why.
///
/// A denial is an answer like any other. The figures of the whole ([`limit`](Self::limit),
/// [`remaining`](Self::remaining), …) are those of the tier that [bound](Self::tier) it: on allow the one with the
/// least left, on deny the one with the longest wait.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    at_us: u64,
    tiers: Tiers,
    /// Index of the tier that bound the decision; past the end when no rule applied.
    bound: u8,
    source: Source,
    /// By how many seconds the wall clock is ahead of the store's.
    step_s: i32,
    generation: u64,
    /// What the request cost by those rules.
    cost: u64,
}

/// Past any tier: a request meets 255 at the most.
const NO_TIER: u8 = u8::MAX;

/// Most requests meet one tier; those need no memory of their own.
#[derive(Clone, Debug, PartialEq)]
enum Tiers {
    One([Tier; 1]),
    Many(TierList),
}

/// Several tiers. Their memory is used again by the next decision of the same thread: to ask the system for it and give it back
/// would be a twentieth of a check.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TierList(Vec<Tier>);

/// A list that is longer is not kept.
const MOST_KEPT: usize = 8;

thread_local! {
    static SPARE: Cell<Vec<Tier>> = const { Cell::new(Vec::new()) };
}

impl TierList {
    #[inline]
    pub(crate) fn of(tiers: impl Iterator<Item = Tier>) -> Self {
        // None if the thread is ending.
        let mut list = SPARE.try_with(Cell::take).unwrap_or_default();
        list.extend(tiers);
        Self(list)
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [Tier] {
        &mut self.0
    }

    /// Which of those that decide; the first of equal ones.
    #[inline]
    fn with_least_left(&self) -> u8 {
        let (mut bound, mut least) = (usize::MAX, u64::MAX);
        for (index, tier) in self.0.iter().enumerate() {
            // No limit holds as much as what it begins with.
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
        if (1..=MOST_KEPT).contains(&self.0.capacity()) {
            let mut list = std::mem::take(&mut self.0);
            list.clear();
            let _ = SPARE.try_with(|spare| spare.set(list));
        }
    }
}

/// What to do with the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may go.
    Allow,
    /// It is let in and may go after this time (leaky bucket).
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
    /// Whether the request may go, now or after its delay.
    #[must_use]
    pub fn allowed(self) -> bool {
        matches!(self, Self::Allow | Self::AllowAfter(_))
    }

    /// Allowed before denied, short waits before long ones.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The store was asked.
    Store,
    /// The store denied the same a while ago, until a time that has not come.
    Remembered,
    /// The store could not be asked: decided in this process, by a careful share of the limits.
    Local,
    /// The store could not be asked, and a rule lets nothing pass then.
    Closed,
}

impl Source {
    /// Its name in logs, metrics and replies: `store`, `remembered`, `local` or `closed`.
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

/// What one rule said.
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

    /// The rule; empty for a check by key.
    #[must_use]
    pub fn rule(&self) -> Name {
        self.rule
    }

    /// What it allows.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// What it says about this request, by itself.
    #[must_use]
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

    /// How long until it is full again.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.outcome.full_at_us.saturating_sub(self.at_us()))
    }

    /// When the store looked at it.
    pub(crate) fn at_us(&self) -> u64 {
        self.outcome.at_us
    }

    /// Whether something was taken that can be given back. What was taken from a bucket that stands for many keys cannot.
    pub(crate) fn gives_back(&self) -> bool {
        self.outcome.charged && !self.outcome.shared
    }

    /// Whether it only watches: a shadow never changes the outcome.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Whether the store was out of room and this bucket stands for many keys.
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
    /// The decision on a request with one charge.
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

    /// By this generation of the rules, which say this cost.
    #[inline(always)]
    pub(crate) fn by(mut self, generation: u64, cost: u64) -> Self {
        self.generation = generation;
        self.cost = cost;
        self
    }

    /// With the wall clock so many seconds ahead of the clock that decided.
    #[inline(always)]
    pub(crate) fn stepped(mut self, step_s: i32) -> Self {
        self.step_s = step_s;
        self
    }

    pub(crate) fn step_s(&self) -> i32 {
        self.step_s
    }

    /// What it took from every bucket, if it took anything.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// The decision on a request with any number of tiers.
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

    /// The same by what these tiers say, whatever others said.
    pub(crate) fn of_many_by_themselves(tiers: TierList, at_us: u64, source: Source) -> Self {
        let mut deciding = tiers.0.iter().filter(|tier| !tier.shadow);
        let admitted = deciding.all(|tier| tier.outcome.fit.admits());
        Self::of_many(tiers, admitted, at_us, source)
    }

    /// This decision after what it took was [given back](crate::Limiter::refund_on), because the request cannot wait for its
    /// [delay](Self::delay): the same verdicts, with what `now`, a look at the same buckets, found left, and bound by the tier with the
    /// longest delay. A tier that `now` does not have, such as that of a store that has become unreachable, keeps its figures.
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
    /// limiter.refund(&request, queued.clone());
    /// let denied = queued.given_back(&limiter.peek(&request));
    /// assert_eq!(denied.remaining(), Some(4), "its place is free again");
    /// assert!(!denied.delay().is_zero(), "and it would still have to wait");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn given_back(mut self, now: &Self) -> Self {
        let tiers = match &mut self.tiers {
            Tiers::One(tier) => tier.as_mut_slice(),
            Tiers::Many(tiers) => tiers.as_mut_slice(),
        };
        for (tier, found) in tiers.iter_mut().zip(now.tiers()) {
            tier.outcome.charged = false;
            if tier.rule == found.rule && tier.limit == found.limit {
                tier.outcome.remaining = found.outcome.remaining;
                tier.outcome.full_at_us = found.outcome.full_at_us;
            }
        }
        if let Tiers::Many(tiers) = &self.tiers {
            self.bound = tiers.with_longest_wait();
        }
        self
    }

    /// When it was taken.
    pub(crate) fn at_us(&self) -> u64 {
        self.at_us
    }

    /// Whether the request may go, now or after its [delay](Self::delay).
    #[must_use]
    pub fn allowed(&self) -> bool {
        let mut deciding = self.tiers().iter().filter(|tier| !tier.shadow);
        deciding.all(|tier| tier.outcome.fit.admits())
    }

    /// What to do with the request: the strictest of what its tiers say.
    #[must_use]
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

    /// How long an allowed request must wait before it goes: zero but for a leaky bucket.
    #[must_use]
    pub fn delay(&self) -> Duration {
        match self.verdict() {
            Verdict::AllowAfter(delay) => delay,
            _ => Duration::ZERO,
        }
    }

    /// After how long a denied request passes, to the microsecond. `None` when it is allowed, and when it can never
    /// pass: so it does not say whether a request may go, which [`allowed`](Self::allowed) and
    /// [`into_result`](Self::into_result) do.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.verdict() {
            Verdict::Deny { retry_after } => Some(retry_after),
            _ => None,
        }
    }

    /// The decision if the request may go, or else the denial as an error: whatever the reason, `?` does not let a denied request pass.
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

    /// All tiers, in the order of the rules, shadows included. Of a denial that was [remembered](Source::Remembered), only the
    /// tier that denied: the others were not asked.
    #[must_use]
    pub fn tiers(&self) -> &[Tier] {
        match &self.tiers {
            Tiers::One(tier) => tier,
            Tiers::Many(tiers) => &tiers.0,
        }
    }

    /// The most that fits at once in the tier that bound the decision.
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

    /// When the decision was taken, by the store's clock. In memory that follows the wall clock if it is set, within a second.
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

    /// Which [generation](crate::RuleSet::generation) of the rules decided; 0 for a check by key, and for rules that have no number.
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
#[derive(Clone, Debug, PartialEq)]
pub struct Denied(Box<Decision>);

impl Denied {
    /// After how long the request passes, alone and to the microsecond. `None` if waiting does not help, as it costs more than a
    /// limit holds.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after()
    }

    /// Whether it costs more than a limit holds, so that it never passes.
    #[must_use]
    pub fn never_fits(&self) -> bool {
        self.0.verdict() == Verdict::NeverFits
    }

    /// All about it.
    #[must_use]
    pub fn decision(&self) -> &Decision {
        &self.0
    }

    /// The decision itself.
    #[must_use]
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
