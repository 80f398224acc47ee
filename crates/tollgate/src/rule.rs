//! Which limits a request meets. Knows requests and limits, never a store.

mod cost;
mod explanation;
mod index;
mod matching;
mod set;

use std::fmt;

use smallvec::SmallVec;

pub use cost::Cost;
pub use explanation::{Explanation, Standing};
pub use matching::{Match, MatchError, Mismatch};
#[cfg(feature = "redis")]
pub(crate) use set::Family;
pub use set::{Met, RuleSet, RuleSetError};

use crate::bucket::Bucket;
use crate::dimension::Dimension;
use crate::limit::Limit;
use crate::name::{Name, NameError};
use crate::request::Request;

/// A limit, whom it counts for, and whether it decides.
///
/// ```
/// use tollgate::{Dimension, Rule};
///
/// // Ten a second for each client on each route; bursts of fifty.
/// let rule = Rule::new("per-route", "10/s burst 50".parse()?)?.per([Dimension::Client, Dimension::Route]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    id: Name,
    limit: Limit,
    /// Apart, as most of it is not looked at when it is decided.
    when: Box<Match>,
    per: SmallVec<[Dimension; 2]>,
    plan: Option<Box<str>>,
    mode: Mode,
    on_failure: OnFailure,
}

/// What a rule does while the store that is shared cannot be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnFailure {
    /// It goes on in this process, with a careful share of the limit.
    #[default]
    Local,
    /// It lets everything pass.
    Open,
    /// It lets nothing pass.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It decides.
    #[default]
    Enforce,
    /// It counts and says what it would do, and changes nothing.
    Shadow,
    /// It is not there.
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
    /// A rule that counts for everybody together.
    ///
    /// # Errors
    /// When the id is not a [`Name`].
    pub fn new(id: &str, limit: Limit) -> Result<Self, NameError> {
        Ok(Self {
            id: Name::new(id)?,
            limit,
            when: Box::default(),
            per: SmallVec::new(),
            plan: None,
            mode: Mode::Enforce,
            on_failure: OnFailure::Local,
        })
    }

    /// Only for requests that look like this.
    #[must_use]
    pub fn when(mut self, when: Match) -> Self {
        self.when = Box::new(when);
        self
    }

    /// Counts by these: each combination of values gets a bucket of its own. The first is the subject.
    #[must_use]
    pub fn per(mut self, per: impl IntoIterator<Item = Dimension>) -> Self {
        self.per = per.into_iter().collect();
        self
    }

    /// Only for this plan. A rule of the same id without a plan is for all plans that have none of their own.
    ///
    /// Counted by client, plans share the client's bucket: what was used stays used when its plan changes. Counted by
    /// anything else, each plan has buckets of its own.
    #[must_use]
    pub fn plan(mut self, plan: &str) -> Self {
        self.plan = Some(plan.into());
        self
    }

    /// Whether it decides.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// What it does while the store cannot be asked.
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// What it does while the store cannot be asked.
    #[must_use]
    pub fn policy(&self) -> OnFailure {
        self.on_failure
    }

    /// For which requests.
    #[must_use]
    pub fn conditions(&self) -> &Match {
        &self.when
    }

    /// What it counts by, the subject first.
    #[must_use]
    pub fn dimensions(&self) -> &[Dimension] {
        &self.per
    }

    /// The plan it is for, if it is for one.
    #[must_use]
    pub fn plan_name(&self) -> Option<&str> {
        self.plan.as_deref()
    }

    /// The rule's id.
    #[must_use]
    pub fn id(&self) -> Name {
        self.id
    }

    /// What it allows.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Whether it only watches.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.mode == Mode::Shadow
    }

    /// Whether it counts by just these, as it was said: a plan that a [`RuleSet`] added does not matter.
    fn counts_by(&self, per: &[Dimension]) -> bool {
        let said = match self.per.strip_suffix(&[Dimension::Plan]) {
            Some(said) if !per.contains(&Dimension::Plan) => said,
            _ => &self.per,
        };
        said == per
    }

    /// Whether the request says whom this rule counts for in the first place. Everybody needs not be said.
    pub(crate) fn has_subject_in(&self, request: &Request<'_>) -> bool {
        let subject = self.per.first();
        subject.is_none_or(|subject| request.value(*subject).is_some())
    }

    /// Whether the request says everything that this rule counts by.
    pub(crate) fn is_named_by(&self, request: &Request<'_>) -> bool {
        let mut per = self.per.iter();
        per.all(|dimension| request.value(*dimension).is_some())
    }

    #[cfg(feature = "redis")]
    pub(crate) fn counts_by_plan(&self) -> bool {
        self.per.contains(&Dimension::Plan)
    }

    /// The bucket this request meets here.
    pub(crate) fn bucket<'a>(&'a self, request: &'a Request<'_>) -> Bucket<'a> {
        Bucket::new(self.id, &self.per, request)
    }
}
