//! What is valid in a rule set and probably a mistake.

use std::fmt;

use super::Rule;
use super::set::Family;
use crate::name::Name;

/// Something in a rule set that is valid and probably a mistake: see [`RuleSet::warnings`](super::RuleSet::warnings).
///
/// ```
/// use tollgate::{Dimension, Rule, RuleSet, RuleSetWarning};
///
/// let pro = Rule::new("client", "100/s".parse()?)?.per([Dimension::Client]).plan("pro");
/// let rules = RuleSet::new([pro])?;
/// let warnings = rules.warnings();
/// assert!(matches!(warnings[..], [RuleSetWarning::NoFallback { .. }]));
/// assert!(warnings[0].to_string().contains("clients without one of these plans are not limited"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleSetWarning {
    /// A rule has limits for plans only: clients without one of them are not limited by it.
    NoFallback {
        /// The id.
        id: Name,
        /// The plans it has limits for.
        plans: Vec<String>,
    },
    /// An exception covers every request, so that the rule never applies.
    ExceptsEverything {
        /// The id.
        id: Name,
    },
    /// A rule is for a plan that its own conditions exclude, so that it never applies.
    PlanExcluded {
        /// The id.
        id: Name,
        /// The plan.
        plan: String,
    },
    /// The cost that a rule sets is above its limit, so that it denies every request.
    CostAboveLimit {
        /// The id.
        id: Name,
        /// The plan, if the rule is for one.
        plan: Option<String>,
        /// The cost.
        cost: u64,
        /// What the limit holds.
        capacity: u64,
    },
}

impl RuleSetWarning {
    /// The id of the rule.
    #[must_use]
    pub fn id(&self) -> Name {
        match self {
            Self::NoFallback { id, .. }
            | Self::ExceptsEverything { id }
            | Self::PlanExcluded { id, .. }
            | Self::CostAboveLimit { id, .. } => *id,
        }
    }

    /// The plan of the rule, if the warning is about one plan.
    #[must_use]
    pub fn plan(&self) -> Option<&str> {
        match self {
            Self::PlanExcluded { plan, .. } => Some(plan),
            Self::CostAboveLimit { plan, .. } => plan.as_deref(),
            Self::NoFallback { .. } | Self::ExceptsEverything { .. } => None,
        }
    }
}

impl fmt::Display for RuleSetWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFallback { id, plans } => write!(
                f,
                "the rule {id:?} has limits for {} only: clients without one of these plans are not limited by it; add a rule of \
                 the same id without a plan",
                plans.join(", ")
            ),
            Self::ExceptsEverything { id } => write!(
                f,
                "the rule {id:?} excepts every request and never applies; remove the rule, or give the exception conditions"
            ),
            Self::PlanExcluded { id, plan } => write!(
                f,
                "the rule {id:?} is for the plan {plan:?}, which its conditions exclude: it never applies; remove one of the two"
            ),
            Self::CostAboveLimit {
                id, cost, capacity, ..
            } => write!(
                f,
                "the rule {id:?} charges {cost} for each request and holds {capacity}: it denies every request; raise the limit or \
                 lower the cost"
            ),
        }
    }
}

/// The warnings about the rules of one id.
pub(super) fn of_family(family: &Family, warnings: &mut Vec<RuleSetWarning>) {
    let id = family.id();
    let plans = || family.rules().filter_map(Rule::plan_name);
    if family.is_for_plans_only() && !family.is_limited_to(plans()) {
        warnings.push(RuleSetWarning::NoFallback {
            id,
            plans: plans().map(str::to_owned).collect(),
        });
    }
    if family.excepts_everything() {
        warnings.push(RuleSetWarning::ExceptsEverything { id });
    }
    for rule in family.rules() {
        let plan = rule.plan_name();
        let mut allowed = rule.conditions().plan_names().peekable();
        if let Some(plan) = plan
            && allowed.peek().is_some()
            && !allowed.any(|allowed| allowed == plan)
        {
            let plan = plan.to_owned();
            warnings.push(RuleSetWarning::PlanExcluded { id, plan });
        }
        let capacity = rule.limit().capacity();
        if let Some(cost) = rule.own_cost().filter(|cost| *cost > capacity) {
            warnings.push(RuleSetWarning::CostAboveLimit {
                id,
                plan: plan.map(str::to_owned),
                cost,
                capacity,
            });
        }
    }
}
