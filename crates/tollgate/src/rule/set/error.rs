//! What can be wrong with rules that are right each by itself.

use std::fmt;

use super::MOST_TIERS;
use crate::name::Name;

/// Rules that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleSetError {
    /// Two rules of the same id and plan.
    Twice {
        /// The id.
        id: Name,
        /// The plan; `None` for the rule without one.
        plan: Option<String>,
    },
    /// One request could meet more than it may.
    TooMany {
        /// So many.
        most: usize,
    },
    /// Rules of one id count by different things.
    PerDiffers {
        /// The id.
        id: Name,
    },
    /// Rules of one id are for different requests.
    MatchDiffers {
        /// The id.
        id: Name,
    },
}

impl RuleSetError {
    /// The id of the rules in question, if it is about some.
    #[must_use]
    pub fn id(&self) -> Option<Name> {
        match self {
            Self::Twice { id, .. } | Self::PerDiffers { id } | Self::MatchDiffers { id } => {
                Some(*id)
            }
            Self::TooMany { .. } => None,
        }
    }
}

impl fmt::Display for RuleSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice { id, plan: None } => write!(
                f,
                "two rules have the id {id:?} and no plan; give one of them another id or a plan"
            ),
            Self::Twice {
                id,
                plan: Some(plan),
            } => write!(
                f,
                "two rules have the id {id:?} and the plan {plan:?}; give one of them another id or plan"
            ),
            Self::TooMany { most } => write!(
                f,
                "one request could meet {most} of these rules; it can meet at most {MOST_TIERS}: leave out those that are off, or tell them apart by path, host, plan or attribute"
            ),
            Self::PerDiffers { id } => write!(
                f,
                "the rules with the id {id:?} count by different things; give them the same `per`, or different ids"
            ),
            Self::MatchDiffers { id } => write!(
                f,
                "the rules with the id {id:?} are for different requests; give them the same `match`, or different ids"
            ),
        }
    }
}

impl std::error::Error for RuleSetError {}
