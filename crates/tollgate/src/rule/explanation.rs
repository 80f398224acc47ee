//! Which rules a request meets, and why it does not meet the others: for people who ask.

use super::Rule;
use super::cost::Cost;
use super::matching::Mismatch;
use crate::name::Name;

/// How a set of rules sees a request.
#[derive(Clone, Debug)]
pub struct Explanation<'a> {
    /// What the endpoint is called: as the request said, or the pattern of its path that says most.
    pub route: Option<&'a str>,
    /// What the request costs.
    pub cost: u64,
    /// The cost that counts; none if the request says its own, or no cost is for it.
    pub cost_by: Option<&'a Cost>,
    /// Every rule, in their order.
    pub rules: Vec<(Name, Standing<'a>)>,
}

/// How a rule stands to a request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Standing<'a> {
    /// It applies, with the figures of the request's plan.
    Applies(&'a Rule),
    /// The request does not look as it should.
    Misses(Mismatch<'a>),
    /// It has figures for other plans only.
    NotForPlan,
    /// It is switched off.
    Off,
}
