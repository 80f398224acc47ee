//! The referee's verdict on the requests that reached the upstream.

use tollgate_referee::{Bound, Log};

use crate::figures::Limit;
use crate::upstream::Arrival;

/// How much later than its entry in the log a request may have arrived: nginx logs whole
/// milliseconds, of a clock that it reads once per round of events.
pub(crate) const LOG_PRECISION_US: u64 = 2_000;

/// What the referee found in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) admitted: u64,
    /// Largest time between the decision and the entry in the log.
    pub(crate) delay_us: u64,
    /// Largest excess over any interval, as if requests arrived when they were admitted.
    pub(crate) excess_by_arrival: u64,
    /// Largest excess that the delay does not explain.
    pub(crate) excess: u64,
    /// Decisions without the store, which may cause as much excess.
    pub(crate) local: u64,
}

impl Verdict {
    /// Judges arrivals that carry the time they were sent.
    pub(crate) fn of_stamped(arrivals: &[Arrival], limit: Limit, local: u64) -> Self {
        let delay = |it: &Arrival| it.at_us.saturating_sub(it.sent_us.unwrap_or(it.at_us));
        let delay_us = arrivals.iter().map(delay).max().unwrap_or(0);
        Self::new(arrivals, limit, delay_us, local)
    }

    /// Judges arrivals of requests that took at most `delay_us`.
    ///
    /// A request is decided after it is sent and before it arrives, so arrivals within a length of L
    /// were decided within L + the longest delay. The bound over that is burst + rate × (L + delay):
    /// the referee gets a burst that is larger by rate × delay.
    pub(crate) fn new(arrivals: &[Arrival], limit: Limit, delay_us: u64, local: u64) -> Self {
        let log = Log::new(arrivals.iter().map(|arrival| (arrival.at_us, 1)));
        let excess = |burst: u64| {
            let bound = Bound::Bucket {
                burst,
                count: limit.rate,
                period_us: 1_000_000,
            };
            log.excess(bound).tokens
        };
        let delay_us = delay_us + LOG_PRECISION_US;
        let during_delay = (limit.rate * delay_us).div_ceil(1_000_000);
        Self {
            admitted: log.admitted(),
            delay_us,
            excess_by_arrival: excess(limit.burst),
            excess: excess(limit.burst + during_delay),
            local,
        }
    }

    /// Whether local decisions explain the excess.
    pub(crate) fn is_within_bound(&self) -> bool {
        self.excess <= self.local
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit {
        rate: 100,
        burst: 10,
    };

    fn arrivals(at_us: impl IntoIterator<Item = u64>, took_us: u64) -> Vec<Arrival> {
        let arrival = |at_us| Arrival {
            at_us,
            sent_us: Some(at_us - took_us),
        };
        at_us.into_iter().map(arrival).collect()
    }

    #[test]
    fn delay_explains_requests_that_arrive_together() {
        // 13 requests at once, of which some were sent 28 ms earlier: 10 + 100/s × 30 ms.
        let log = arrivals([1_000_000; 13], 28_000);
        let verdict = Verdict::of_stamped(&log, LIMIT, 0);
        assert_eq!((verdict.excess_by_arrival, verdict.excess), (3, 0));
        assert!(verdict.is_within_bound());
    }

    #[test]
    fn excess_beyond_the_delay_is_found() {
        let log = arrivals([1_000_000; 14], 28_000);
        let verdict = Verdict::of_stamped(&log, LIMIT, 0);
        assert_eq!(verdict.excess, 1);
        assert!(!verdict.is_within_bound());
    }

    #[test]
    fn local_decisions_explain_as_much_excess() {
        let log = arrivals([1_000_000; 20], 0);
        // The precision of the log alone is worth one token.
        assert!(Verdict::of_stamped(&log, LIMIT, 9).is_within_bound());
        assert!(!Verdict::of_stamped(&log, LIMIT, 8).is_within_bound());
    }
}
