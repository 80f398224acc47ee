//! Why rules that are valid one by one do not form a rule set.

use std::fmt;

use super::MAX_TIERS;
use crate::name::Name;

/// Rules that do not form a [`RuleSet`](super::RuleSet).
///
/// ```
/// use tollgate::{Rule, RuleSet, RuleSetError};
///
/// let rule = Rule::new("client", "10/s".parse()?)?;
/// let error = RuleSet::new([rule.clone(), rule]).unwrap_err();
/// assert!(matches!(error, RuleSetError::Duplicate { .. }));
/// assert_eq!(error.id().map(|id| id.as_str()), Some("client"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleSetError {
    /// Two rules have the same id and plan.
    Duplicate {
        /// The id.
        id: Name,
        /// The plan; `None` for the rule without one.
        plan: Option<String>,
    },
    /// More rules could apply to one request than a decision can have tiers.
    TooMany {
        /// How many could apply.
        most: usize,
    },
    /// Rules of one id count by different dimensions.
    PerDiffers {
        /// The id.
        id: Name,
    },
    /// Rules of one id apply to different requests.
    MatchDiffers {
        /// The id.
        id: Name,
    },
}

impl RuleSetError {
    /// The id of the rules in question, if the error is about some.
    #[must_use]
    pub fn id(&self) -> Option<Name> {
        match self {
            Self::Duplicate { id, .. } | Self::PerDiffers { id } | Self::MatchDiffers { id } => {
                Some(*id)
            }
            Self::TooMany { .. } => None,
        }
    }
}

impl fmt::Display for RuleSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate { id, plan: None } => write!(
                f,
                "two rules have the id {id:?} and no plan; give one of them another id or a plan"
            ),
            Self::Duplicate {
                id,
                plan: Some(plan),
            } => write!(
                f,
                "two rules have the id {id:?} and the plan {plan:?}; give one of them another id or plan"
            ),
            Self::TooMany { most } => write!(
                f,
                "{most} of these rules could apply to one request, and at most {MAX_TIERS} can; remove those that are off, or \
                 separate them by path, host, plan or attribute"
            ),
            Self::PerDiffers { id } => write!(
                f,
                "the rules with the id {id:?} count by different things; give them the same `per`, or different ids"
            ),
            Self::MatchDiffers { id } => write!(
                f,
                "the rules with the id {id:?} are for different requests; give them the same `match` and `except`, or different ids"
            ),
        }
    }
}

impl std::error::Error for RuleSetError {}
