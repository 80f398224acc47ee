//! What requests cost.

use super::matching::Match;

/// What requests of a kind cost: a report ten tokens, a read one.
///
/// Of several that a request meets, the one counts that says most of it, and of equal ones the first. A request that meets none
/// costs 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    when: Match,
    tokens: u64,
}

impl Cost {
    /// Requests like this take so many tokens. 0 looks without charging.
    #[must_use]
    pub fn new(when: Match, tokens: u64) -> Self {
        Self { when, tokens }
    }

    /// Which requests.
    #[must_use]
    pub fn conditions(&self) -> &Match {
        &self.when
    }

    /// How many tokens.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens
    }
}
