//! The counters on `/metrics` that tell who decided.

use std::ops::Add;

use crate::Result;
use crate::figures::Share;

/// Who decided, and how often the breaker opened, since the start of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Decisions by Redis.
    pub(crate) store: u64,
    /// Denials repeated from memory while Redis's denial was still valid.
    pub(crate) remembered: u64,
    /// Decisions by the gateway alone.
    pub(crate) fallback: u64,
    pub(crate) openings: u64,
    pub(crate) breaker_is_open: bool,
}

impl Counters {
    /// Reads the page of a gateway over Redis. A missing counter is an error.
    pub(crate) fn parse(page: &str) -> Result<Self> {
        let value = |name: &str| -> Result<u64> {
            let line = page
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let line = line.ok_or_else(|| format!("no {name} on /metrics"))?;
            Ok(line.trim().parse()?)
        };
        let decisions = |source| {
            value(&format!(
                "tollgate_store_decisions_total{{source=\"{source}\"}}"
            ))
        };
        Ok(Self {
            store: decisions("store")?,
            remembered: decisions("remembered")?,
            fallback: decisions("fallback")?,
            openings: value("tollgate_store_breaker_openings_total")?,
            breaker_is_open: value("tollgate_store_breaker_open")? == 1,
        })
    }

    /// The difference over a phase.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            store: self.store - earlier.store,
            remembered: self.remembered - earlier.remembered,
            fallback: self.fallback - earlier.fallback,
            openings: self.openings - earlier.openings,
            breaker_is_open: self.breaker_is_open,
        }
    }

    /// Share of decisions by the store. Remembered denials are left out, which makes it stricter.
    pub(crate) fn share(self) -> Share {
        Share {
            by_store: self.store,
            decisions: self.store + self.fallback,
        }
    }
}

impl Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            store: self.store + other.store,
            remembered: self.remembered + other.remembered,
            fallback: self.fallback + other.fallback,
            openings: self.openings + other.openings,
            breaker_is_open: self.breaker_is_open || other.breaker_is_open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# TYPE tollgate_store_decisions counter
tollgate_store_decisions_total{source=\"store\"} 990
tollgate_store_decisions_total{source=\"remembered\"} 5
tollgate_store_decisions_total{source=\"fallback\"} 10
tollgate_store_breaker_open 1
tollgate_store_breaker_openings_total 2
";

    #[test]
    fn counters_are_read_from_the_page() {
        let counters = Counters::parse(PAGE).unwrap();
        let expected = Counters {
            store: 990,
            remembered: 5,
            fallback: 10,
            openings: 2,
            breaker_is_open: true,
        };
        assert_eq!(counters, expected);
        assert_eq!(counters.since(counters).store, 0);
    }

    #[test]
    fn remembered_denials_do_not_raise_the_share() {
        let share = Counters::parse(PAGE).unwrap().share();
        assert_eq!(share.to_string(), "0.9900");
    }

    #[test]
    fn missing_counter_is_an_error() {
        let page = PAGE.replace("openings", "closings");
        let error = Counters::parse(&page).unwrap_err().to_string();
        assert!(error.contains("breaker_openings_total"), "{error}");
    }
}
