//! The referee: reads a log of admissions and says by how much a limit was exceeded.
//!
//! It shares no code with the limiter and knows nothing of buckets, stores or clocks. It looks at what was let
//! through, over *all* intervals, and computes in exact integers. Every concurrency and fault test asks it.
//!
//! ```
//! use tollgate_referee::{Bound, Log};
//!
//! // 12 at once where 10 were allowed, at 5 a second.
//! let log = Log::new((0..12).map(|_| (1_000_000, 1)));
//! let bound = Bound::Bucket { burst: 10, count: 5, period_us: 1_000_000 };
//! assert_eq!(log.excess(bound).tokens, 2);
//! ```

use std::fmt;

/// What was admitted, and when: `(microseconds, cost)`, in order of time.
#[derive(Clone, Debug, Default)]
pub struct Log {
    admissions: Vec<(u64, u64)>,
}

/// What must not be exceeded.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// In any interval at most `burst + count / period × length`.
    Bucket {
        /// At once.
        burst: u64,
        /// So many …
        count: u64,
        /// … per so long.
        period_us: u64,
    },
    /// In any window of this length, wherever it starts, at most `limit`.
    AnyWindow {
        /// So many …
        limit: u64,
        /// … in so long.
        window_us: u64,
    },
    /// In each window that starts at a multiple of its length, at most `limit`.
    AlignedWindow {
        /// So many …
        limit: u64,
        /// … in so long.
        window_us: u64,
    },
}

/// The interval in which most was let through beyond the bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excess {
    /// By how many tokens, rounded up; 0 when the bound held everywhere.
    pub tokens: u64,
    /// How much was let through in that interval.
    pub admitted: u64,
    /// Its first admission.
    pub from_us: u64,
    /// Its last admission.
    pub to_us: u64,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} too many: {} were let through from {} µs to {} µs",
            self.tokens, self.admitted, self.from_us, self.to_us
        )
    }
}

/// A line of a log that is not `microseconds,cost`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Counted from 1.
    pub number: usize,
    /// What it says.
    pub text: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}: expected microseconds,cost and found {:?}",
            self.number, self.text
        )
    }
}

impl std::error::Error for BadLine {}

impl Log {
    /// A log of these admissions, in any order.
    pub fn new(admissions: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut admissions: Vec<_> = admissions.into_iter().collect();
        admissions.sort_unstable();
        Self { admissions }
    }

    /// Reads a log as text: one `microseconds,cost` per line.
    ///
    /// # Errors
    /// On the first line that is something else.
    pub fn parse(text: &str) -> Result<Self, BadLine> {
        let parse = |(index, line): (usize, &str)| {
            let fields = line.split_once(',');
            fields
                .and_then(|(at, cost)| Some((at.trim().parse().ok()?, cost.trim().parse().ok()?)))
                .ok_or_else(|| BadLine {
                    number: index + 1,
                    text: line.to_owned(),
                })
        };
        let admissions: Result<Vec<_>, _> = text.lines().enumerate().map(parse).collect();
        Ok(Self::new(admissions?))
    }

    /// Everything that was let through.
    #[must_use]
    pub fn admitted(&self) -> u64 {
        self.admissions.iter().map(|(_, cost)| cost).sum()
    }

    /// The largest excess over all intervals.
    #[must_use]
    pub fn excess(&self, bound: Bound) -> Excess {
        match bound {
            Bound::Bucket {
                burst,
                count,
                period_us,
            } => self.bucket_excess(burst, count, period_us),
            Bound::AnyWindow { limit, window_us } => self.most_in_any_window(window_us).over(limit),
            Bound::AlignedWindow { limit, window_us } => {
                self.most_in_aligned_window(window_us).over(limit)
            }
        }
    }

    /// The most that was let through in any window `[t, t + window)`.
    #[must_use]
    pub fn most_in_any_window(&self, window_us: u64) -> Excess {
        let mut worst = Excess::default();
        let (mut first, mut admitted) = (0, 0);
        for (to_us, cost) in &self.admissions {
            admitted += cost;
            while self.admissions[first].0 + window_us <= *to_us {
                admitted -= self.admissions[first].1;
                first += 1;
            }
            worst = worst.or(admitted, self.admissions[first].0, *to_us);
        }
        worst
    }

    fn most_in_aligned_window(&self, window_us: u64) -> Excess {
        let mut worst = Excess::default();
        let same = |a: &(u64, u64), b: &(u64, u64)| a.0 / window_us == b.0 / window_us;
        for window in self.admissions.chunk_by(same) {
            let admitted = window.iter().map(|(_, cost)| cost).sum();
            worst = worst.or(admitted, window[0].0, window[window.len() - 1].0);
        }
        worst
    }

