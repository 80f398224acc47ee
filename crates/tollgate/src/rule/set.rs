//! All rules, checked together.

use std::fmt;

use super::{Mode, Rule};
use crate::bucket::Dimension;
use crate::name::Name;
use crate::request::Request;

/// The most tiers of one request.
const MOST_TIERS: usize = 255;

/// Rules that fit together.
///
/// Rules of one id are one rule with figures per plan: a request meets the one of its plan, or else the one without
/// a plan. Every id that applies, applies.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    /// In the order in which the ids were first said.
    families: Vec<Family>,
}

/// All rules of one id.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    id: Name,
    for_plan: Vec<Rule>,
    for_others: Option<Rule>,
}

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
    /// More ids than a request may meet.
    TooMany,
    /// Rules of one id count by different things.
    PerDiffers {
        /// The id.
        id: Name,
    },
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
            Self::TooMany => write!(
                f,
                "these are more than {MOST_TIERS} rules that one request meets; leave out those that are off, or split them up"
            ),
            Self::PerDiffers { id } => write!(
                f,
                "the rules with the id {id:?} count by different things; give them the same `per`, or different ids"
            ),
        }
    }
}

impl std::error::Error for RuleSetError {}

impl RuleSet {
    /// Checks the rules against each other. Rules that are off are left out.
    ///
    /// # Errors
    /// When two have the same id and plan, or the same id and different dimensions, or there are more than 255 ids.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Result<Self, RuleSetError> {
        let mut set = Self::default();
        for rule in rules.into_iter().filter(|rule| rule.mode != Mode::Off) {
            set.add(rule)?;
        }
        if set.families.len() > MOST_TIERS {
            return Err(RuleSetError::TooMany);
        }
        Ok(set)
    }

    fn add(&mut self, mut rule: Rule) -> Result<(), RuleSetError> {
        let family = match self.families.iter().position(|f| f.id == rule.id) {
            Some(known) => &mut self.families[known],
            None => self.families.push_mut(Family {
                id: rule.id,
                for_plan: Vec::new(),
                for_others: None,
            }),
        };
        let mut known = family.for_plan.iter().chain(&family.for_others);
        if known.clone().any(|known| !known.counts_by(&rule.per)) {
            return Err(RuleSetError::PerDiffers { id: rule.id });
        }
        if known.any(|known| known.plan == rule.plan) {
            return Err(RuleSetError::Twice {
                id: rule.id,
                plan: rule.plan.map(String::from),
            });
        }
        match rule.plan {
            Some(_) => {
                // A client has one plan, and keeps what it used when that changes. Whatever else is counted by can
                // be met by clients of several plans, whose figures must not meet in one bucket.
                if !rule.per.contains(&Dimension::Client) && !rule.per.contains(&Dimension::Plan) {
                    rule.per.push(Dimension::Plan);
                }
                family.for_plan.push(rule);
            }
            None => family.for_others = Some(rule),
        }
        Ok(())
    }

    /// The rules this request meets.
    pub fn matching<'a>(&'a self, request: &Request<'_>) -> impl Iterator<Item = &'a Rule> {
        self.families
            .iter()
            .filter_map(move |family| family.matching(request))
    }

    #[cfg(feature = "redis")]
    pub(crate) fn families(&self) -> &[Family] {
        &self.families
    }
}

impl Family {
    /// The one for the request's plan, or else the one without a plan.
    pub(crate) fn matching(&self, request: &Request<'_>) -> Option<&Rule> {
        let own = self.for_plan.iter().find(|rule| {
            rule.plan
                .as_deref()
                .is_some_and(|plan| request.plan_name() == Some(plan))
        });
        own.or(self.for_others.as_ref())
    }

    #[cfg(feature = "redis")]
    pub(crate) fn id(&self) -> Name {
        self.id
    }

    #[cfg(feature = "redis")]
    pub(crate) fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.for_plan.iter().chain(&self.for_others)
    }
}
