//! All rules of one id: one rule, with figures per plan.

use super::super::explanation::Standing;
use super::super::matching::Match;
use super::super::{Dimension, Rule};
use super::RuleSetError;
use crate::name::Name;
use crate::request::Request;

#[derive(Clone, Debug)]
pub(crate) struct Family {
    id: Name,
    /// As it is matched.
    when: Box<Match>,
    /// Whether it says more than a path.
    has_more_than_path: bool,
    /// By the names of their plans.
    for_plan: Vec<Rule>,
    for_others: Option<Rule>,
}

impl Family {
    pub(super) fn of(rule: Rule) -> Self {
        let mut family = Self {
            id: rule.id,
            when: Box::default(),
            has_more_than_path: true,
            for_plan: Vec::new(),
            for_others: None,
        };
        family.put(rule);
        family
    }

    pub(super) fn add(&mut self, rule: Rule) -> Result<(), RuleSetError> {
        let id = self.id;
        if let Some(first) = self.rules().next() {
            if !first.counts_by(&rule.per) {
                return Err(RuleSetError::PerDiffers { id });
            }
            if first.when != rule.when {
                return Err(RuleSetError::MatchDiffers { id });
            }
        }
        let is_twice = match rule.plan.as_deref() {
            None => self.for_others.is_some(),
            Some(plan) => self.place_of(plan).is_ok(),
        };
        if is_twice {
            return Err(RuleSetError::Twice {
                id,
                plan: rule.plan.map(String::from),
            });
        }
        self.put(rule);
        Ok(())
    }

    fn put(&mut self, mut rule: Rule) {
        let Some(plan) = rule.plan.as_deref() else {
            self.for_others = Some(rule);
            return;
        };
        let place = self.place_of(plan).unwrap_or_else(|place| place);
        // A client has one plan, and keeps what it used when that changes. Whatever else is counted by can
        // be met by clients of several plans, whose figures must not meet in one bucket.
        if !rule.per.contains(&Dimension::Client) && !rule.per.contains(&Dimension::Plan) {
            rule.per.push(Dimension::Plan);
        }
        self.for_plan.insert(place, rule);
    }

    fn place_of(&self, plan: &str) -> Result<usize, usize> {
        self.for_plan
            .binary_search_by(|rule| rule.plan_name().cmp(&Some(plan)))
    }

    /// Sees to it that it is matched so.
    pub(super) fn ignore_case(&mut self, ignore: bool) {
        let when = self.rules().next().map(|rule| match ignore {
            true => Box::new(rule.when.ignoring_case()),
            false => rule.when.clone(),
        });
        self.when = when.unwrap_or_default();
        self.has_more_than_path = self.when.has_more_than_path();
    }

    /// Whether a request whose path fits meets it.
    #[inline]
    pub(super) fn fits_beside_path(&self, request: &Request<'_>) -> bool {
        !self.has_more_than_path || self.when.fits_beside_path(request)
    }

    /// As they are matched.
    pub(super) fn conditions(&self) -> &Match {
        &self.when
    }

    /// The one for the request's plan, or else the one without a plan.
    #[inline]
    pub(crate) fn figures(&self, request: &Request<'_>) -> Option<&Rule> {
        if !self.for_plan.is_empty()
            && let Some(plan) = request.plan_name()
            && let Ok(own) = self.place_of(plan)
        {
            return self.for_plan.get(own);
        }
        self.for_others.as_ref()
    }

    /// How it stands to a request.
    pub(super) fn standing(&self, request: &Request<'_>) -> Standing<'_> {
        match (self.when.misses(request), self.figures(request)) {
            (Some(missed), _) => Standing::Misses(missed),
            (None, Some(rule)) => Standing::Applies(rule),
            (None, None) => Standing::NotForPlan,
        }
    }

    pub(crate) fn id(&self) -> Name {
        self.id
    }

    pub(crate) fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.for_plan.iter().chain(&self.for_others)
    }
}
