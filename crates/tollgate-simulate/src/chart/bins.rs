//! Time cut into equal pieces, and what happened in each.

use std::ops::Range;
use std::time::Duration;

use super::super::run::Passage;
use super::super::traffic::Arrival;

/// A range of time in equal pieces that start at round times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bins {
    pub(super) start_us: u64,
    pub(super) width_us: u64,
    pub(super) count: u64,
}

impl Bins {
    /// Pieces of a round length that cover this range: fewer than `most`, and one more for a start between two.
    pub(super) fn covering(range_us: &Range<u64>, most: u64) -> Self {
        let length_us = range_us.end.saturating_sub(range_us.start).max(1);
        let width_us = round_spans().find(|us| length_us.div_ceil(*us) < most);
        let width_us = width_us.unwrap_or(length_us.div_ceil(most));
        let start_us = range_us.start - range_us.start % width_us;
        Self {
            start_us,
            width_us,
            count: (range_us.end.max(start_us + 1) - start_us).div_ceil(width_us),
        }
    }

    pub(super) fn width(&self) -> Duration {
        Duration::from_micros(self.width_us)
    }

    pub(super) fn length_us(&self) -> u64 {
        self.width_us * self.count
    }

    pub(super) fn end_us(&self) -> u64 {
        self.start_us + self.length_us()
    }

    /// Tokens that came in each piece.
    pub(super) fn offered(&self, arrivals: &[Arrival]) -> Vec<u64> {
        self.sum(arrivals.iter().map(|arrival| (arrival.at_us, arrival.cost)))
    }

    /// Tokens that came in each piece and were let in.
    pub(super) fn admitted(&self, passages: &[Passage]) -> Vec<u64> {
        self.sum(
            passages
                .iter()
                .map(|passage| (passage.arrived_us, passage.cost)),
        )
    }

    /// Tokens that went in each piece.
    pub(super) fn went(&self, passages: &[Passage]) -> Vec<u64> {
        self.sum(
            passages
                .iter()
                .map(|passage| (passage.left_us, passage.cost)),
        )
    }

    fn sum(&self, costs: impl Iterator<Item = (u64, u64)>) -> Vec<u64> {
        let mut sums: Vec<u64> = (0..self.count).map(|_| 0).collect();
        for (at_us, cost) in costs {
            let bin = at_us
                .checked_sub(self.start_us)
                .map(|us| us / self.width_us);
            let sum = bin
                .and_then(|bin| usize::try_from(bin).ok())
                .and_then(|bin| sums.get_mut(bin));
            if let Some(sum) = sum {
                *sum += cost;
            }
        }
        sums
    }
}

/// Spans that people count in, from a microsecond to years, in microseconds.
pub(super) fn round_spans() -> impl Iterator<Item = u64> {
    const SECOND: u64 = 1_000_000;
    const DAY: u64 = 86_400 * SECOND;
    let below_a_second = (0..6)
        .map(|power| 10_u64.pow(power))
        .flat_map(|ten| [ten, 2 * ten, 5 * ten]);
    let clock = [
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    ];
    let days = (0..5)
        .map(|power| 10_u64.pow(power))
        .flat_map(|ten| [ten, 2 * ten, 5 * ten]);
    below_a_second
        .chain(clock.map(|seconds| seconds * SECOND))
        .chain(days.map(|days| days * DAY))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 125;

    #[test]
    fn pieces_are_round_and_cover_everything() {
        for (start_us, end_us, width_us) in [
            (0, 5_000_000, 50_000),
            (999, 10_501_000, 100_000),
            (1_767_610_800_000_000, 1_767_697_200_000_000, 900_000_000),
            (7, 7, 1),
            (0, 1 << 52, 36_525 * 86_400_000_000 / 100),
        ] {
            let bins = Bins::covering(&(start_us..end_us), MOST);
            assert!(
                bins.start_us <= start_us && bins.end_us() >= end_us,
                "{bins:?}"
            );
            assert!((1..=MOST).contains(&bins.count), "{bins:?}");
            assert!(bins.width_us <= width_us * 10 && bins.start_us.is_multiple_of(bins.width_us));
        }
        assert_eq!(Bins::covering(&(0..5_000_000), MOST).width_us, 50_000);
        assert_eq!(Bins::covering(&(0..62_000_000), MOST).width_us, 500_000);
    }

    #[test]
    fn every_token_is_counted_where_it_came_and_where_it_went() {
        let bins = Bins {
            start_us: 100,
            width_us: 10,
            count: 3,
        };
        let passages = [
            Passage {
                arrived_us: 100,
                left_us: 119,
                cost: 2,
            },
            Passage {
                arrived_us: 109,
                left_us: 120,
                cost: 3,
            },
            Passage {
                arrived_us: 99,
                left_us: 130,
                cost: 7,
            },
        ];
        assert_eq!(bins.admitted(&passages), [5, 0, 0]);
        assert_eq!(bins.went(&passages), [0, 2, 3]);
    }
}
