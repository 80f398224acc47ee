//! Which limits apply to a request. Knows requests and limits, never a store.

mod cost;
mod explanation;
mod index;
mod matching;
mod set;
mod warning;

use std::fmt;

use smallvec::SmallVec;

pub use cost::Cost;
pub use explanation::{Applicability, Explanation};
pub use matching::{Match, MatchError, Mismatch};
#[cfg(feature = "redis")]
pub(crate) use set::Family;
pub(crate) use set::MatchedView;
pub use set::{MatchedRules, RuleSet, RuleSetError};
pub use warning::RuleSetWarning;

use crate::bucket::Bucket;
use crate::dimension::Dimension;
use crate::limit::Limit;
use crate::name::{Name, NameError};
use crate::request::Request;

/// A limit, the requests it applies to, and what it counts by.
///
/// ```
/// use tollgate::{Dimension, Match, Rule};
///
/// // Ten a second for each client on each route, with bursts of fifty; health checks do not count.
/// let rule = Rule::new("per-route", "10/s burst 50".parse()?)?
///     .per([Dimension::Client, Dimension::Route])
///     .except(Match::new().path("/health".parse()?));
/// # let _ = rule;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a rule limits nothing until it is in a rule set"]
pub struct Rule {
    id: Name,
    limit: Limit,
    /// Boxed, like the exceptions: a decision does not look at most of it.
    when: Box<Match>,
    except: Vec<Match>,
    per: SmallVec<[Dimension; 2]>,
    plan: Option<Box<str>>,
    cost: Option<u64>,
    mode: Mode,
    on_failure: OnFailure,
}

/// What a rule does while the shared store is unavailable.
///
/// ```
/// use tollgate::{OnFailure, Rule};
///
/// // Logins are denied while Redis is down, rather than counted by each process for itself.
/// let rule = Rule::new("login", "5/min".parse()?)?.on_failure(OnFailure::Closed);
/// assert_eq!(rule.failure_policy(), OnFailure::Closed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnFailure {
    /// This process enforces a careful share of the limit.
    #[default]
    Local,
    /// The rule allows every request.
    Open,
    /// The rule denies every request.
    Closed,
}

impl fmt::Display for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Local => "local",
            Self::Open => "open",
            Self::Closed => "closed",
        })
    }
}

/// Whether a rule decides.
///
/// ```
/// use tollgate::{LocalLimiter, Mode, Request, Rule};
///
/// // Tried out first: it counts, and denies nobody.
/// let stricter = Rule::new("stricter", "1/h".parse()?)?.mode(Mode::Shadow);
/// let limiter = LocalLimiter::new().with_rules([stricter])?;
/// assert!(limiter.decide(&Request::new()).allowed());
/// let second = limiter.decide(&Request::new());
/// assert!(second.allowed() && !second.tiers()[0].verdict().allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It decides.
    #[default]
    Enforce,
    /// It counts and reports what it would decide, and changes nothing.
    Shadow,
    /// It is ignored.
    Off,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
        })
    }
}

impl Rule {
    /// A rule with one bucket for every request there is.
    ///
    /// # Errors
    /// When the id is not a [`Name`].
    pub fn new(id: &str, limit: Limit) -> Result<Self, NameError> {
        Ok(Self {
            id: Name::new(id)?,
            limit,
            when: Box::default(),
            except: Vec::new(),
            per: SmallVec::new(),
            plan: None,
            cost: None,
            mode: Mode::Enforce,
            on_failure: OnFailure::Local,
        })
    }

    /// Applies to requests that meet these conditions only.
    pub fn when(mut self, when: Match) -> Self {
        self.when = Box::new(when);
        self
    }

