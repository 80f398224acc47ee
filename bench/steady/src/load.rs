//! What a load generator reports.

use std::time::Duration;

use crate::Result;

/// One in this many requests goes to the path with a limit that denies.
///
/// At 1,000 requests per second that is 200, twice what the limit admits.
pub(crate) const LIMITED_EVERY: u64 = 5;

/// Requests and their latencies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) requests: u64,
    /// Responses other than 200. wrk does not tell denials and errors apart.
    pub(crate) not_ok: u64,
    /// Requests without a response.
    pub(crate) failed: u64,
    pub(crate) length: Duration,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// `None` if some requests took longer than the generator measures.
    pub(crate) max: Option<Duration>,
}

impl Load {
    pub(crate) fn per_second(&self) -> u64 {
        let millis = u64::try_from(self.length.as_millis()).unwrap_or(u64::MAX);
        (self.requests * 1_000).checked_div(millis).unwrap_or(0)
    }

    /// Responses other than 200 that cannot be denials, because only the limited path is denied.
    pub(crate) fn errors(&self) -> u64 {
        // Each thread of wrk counts its requests on its own.
        let limited = self.requests.div_ceil(LIMITED_EVERY) + 2;
        self.not_ok.saturating_sub(limited)
    }

    /// Fails if the gateway answered with errors or left requests without a response.
    pub(crate) fn check(&self, name: &str) -> Result<()> {
        if self.errors() > 0 {
            return Err(format!("{name}: {} responses are errors", self.errors()).into());
        }
        if self.failed > 0 {
            return Err(format!("{name}: {} requests got no response", self.failed).into());
        }
        Ok(())
    }

    /// Adds a load that ran at the same time. Keeps the larger latencies.
    pub(crate) fn beside(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            not_ok: self.not_ok + other.not_ok,
            failed: self.failed + other.failed,
            length: self.length.max(other.length),
            p50: self.p50.max(other.p50),
            p99: self.p99.max(other.p99),
            max: Option::zip(self.max, other.max).map(|(one, two)| one.max(two)),
        }
    }
}

/// The value below which `percent` of the sorted latencies lie.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_of_the_list() {
        let sorted: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&sorted, 50), Duration::from_millis(100));
        assert_eq!(percentile(&sorted, 99), Duration::from_millis(198));
        assert_eq!(percentile(&sorted[..1], 99), Duration::from_millis(1));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }

    #[test]
    fn more_rejections_than_limited_requests_are_errors() {
        let load = |not_ok| Load {
            requests: 100,
            not_ok,
            ..Load::default()
        };
        assert_eq!(load(20).errors(), 0);
        assert_eq!(load(100).errors(), 78);
    }

    #[test]
    fn concurrent_loads_are_added() {
        let load = |requests, max| Load {
            requests,
            length: Duration::from_secs(2),
            max,
            ..Load::default()
        };
        let ms = |ms| Some(Duration::from_millis(ms));
        let both = load(10, ms(3)).beside(load(30, ms(5)));
        assert_eq!(
            (both.requests, both.per_second(), both.max),
            (40, 20, ms(5))
        );
        assert_eq!(both.beside(load(1, None)).max, None);
    }
}
