//! Shares and ratios as exact fractions, rounded so that a missed goal never looks reached.

use std::fmt;

/// Share of decisions by the store. Printed with four decimals, rounded down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) by_store: u64,
    pub(crate) decisions: u64,
}

impl Share {
    /// Whether the share is at least `ten_thousandths` ÷ 10,000. No decisions reach no goal.
    pub(crate) fn is_at_least(self, ten_thousandths: u64) -> bool {
        self.decisions > 0 && self.by_store * 10_000 >= ten_thousandths * self.decisions
    }

    /// The lower of two shares.
    pub(crate) fn min(self, other: Self) -> Self {
        let is_lower = self.by_store * other.decisions <= other.by_store * self.decisions;
        if is_lower { self } else { other }
    }

    fn ten_thousandths(self) -> u64 {
        (self.by_store * 10_000)
            .checked_div(self.decisions)
            .unwrap_or(0)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = self.ten_thousandths();
        write!(f, "{}.{:04}", share / 10_000, share % 10_000)
    }
}

/// A token bucket: `burst` at once and `rate` per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) rate: u64,
    pub(crate) burst: u64,
}

impl fmt::Display for Limit {
    /// In the notation of the configuration file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s burst {}", self.rate, self.burst)
    }
}

/// Admitted requests ÷ what a limit allows in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ratio {
    admitted: u64,
    /// Allowed tokens times a million.
    allowed_millionths: u64,
}

impl Ratio {
    /// Compares with burst + rate × length.
    pub(crate) fn new(admitted: u64, limit: Limit, length_us: u64) -> Self {
        Self {
            admitted,
            allowed_millionths: limit.burst * 1_000_000 + limit.rate * length_us,
        }
    }

    pub(crate) fn is_at_most_one(self) -> bool {
        self.admitted * 1_000_000 <= self.allowed_millionths
    }

    /// With three decimals, rounded up.
    pub(crate) fn three_decimals(self) -> String {
        let ratio = self.rounded_up(1_000);
        format!("{}.{:03}", ratio / 1_000, ratio % 1_000)
    }

    fn rounded_up(self, parts: u64) -> u64 {
        (self.admitted * 1_000_000 * parts).div_ceil(self.allowed_millionths.max(1))
    }
}

impl fmt::Display for Ratio {
    /// With two decimals, rounded up: 1.001 is 1.01.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ratio = self.rounded_up(100);
        write!(f, "{}.{:02}", ratio / 100, ratio % 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit {
        rate: 100,
        burst: 200,
    };

    fn share(by_store: u64, decisions: u64) -> Share {
        Share {
            by_store,
            decisions,
        }
    }

    #[test]
    fn share_is_rounded_down() {
        assert_eq!(share(99_999, 100_000).to_string(), "0.9999");
        assert_eq!(share(998_999, 1_000_000).to_string(), "0.9989");
        assert_eq!(share(7, 7).to_string(), "1.0000");
        assert_eq!(share(0, 0).to_string(), "0.0000");
    }

    #[test]
    fn goal_is_compared_before_rounding() {
        assert!(share(999, 1_000).is_at_least(9_990));
        assert!(!share(998_999, 1_000_000).is_at_least(9_990));
        assert!(!share(0, 0).is_at_least(0));
    }

    #[test]
    fn lower_share_is_kept() {
        assert_eq!(share(1, 2).min(share(9, 10)), share(1, 2));
        assert_eq!(share(9, 10).min(share(1, 2)), share(1, 2));
    }

    #[test]
    fn ratio_is_rounded_up() {
        let ratio = |admitted| Ratio::new(admitted, LIMIT, 8_000_000);
        assert_eq!(ratio(1_000).to_string(), "1.00");
        assert_eq!(ratio(1_000).three_decimals(), "1.000");
        assert_eq!(ratio(1_001).to_string(), "1.01");
        assert_eq!(ratio(1_001).three_decimals(), "1.001");
        assert_eq!(ratio(991).to_string(), "1.00");
        assert_eq!(ratio(2_500).to_string(), "2.50");
        assert!(ratio(1_000).is_at_most_one());
        assert!(!ratio(1_001).is_at_most_one());
    }

    #[test]
    fn limit_is_written_as_in_the_configuration() {
        assert_eq!(LIMIT.to_string(), "100/s burst 200");
    }
}