    /// Does not apply to requests that meet these conditions. May be called several times: each call adds an exception.
    ///
    /// Where a request can be read in more than one way, the rule applies: an exception for the values of an attribute holds only
    /// if *every* value of the request is one of them, and [`RuleSet::read_path`] refuses a path that some servers read as an
    /// exception and others do not. Anybody can send a header, so an exception by a header lifts the limit for all who know it.
    ///
    /// ```
    /// use tollgate::{LocalLimiter, Match, PathRules, Request, Rule};
    ///
    /// let limiter = LocalLimiter::new().with_rules([Rule::new("all", "1/h".parse()?)?
    ///     .except(Match::new().path("/health".parse()?))
    ///     .except(Match::new().methods(["OPTIONS"])?)])?;
    /// let health = PathRules::default().normalise("/health")?;
    /// for _ in 0..10 {
    ///     assert!(limiter.decide(&Request::new().path(&health)).tiers().is_empty());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn except(mut self, exception: Match) -> Self {
        self.except.push(exception);
        self
    }

    /// Counts by these dimensions: each combination of values has its own bucket. The first is the subject.
    pub fn per(mut self, per: impl IntoIterator<Item = Dimension>) -> Self {
        self.per = per.into_iter().collect();
        self
    }

    /// Applies to clients of this plan only. A rule of the same id without a plan is for all other clients; if there is none, those
    /// are [not limited](RuleSet::warnings) by this id.
    ///
    /// Plans share a client's bucket where the rule counts by client: usage carries over when a client's plan changes. A rule
    /// that counts by anything else has buckets of its own for each plan.
    pub fn plan(mut self, plan: &str) -> Self {
        self.plan = Some(plan.into());
        self
    }

    /// Charges this much for each request, whatever the request costs otherwise. A request that costs 0 still only looks.
    ///
    /// So one request may be one request to one rule and ten units of something else to another.
    ///
    /// ```
    /// use tollgate::{LocalLimiter, Request, Rule};
    ///
    /// let limiter = LocalLimiter::new().with_rules([
    ///     Rule::new("requests", "100/h".parse()?)?,
    ///     Rule::new("units", "1000/h".parse()?)?.cost(25),
    /// ])?;
    /// let decision = limiter.decide(&Request::new());
    /// let left: Vec<u64> = decision.tiers().iter().map(|tier| tier.remaining()).collect();
    /// assert_eq!(left, [99, 975]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Whether the rule decides, only watches, or is off.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// What the rule does while the shared store is unavailable.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// What the rule does while the shared store is unavailable.
    #[must_use]
    pub fn failure_policy(&self) -> OnFailure {
        self.on_failure
    }

    /// The conditions that a request must meet.
    pub fn conditions(&self) -> &Match {
        &self.when
    }

    /// The conditions under which the rule does not apply.
    pub fn exceptions(&self) -> &[Match] {
        &self.except
    }

    /// What the rule counts by, the subject first.
    #[must_use]
    pub fn dimensions(&self) -> &[Dimension] {
        &self.per
    }

    /// The plan that the rule is for, if it is for one.
    #[must_use]
    pub fn plan_name(&self) -> Option<&str> {
        self.plan.as_deref()
    }

    /// The cost that the rule sets itself, if it does.
    #[must_use]
    pub fn own_cost(&self) -> Option<u64> {
        self.cost
    }

    /// What the rule charges for a request that costs this much.
    #[inline]
    #[must_use]
    pub fn cost_of(&self, request_cost: u64) -> u64 {
        match self.cost {
            Some(own) if request_cost > 0 => own,
            _ => request_cost,
        }
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> Name {
        self.id
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Whether the rule only watches.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.mode == Mode::Shadow
    }

    /// Whether the rule was given these dimensions: a plan that a [`RuleSet`] added does not matter.
    fn counts_by(&self, per: &[Dimension]) -> bool {
        let given = match self.per.strip_suffix(&[Dimension::Plan]) {
            Some(given) if !per.contains(&Dimension::Plan) => given,
            _ => &self.per,
        };
        given == per
    }

    /// Whether the request has a value for the rule's subject. A rule without dimensions needs none.
    pub(crate) fn has_subject_in(&self, request: &Request<'_>) -> bool {
        let subject = self.per.first();
        subject.is_none_or(|subject| request.value(*subject).is_some())
    }

    /// Whether the request has a value for everything that this rule counts by.
    pub(crate) fn is_named_by(&self, request: &Request<'_>) -> bool {
        let mut per = self.per.iter();
        per.all(|dimension| request.value(*dimension).is_some())
    }

    #[cfg(feature = "redis")]
    pub(crate) fn counts_by_plan(&self) -> bool {
        self.per.contains(&Dimension::Plan)
    }

    /// The bucket of this request.
    pub(crate) fn bucket<'a>(&'a self, request: &'a Request<'_>) -> Bucket<'a> {
        Bucket::new(self.id, &self.per, request)
    }
}