    /// The largest `admitted − burst − rate × length` over all intervals that begin and end with an admission.
    ///
    /// With S the running total and everything times the period, an interval from i to j lets through
    /// `(S(j) − count·t(j)) − (S(i−1) − count·t(i))`: the largest is found in one pass by keeping the smallest
    /// second term so far.
    fn bucket_excess(&self, burst: u64, count: u64, period_us: u64) -> Excess {
        let (count, period) = (i128::from(count), i128::from(period_us));
        let allowed = i128::from(burst) * period;
        let mut total = 0_i128;
        let mut start: Option<(i128, i128, u64)> = None;
        let mut worst = (0_i128, Excess::default());
        for (at_us, cost) in &self.admissions {
            let drained = count * i128::from(*at_us);
            let before = total * period - drained;
            if start.is_none_or(|(smallest, _, _)| before < smallest) {
                start = Some((before, total, *at_us));
            }
            total += i128::from(*cost);
            let Some((smallest, total_before, from_us)) = start else {
                continue;
            };
            let over = total * period - drained - smallest - allowed;
            if over > worst.0 {
                worst = (
                    over,
                    Excess {
                        tokens: clamp(
                            over.div_euclid(period) + i128::from(over.rem_euclid(period) > 0),
                        ),
                        admitted: clamp(total - total_before),
                        from_us,
                        to_us: *at_us,
                    },
                );
            }
        }
        worst.1
    }
}

impl Excess {
    /// The worse of two.
    fn or(self, admitted: u64, from_us: u64, to_us: u64) -> Self {
        match admitted > self.admitted {
            false => self,
            true => Self {
                tokens: 0,
                admitted,
                from_us,
                to_us,
            },
        }
    }

    fn over(self, limit: u64) -> Self {
        match self.admitted.checked_sub(limit) {
            None | Some(0) => Self::default(),
            Some(tokens) => Self { tokens, ..self },
        }
    }
}

fn clamp(n: i128) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    fn bucket(burst: u64, count: u64) -> Bound {
        Bound::Bucket {
            burst,
            count,
            period_us: S,
        }
    }

    #[test]
    fn a_bucket_used_to_the_full_is_not_exceeded() {
        let burst = (0..10).map(|_| (0, 1));
        let sustained = (1..=100).map(|i| (i * S / 5, 1));
        let log = Log::new(burst.chain(sustained));
        assert_eq!(log.excess(bucket(10, 5)), Excess::default());
    }

    #[test]
    fn one_too_many_anywhere_is_found() {
        for extra in [0, 3 * S, 20 * S] {
            let burst = (0..10).map(|_| (0, 1));
            let sustained = (1..=100).map(|i| (i * S / 5, 1));
            let log = Log::new(burst.chain(sustained).chain([(extra, 1)]));
            let excess = log.excess(bucket(10, 5));
            assert_eq!(excess.tokens, 1, "{excess}");
        }
    }

    #[test]
    fn coming_a_microsecond_too_early_is_found() {
        let log = Log::new((0..10).map(|_| (0, 1)).chain([(S / 5 - 1, 1)]));
        assert_eq!(log.excess(bucket(10, 5)).tokens, 1);
    }

    #[test]
    fn the_interval_that_is_worst_is_named() {
        let log = Log::new([(0, 3), (10 * S, 8), (10 * S + 1, 7), (30 * S, 2)]);
        let excess = log.excess(bucket(10, 1));
        assert_eq!(
            (excess.tokens, excess.admitted, excess.from_us, excess.to_us),
            (5, 15, 10 * S, 10 * S + 1)
        );
    }

    #[test]
    fn windows_are_half_open() {
        let log = Log::new([(0, 5), (S - 1, 5), (S, 5)]);
        assert_eq!(log.most_in_any_window(S).admitted, 10);
        let any = Bound::AnyWindow {
            limit: 9,
            window_us: S,
        };
        assert_eq!(log.excess(any).tokens, 1);
        let aligned = Bound::AlignedWindow {
            limit: 10,
            window_us: S,
        };
        assert_eq!(log.excess(aligned).tokens, 0);
    }

    #[test]
    fn a_log_is_read_from_text_and_a_bad_line_is_named() {
        let log = Log::parse("1,2\n 5, 3\n").unwrap();
        assert_eq!(log.admitted(), 5);
        let error = Log::parse("1,2\nhello\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 2: expected microseconds,cost and found \"hello\""
        );
    }
}
