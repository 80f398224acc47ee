//! Why each rule applies to a request or does not.

use std::fmt;

use super::Rule;
use super::cost::Cost;
use super::matching::{Match, Mismatch};
use crate::name::Name;

/// How a rule set sees a request: see [`RuleSet::explain`](super::RuleSet::explain).
///
/// ```
/// use tollgate::{Match, Request, Rule, RuleSet};
///
/// let posts = Match::new().methods(["POST"])?;
/// let rules = RuleSet::new([Rule::new("posts", "10/s".parse()?)?.when(posts)])?;
/// let request = Request::new().method("GET");
/// let explanation = rules.explain(&request);
/// let (id, applicability) = &explanation.rules[0];
/// assert_eq!(format!("{id}: {applicability}"), "posts: the method is not POST");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation<'a> {
    /// The name of the endpoint: as the request says, or the most specific pattern of its path.
    pub route: Option<&'a str>,
    /// What the request costs, to rules that set no cost of their own.
    pub cost: u64,
    /// The cost that counts. `None` if the request has a cost of its own, or meets the conditions of none.
    pub cost_by: Option<&'a Cost>,
    /// Every rule, in order.
    pub rules: Vec<(Name, Applicability<'a>)>,
}

/// Whether a rule applies to a request, and why not. Its text is the reason.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Applicability<'a> {
    /// It applies, with the limit of the request's plan.
    Applies(&'a Rule),
    /// The request does not meet this condition.
    Mismatch(Mismatch<'a>),
    /// The request meets this exception.
    Excepted(&'a Match),
    /// It has limits for other plans only.
    OtherPlan,
    /// It is off.
    Off,
}

impl fmt::Display for Applicability<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Applies(_) => f.write_str("applies"),
            Self::Mismatch(mismatch) => mismatch.fmt(f),
            Self::Excepted(exception) => write!(f, "excepted by {exception}"),
            Self::OtherPlan => f.write_str("it has no limit for this plan"),
            Self::Off => f.write_str("it is off"),
        }
    }
}
