//! Equal pieces of time, and what happened in each.

use std::ops::Range;
use std::time::Duration;

use super::super::run::Admission;
use super::super::traffic::Arrival;

/// A range of time in equal pieces that start at round times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bins {
    pub(super) start_us: u64,
    pub(super) width_us: u64,
    pub(super) count: u64,
}

impl Bins {
    /// Pieces of a round length that cover this range: at most `max`.
    pub(super) fn covering(range_us: &Range<u64>, max: u64) -> Self {
        let length_us = range_us.end.saturating_sub(range_us.start).max(1);
        // One more may be needed, because pieces start at round times.
        let width_us = round_spans().find(|us| length_us.div_ceil(*us) < max);
        let width_us = width_us.unwrap_or(length_us.div_ceil(max));
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

    /// Tokens that arrived in each piece.
    pub(super) fn offered(&self, arrivals: &[Arrival]) -> Vec<u64> {
        self.sum(arrivals.iter().map(|a| (a.at_us, a.cost)))
    }

    /// Tokens that arrived in each piece and were admitted.
    pub(super) fn admitted(&self, admissions: &[Admission]) -> Vec<u64> {
        self.sum(admissions.iter().map(|a| (a.arrived_us, a.cost)))
    }

    /// Tokens that were forwarded in each piece.
    pub(super) fn forwarded(&self, admissions: &[Admission]) -> Vec<u64> {
        self.sum(admissions.iter().map(|a| (a.forwarded_us, a.cost)))
    }

    fn sum(&self, costs: impl Iterator<Item = (u64, u64)>) -> Vec<u64> {
        let mut sums: Vec<u64> = (0..self.count).map(|_| 0).collect();
        for (at_us, cost) in costs {
            let since_us = at_us.checked_sub(self.start_us);
            let bin = since_us.and_then(|us| usize::try_from(us / self.width_us).ok());
            if let Some(sum) = bin.and_then(|bin| sums.get_mut(bin)) {
                *sum += cost;
            }
        }
        sums
    }
}

/// Round spans from a microsecond to years, in microseconds.
pub(super) fn round_spans() -> impl Iterator<Item = u64> {
    const SECOND: u64 = 1_000_000;
    const DAY: u64 = 86_400 * SECOND;
    let round = |powers: Range<u32>| {
        let powers = powers.map(|power| 10_u64.pow(power));
        powers.flat_map(|ten| [ten, 2 * ten, 5 * ten])
    };
    let clock = [
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    ];
    let seconds = clock.map(|seconds| seconds * SECOND);
    let days = round(0..5).map(|days| days * DAY);
    round(0..6).chain(seconds).chain(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 125;

    #[test]
    fn pieces_are_round_and_cover_everything() {
        for (start_us, end_us, width_us) in [
            (0, 5_000_000, 50_000),
            (999, 10_501_000, 100_000),
            (1_767_610_800_000_000, 1_767_697_200_000_000, 900_000_000),
            (7, 7, 1),
            (0, 1 << 52, 36_525 * 86_400_000_000 / 100),
        ] {
            let bins = Bins::covering(&(start_us..end_us), MAX);
            assert!(
                bins.start_us <= start_us && bins.end_us() >= end_us,
                "{bins:?}"
            );
            assert!((1..=MAX).contains(&bins.count), "{bins:?}");
            assert!(bins.width_us <= width_us * 10 && bins.start_us.is_multiple_of(bins.width_us));
        }
        assert_eq!(Bins::covering(&(0..5_000_000), MAX).width_us, 50_000);
        assert_eq!(Bins::covering(&(0..62_000_000), MAX).width_us, 500_000);
    }

    #[test]
    fn tokens_are_counted_at_arrival_and_at_forwarding() {
        let bins = Bins {
            start_us: 100,
            width_us: 10,
            count: 3,
        };
        let admissions = [
            Admission {
                arrived_us: 100,
                forwarded_us: 119,
                cost: 2,
            },
            Admission {
                arrived_us: 109,
                forwarded_us: 120,
                cost: 3,
            },
            Admission {
                arrived_us: 99,
                forwarded_us: 130,
                cost: 7,
            },
        ];
        assert_eq!(bins.admitted(&admissions), [5, 0, 0]);
        assert_eq!(bins.forwarded(&admissions), [0, 2, 3]);
    }
}
