//! Rates: a number of tokens per period, kept exactly.
//!
//! A rate is held as a reduced fraction, `drain_utok / drain_us`: millionths of a token per
//! microseconds. 10/s is 10/1, 100/min is 5/3, 7/day is 7/86400. Nothing is rounded, and the
//! product of the two stays below 2^53, so that a script that knows only doubles computes the same.

mod amount;
mod error;

use std::fmt;
use std::time::Duration;

pub(crate) use amount::{grouped, period_text, span_text, unit_us};
pub use error::LimitError;

/// Microtokens in a token: the unit in which buckets remember what was used.
pub(crate) const UTOK: u64 = 1_000_000;

/// Integers up to here are exact in a double.
const EXACT: u128 = 1 << 53;

/// The fastest rate: tokens per second.
const FASTEST_PER_S: u64 = 10_000_000;

/// The longest window or period: 400 days.
pub(crate) const LONGEST_US: u64 = 400 * 86_400 * 1_000_000;

/// The longest a bucket may take to drain: a century. A limit that takes longer is refused; what a faster limit has left
/// behind counts as this.
pub(crate) const LONGEST_DRAIN_US: u64 = 36_525 * 86_400 * 1_000_000;

/// The shortest window or period: one millisecond.
pub(crate) const SHORTEST_US: u64 = 1_000;

/// A number of tokens per period, exactly.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Rate;
///
/// let rate = Rate::new(600, Duration::from_secs(60))?;
/// assert_eq!(rate, Rate::per_second(10)?);
/// assert_eq!(rate.to_string(), "600/m");
/// # Ok::<(), tollgate::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Tokens per period as written, for people; the period follows from the fraction.
    count: u64,
    drain_utok: u64,
    drain_us: u64,
}

/// Two rates are equal when they are equally fast, however they were written.
impl PartialEq for Rate {
    fn eq(&self, other: &Self) -> bool {
        (self.drain_utok, self.drain_us) == (other.drain_utok, other.drain_us)
    }
}

impl Eq for Rate {}

impl Rate {
    /// `count` tokens per `period`.
    ///
    /// # Errors
    /// When the count is zero, the period is shorter than 1 ms or longer than 400 days, the rate is above
    /// 10,000,000/s, or the fraction is too fine to be kept exactly.
    pub fn new(count: u64, period: Duration) -> Result<Self, LimitError> {
        let period_us = whole_us("the period", period)?;
        if count == 0 {
            return Err(LimitError::Zero { what: "the rate" });
        }
        if u128::from(count) * 1_000_000 > u128::from(FASTEST_PER_S) * u128::from(period_us) {
            return Err(LimitError::TooFast {
                count,
                period_us,
                most: (u128::from(FASTEST_PER_S) * u128::from(period_us) / 1_000_000)
                    .try_into()
                    .unwrap_or(u64::MAX),
            });
        }
        Self::exact(count, period_us).ok_or_else(|| LimitError::TooFine {
            count,
            period_us,
            instead: nearest_exact(count, period_us),
        })
    }

    /// `count` tokens per second.
    ///
    /// # Errors
    /// When the count is zero or above 10,000,000.
    pub fn per_second(count: u64) -> Result<Self, LimitError> {
        Self::new(count, Duration::from_secs(1))
    }

    /// The `num`/`den`th part of it, rounded down where it cannot be kept exactly.
    #[cfg(feature = "redis")]
    #[must_use]
    pub(crate) fn share(&self, num: u64, den: u64) -> Self {
        let (count, period_us) = (u128::from(self.count), u128::from(self.period_us()));
        let (parts, whole) = (count * u128::from(num), u128::from(den));
        let candidates = [
            // As it was written, if possible: 8,000/s become 800/s.
            (parts / whole, period_us, parts.is_multiple_of(whole)),
            (parts, period_us * whole, true),
            (parts / whole, period_us, parts >= whole),
            (1, (period_us * whole).div_ceil(parts.max(1)), true),
        ];
        let exact = |(count, period_us, is_candidate): (u128, u128, bool)| {
            let (count, period_us) = (u64::try_from(count).ok()?, u64::try_from(period_us).ok()?);
            (is_candidate && count > 0)
                .then(|| Self::exact(count, period_us))
                .flatten()
        };
        // The last one is always possible: a whole number of microseconds for one token.
        candidates.into_iter().find_map(exact).unwrap_or(Self {
            count: 1,
            drain_utok: 1,
            drain_us: LONGEST_DRAIN_US,
        })
    }

