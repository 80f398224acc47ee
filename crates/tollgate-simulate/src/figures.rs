//! What was let through, counted: the figures that make algorithms comparable.
//!
//! Everything is counted in tokens (what requests cost), on the times at which requests *went*.

use std::time::Duration;

use tollgate::Limit;

use super::run::Passage;
use super::traffic::Traffic;

/// Each limit, with what it let through.
pub(super) type Results = [(Limit, Figures)];

/// The figures of one algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    /// What came, in tokens and in requests.
    pub(super) offered: Counted,
    /// What was let through.
    pub(super) admitted: Counted,
    /// What was not.
    pub(super) denied: Counted,
    /// The most tokens that went in any window of the limit's length.
    pub(super) worst_window: u64,
    /// The most tokens that went in any [burst span](burst_span).
    pub(super) largest_burst: u64,
    /// How long requests were held back.
    pub(super) delay: Delay,
}

/// So many requests, and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) tokens: u64,
    pub(super) requests: usize,
}

/// How long requests were held back between coming and going.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Delay {
    pub(super) max: Duration,
    pub(super) mean: Duration,
}

/// The short span in which the largest burst is counted: a tenth of the window.
pub(super) fn burst_span(window: Duration) -> Duration {
    window / 10
}

impl Figures {
    /// Counts what was let through of this traffic.
    pub(super) fn of(traffic: &Traffic, passages: &[Passage], window: Duration) -> Self {
        let offered = Counted {
            tokens: traffic.total_cost(),
            requests: traffic.arrivals.len(),
        };
        let admitted = Counted {
            tokens: passages.iter().map(|passage| passage.cost).sum(),
            requests: passages.len(),
        };
        Self {
            offered,
            admitted,
            denied: Counted {
                tokens: offered.tokens - admitted.tokens,
                requests: offered.requests - admitted.requests,
            },
            worst_window: most_in_any(window, passages),
            largest_burst: most_in_any(burst_span(window), passages),
            delay: Delay::of(passages),
        }
    }
}

impl Delay {
    fn of(passages: &[Passage]) -> Self {
        let delays = || {
            let us = |passage: &Passage| passage.left_us - passage.arrived_us;
            passages.iter().map(us).map(Duration::from_micros)
        };
        let total: Duration = delays().sum();
        Self {
            max: delays().max().unwrap_or_default(),
            mean: u32::try_from(passages.len()).map_or(Duration::ZERO, |n| total / n.max(1)),
        }
    }
}

/// The most tokens that went in any half-open window `[t, t + span)`.
///
/// Passages come in the order in which they went. The fullest window can be moved until it starts at one of them, so
/// two marks that only move forward find it.
fn most_in_any(span: Duration, passages: &[Passage]) -> u64 {
    let span_us = span.as_micros();
    let (mut most, mut inside, mut oldest) = (0, 0, 0);
    for newest in passages {
        inside += newest.cost;
        while u128::from(newest.left_us - passages[oldest].left_us) >= span_us {
            inside -= passages[oldest].cost;
            oldest += 1;
        }
        most = most.max(inside);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn went_at(times_us: &[u64]) -> Vec<Passage> {
        let passage = |left_us: &u64| Passage {
            arrived_us: 0,
            left_us: *left_us,
            cost: 1,
        };
        times_us.iter().map(passage).collect()
    }

    #[test]
    fn a_window_holds_its_start_and_not_its_end() {
        let passages = went_at(&[0, 999, 1_000, 1_001, 2_500]);
        assert_eq!(most_in_any(Duration::from_millis(1), &passages), 3);
        assert_eq!(
            most_in_any(Duration::from_millis(1), &went_at(&[0, 1_000])),
            1
        );
        assert_eq!(most_in_any(Duration::from_millis(1), &[]), 0);
    }

    #[test]
    fn windows_count_what_requests_cost() {
        let mut passages = went_at(&[0, 500, 5_000]);
        passages[1].cost = 7;
        assert_eq!(most_in_any(Duration::from_millis(1), &passages), 8);
    }

    #[test]
    fn delays_are_from_coming_to_going() {
        let delay = Delay::of(&went_at(&[0, 100, 500]));
        assert_eq!(delay.max, Duration::from_micros(500));
        assert_eq!(delay.mean, Duration::from_micros(200));
        assert_eq!(Delay::of(&[]), Delay::default());
    }
}
