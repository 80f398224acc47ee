//! All rules of one id: one rule, with a limit per plan.

use super::super::explanation::Applicability;
use super::super::matching::Match;
use super::super::{Dimension, Rule};
use super::RuleSetError;
use crate::name::Name;
use crate::request::Request;

#[derive(Clone, Debug)]
pub(crate) struct Family {
    id: Name,
    /// The conditions as they are matched: with the path in lower case if case is ignored.
    when: Box<Match>,
    except: Vec<Match>,
    /// Whether the index has not judged all conditions when it has judged the path.
    has_more_than_path: bool,
    /// Sorted by the names of their plans.
    for_plan: Vec<Rule>,
    for_others: Option<Rule>,
}

impl Family {
    pub(super) fn of(rule: Rule) -> Self {
        let mut family = Self {
            id: rule.id,
            when: Box::default(),
            except: Vec::new(),
            has_more_than_path: true,
            for_plan: Vec::new(),
            for_others: None,
        };
        family.insert(rule);
        family
    }

    pub(super) fn add(&mut self, rule: Rule) -> Result<(), RuleSetError> {
        let id = self.id;
        if let Some(first) = self.rules().next() {
            if !first.counts_by(&rule.per) {
                return Err(RuleSetError::PerDiffers { id });
            }
            if first.when != rule.when || first.except != rule.except {
                return Err(RuleSetError::MatchDiffers { id });
            }
        }
        let is_duplicate = match rule.plan.as_deref() {
            None => self.for_others.is_some(),
            Some(plan) => self.position_of(plan).is_ok(),
        };
        if is_duplicate {
            return Err(RuleSetError::Duplicate {
                id,
                plan: rule.plan.map(String::from),
            });
        }
        self.insert(rule);
        Ok(())
    }

    fn insert(&mut self, mut rule: Rule) {
        let Some(plan) = rule.plan.as_deref() else {
            self.for_others = Some(rule);
            return;
        };
        let position = self.position_of(plan).unwrap_or_else(|position| position);
        // A client has one plan and keeps its usage when that changes. Anything else can be counted for clients of several
        // plans, whose limits must not meet in one bucket.
        if !rule.per.contains(&Dimension::Client) && !rule.per.contains(&Dimension::Plan) {
            rule.per.push(Dimension::Plan);
        }
        self.for_plan.insert(position, rule);
    }

    fn position_of(&self, plan: &str) -> Result<usize, usize> {
        self.for_plan
            .binary_search_by(|rule| rule.plan_name().cmp(&Some(plan)))
    }

    /// Prepares the conditions for matching, with or without regard to the case of paths.
    pub(super) fn prepare(&mut self, ignore_case: bool) {
        let prepared = |when: &Match| match ignore_case {
            true => when.ignoring_case(),
            false => when.clone(),
        };
        let Some(first) = self.rules().next() else {
            return;
        };
        let when = prepared(&first.when);
        let except: Vec<Match> = first.except.iter().map(prepared).collect();
        self.has_more_than_path = when.has_more_than_path() || !except.is_empty();
        *self.when = when;
        self.except = except;
    }

    /// Whether a request whose path fits meets the conditions and no exception.
    #[inline]
    pub(super) fn fits_beside_path(&self, request: &Request<'_>) -> bool {
        !self.has_more_than_path
            || self.when.fits_beside_path(request) && self.exception_for(request).is_none()
    }

    fn exception_for(&self, request: &Request<'_>) -> Option<&Match> {
        self.except
            .iter()
            .find(|exception| exception.excepts(request))
    }

    /// The conditions as they are matched.
    pub(super) fn conditions(&self) -> &Match {
        &self.when
    }

    /// The exceptions as they are matched.
    pub(super) fn exceptions(&self) -> &[Match] {
        &self.except
    }

    /// The rule for the request's plan, or else the one without a plan.
    #[inline]
    pub(crate) fn rule_for(&self, request: &Request<'_>) -> Option<&Rule> {
        if !self.for_plan.is_empty()
            && let Some(plan) = request.plan_name()
            && let Ok(own) = self.position_of(plan)
        {
            return self.for_plan.get(own);
        }
        self.for_others.as_ref()
    }

    /// Whether the rule applies to a request, and why not.
    pub(super) fn applicability(&self, request: &Request<'_>) -> Applicability<'_> {
        if let Some(mismatch) = self.when.mismatch(request) {
            return Applicability::Mismatch(mismatch);
        }
        if let Some(exception) = self.exception_for(request) {
            return Applicability::Excepted(exception);
        }
        (self.rule_for(request)).map_or(Applicability::OtherPlan, Applicability::Applies)
    }

    pub(crate) fn id(&self) -> Name {
        self.id
    }

    pub(crate) fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.for_plan.iter().chain(&self.for_others)
    }

    /// Whether it has no limit for clients without one of its plans.
    pub(crate) fn is_for_plans_only(&self) -> bool {
        self.for_others.is_none()
    }

    /// Whether its conditions allow no other plans than these anyway.
    pub(crate) fn is_limited_to<'p>(&self, plans: impl Iterator<Item = &'p str>) -> bool {
        let plans: Vec<&str> = plans.collect();
        let mut allowed = self.when.plan_names().peekable();
        allowed.peek().is_some() && allowed.all(|allowed| plans.contains(&allowed))
    }

    /// Whether an exception covers all that the conditions allow.
    pub(crate) fn excepts_everything(&self) -> bool {
        let mut exceptions = self.except.iter();
        exceptions.any(|exception| {
            // Of several values of an attribute, one meets the conditions, and all must meet the exception.
            let is_same = *exception == *self.when && exception.attributes().is_empty();
            exception.is_everything() || is_same
        })
    }
}
