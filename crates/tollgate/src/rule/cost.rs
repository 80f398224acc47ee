//! What requests cost.

use super::matching::Match;

/// The cost of requests of one kind: a report ten tokens, a read one.
///
/// If a request meets the conditions of several costs, the most specific one counts, and the first of equally specific ones. A
/// request that meets none costs 1. A [rule's own cost](super::Rule::cost) comes before both.
///
/// ```
/// use tollgate::{Cost, LocalLimiter, Match, Request, Rule, RuleSet};
///
/// let reports = Match::new().methods(["POST"])?.path("/reports".parse()?);
/// let rules = RuleSet::new([Rule::new("all", "100/h".parse()?)?])?.with_costs([Cost::new(reports, 10)]);
/// let path = rules.read_path("/reports")?;
/// assert_eq!(rules.matching(&Request::new().method("POST").path(&path)).cost(), 10);
/// assert_eq!(rules.matching(&Request::new().method("GET").path(&path)).cost(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    when: Match,
    tokens: u64,
}

impl Cost {
    /// Requests that meet these conditions cost this many tokens. 0 looks without charging.
    #[must_use]
    pub fn new(when: Match, tokens: u64) -> Self {
        Self { when, tokens }
    }

    /// The conditions.
    pub fn conditions(&self) -> &Match {
        &self.when
    }

    /// How many tokens.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens
    }
}