    fn exact(count: u64, period_us: u64) -> Option<Self> {
        let utok = u128::from(count) * u128::from(UTOK);
        let shared = gcd(utok, u128::from(period_us));
        let (drain_utok, drain_us) = (utok / shared, u128::from(period_us) / shared);
        (drain_utok * drain_us < EXACT).then_some(Self {
            count,
            drain_utok: u64::try_from(drain_utok).ok()?,
            drain_us: u64::try_from(drain_us).ok()?,
        })
    }

    /// Tokens per [`period`](Self::period), as the rate was written.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The period in which [`count`](Self::count) tokens flow.
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_micros(self.period_us())
    }

    fn period_us(&self) -> u64 {
        let utok = u128::from(self.count) * u128::from(UTOK);
        let us = utok / u128::from(self.drain_utok) * u128::from(self.drain_us);
        u64::try_from(us).unwrap_or(LONGEST_US)
    }

    /// The reduced fraction: this many microtokens …
    #[must_use]
    pub(crate) fn drain_utok(&self) -> u64 {
        self.drain_utok
    }

    /// … drain in this many microseconds.
    #[must_use]
    pub(crate) fn drain_us(&self) -> u64 {
        self.drain_us
    }

    /// The most that can have drained in a step that is not over.
    #[must_use]
    pub(crate) fn most_part_utok(&self) -> u64 {
        match self.drain_us {
            1 => 0,
            step_us => (step_us - 1) * self.drain_utok / step_us,
        }
    }

    /// Microseconds until `utok` microtokens have drained, rounded up; a century at most.
    #[must_use]
    pub(crate) fn us_to_drain(&self, utok: u64) -> u64 {
        if self.drain_us == 1 {
            return utok.div_ceil(self.drain_utok).min(LONGEST_DRAIN_US);
        }
        let (whole, rest) = (utok / self.drain_utok, utok % self.drain_utok);
        (whole.saturating_mul(self.drain_us))
            .saturating_add((rest * self.drain_us).div_ceil(self.drain_utok))
            .min(LONGEST_DRAIN_US)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, period_text(self.period_us()))
    }
}

/// A duration as whole microseconds between 1 ms and 400 days.
pub(crate) fn whole_us(what: &'static str, duration: Duration) -> Result<u64, LimitError> {
    let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    if us < SHORTEST_US {
        return Err(LimitError::TooShort { what });
    }
    if us > LONGEST_US {
        return Err(LimitError::TooLong { what });
    }
    if !duration.subsec_nanos().is_multiple_of(1_000) {
        return Err(LimitError::NotWholeMicroseconds { what });
    }
    Ok(us)
}

/// The largest rounder count below `count` that can be kept exactly, for the message.
fn nearest_exact(count: u64, period_us: u64) -> String {
    let mut step = 10;
    while step <= count {
        let rounded = count / step * step;
        if Rate::exact(rounded, period_us).is_some() {
            return format!("{}/{}", grouped(rounded), period_text(period_us));
        }
        step = step.saturating_mul(10);
    }
    "a whole number per second".to_owned()
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_kept_as_a_reduced_fraction() {
        for (count, secs, utok, us) in [(10, 1, 10, 1), (100, 60, 5, 3), (7, 86_400, 7, 86_400)] {
            let rate = Rate::new(count, Duration::from_secs(secs)).unwrap();
            assert_eq!((rate.drain_utok(), rate.drain_us()), (utok, us), "{rate}");
        }
    }

    #[test]
    fn waits_are_rounded_up_to_the_microsecond() {
        let rate = Rate::per_second(3).unwrap();
        assert_eq!(rate.us_to_drain(UTOK), 333_334);
        assert_eq!(rate.us_to_drain(3 * UTOK), 1_000_000);
    }

    #[test]
    fn too_fine_a_fraction_names_one_that_works() {
        let error = Rate::new(3_999_999_999, Duration::from_secs(400 * 86_400)).unwrap_err();
        assert!(error.to_string().contains("3,999,999,990/400d"), "{error}");
    }
}
