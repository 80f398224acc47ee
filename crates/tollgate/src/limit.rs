//! Limits of five kinds, made by constructors or from text, and always valid.
//!
//! A [`Limit`] that exists is valid: every figure is in range and every product the algorithms form stays
//! exact. It knows nothing of keys, clocks or stores.

mod arithmetic;
mod parse;

use std::fmt;
use std::time::Duration;

use crate::rate::{LONGEST_DRAIN_US, LimitError, Rate, UTOK, span_text, whole_us};

use crate::algorithm::{FixedWindow, LeakyBucket, SlidingCounter, SlidingLog, TokenBucket};

/// The largest burst, queue or window limit.
const MAX_CAPACITY: u64 = 4_000_000_000;

/// The largest sliding log: it remembers every request of its window.
const MAX_LOGGED: u64 = 1_000_000;

/// How much is allowed, and by which algorithm.
///
/// ```
/// use tollgate::{Limit, Rate};
///
/// // Bursts of 50, then 10 a second.
/// let limit = Limit::token_bucket(Rate::per_second(10)?, 50)?;
/// assert_eq!("10/s burst 50".parse::<Limit>()?, limit);
///
/// // An error says what is wrong and what would be right.
/// let error = "10/s burst 0".parse::<Limit>().unwrap_err();
/// assert_eq!(error.to_string(), "the burst is 0 and would let nothing through; use at least 1");
/// # Ok::<(), tollgate::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(Kind);

/// The limit of each algorithm. Kept behind [`Limit`], so that each is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    TokenBucket(TokenBucket),
    LeakyBucket(LeakyBucket),
    FixedWindow(FixedWindow),
    SlidingLog(SlidingLog),
    SlidingCounter(SlidingCounter),
}

/// The five algorithms. `docs/guarantees.md` states what each promises, and `docs/algorithms.md` which to choose.
///
/// ```
/// use tollgate::{Algorithm, Limit};
///
/// let limit: Limit = "600 per 1m sliding_counter".parse()?;
/// assert_eq!(limit.algorithm(), Algorithm::SlidingCounter);
/// # Ok::<(), tollgate::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Bursts up to the capacity, then the sustained rate. The default.
    TokenBucket,
    /// A queue with a constant drain: smooths instead of rejecting, up to its size.
    LeakyBucket,
    /// A count per aligned window. Cheap; admits up to twice the limit across a boundary.
    FixedWindow,
    /// Remembers every request: never more than the limit in any window.
    SlidingLog,
    /// Two counts per key, the previous window weighed by how much of it is still covered.
    SlidingCounter,
}

impl Algorithm {
    /// All five.
    pub const ALL: [Self; 5] = [
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::FixedWindow,
        Self::SlidingLog,
        Self::SlidingCounter,
    ];

    /// The name used in limits and configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::LeakyBucket => "leaky_bucket",
            Self::FixedWindow => "fixed_window",
            Self::SlidingLog => "sliding_log",
            Self::SlidingCounter => "sliding_counter",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Limit {
    /// Bursts of up to `burst` at once, then `rate`.
    ///
    /// # Errors
    /// When `burst` is 0, above 4,000,000,000, or takes more than a century to refill.
    pub fn token_bucket(rate: Rate, burst: u64) -> Result<Self, LimitError> {
        let capacity = drainable("the burst", burst, &rate)?;
        Ok(Self(Kind::TokenBucket(TokenBucket::new(rate, capacity))))
    }

    /// A queue of up to `queue` that drains at `rate`; what is admitted may be told to go a little later.
    ///
    /// # Errors
    /// When `queue` is 0, above 4,000,000,000, or takes more than a century to drain.
    pub fn leaky_bucket(rate: Rate, queue: u64) -> Result<Self, LimitError> {
        let capacity = drainable("the queue", queue, &rate)?;
        Ok(Self(Kind::LeakyBucket(LeakyBucket::new(rate, capacity))))
    }

    /// `limit` in each window; windows are aligned to the clock (a minute starts at :00 UTC).
    ///
    /// # Errors
    /// When `limit` is 0 or above 4,000,000,000, or `window` is not between 1 ms and 400 days.
    pub fn fixed_window(limit: u64, window: Duration) -> Result<Self, LimitError> {
        let (limit, window_us) = windowed(limit, window, MAX_CAPACITY)?;
        Ok(Self(Kind::FixedWindow(FixedWindow::new(limit, window_us))))
    }

    /// Never more than `limit` in any window of this length. Remembers each admitted request (16 bytes).
    ///
    /// # Errors
    /// When `limit` is 0 or above 1,000,000, or `window` is not between 1 ms and 400 days.
    pub fn sliding_log(limit: u64, window: Duration) -> Result<Self, LimitError> {
        let (limit, window_us) = windowed(limit, window, MAX_LOGGED)?;
        Ok(Self(Kind::SlidingLog(SlidingLog::new(limit, window_us))))
    }

    /// `limit` in a window that slides: this window's count, and the last one's as far as it is still covered.
    ///
    /// # Errors
    /// When `limit` is 0 or above 4,000,000,000, or `window` is not between 1 ms and 400 days.
    pub fn sliding_counter(limit: u64, window: Duration) -> Result<Self, LimitError> {
        let (limit, window_us) = windowed(limit, window, MAX_CAPACITY)?;
        Ok(Self(Kind::SlidingCounter(SlidingCounter::new(
            limit, window_us,
        ))))
    }

    /// Which algorithm decides.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        match self.0 {
            Kind::TokenBucket(_) => Algorithm::TokenBucket,
            Kind::LeakyBucket(_) => Algorithm::LeakyBucket,
            Kind::FixedWindow(_) => Algorithm::FixedWindow,
            Kind::SlidingLog(_) => Algorithm::SlidingLog,
            Kind::SlidingCounter(_) => Algorithm::SlidingCounter,
        }
    }

    /// The most that fits at once: the burst, the queue, or the limit of the window. A cost above it never passes.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        match self.0 {
            Kind::TokenBucket(bucket) => bucket.capacity(),
            Kind::LeakyBucket(bucket) => bucket.capacity(),
            Kind::FixedWindow(window) => window.limit(),
            Kind::SlidingLog(log) => log.limit(),
            Kind::SlidingCounter(counter) => counter.limit(),
        }
    }

    /// The time in which [`capacity`](Self::capacity) comes back: the window, or what a full bucket takes to drain.
    #[must_use]
    pub fn window(&self) -> Duration {
        let drain = |rate: &Rate, capacity| rate.us_to_drain(capacity * UTOK);
        Duration::from_micros(match self.0 {
            Kind::TokenBucket(bucket) => drain(bucket.rate(), bucket.capacity()),
            Kind::LeakyBucket(bucket) => drain(bucket.rate(), bucket.capacity()),
            Kind::FixedWindow(window) => window.window_us(),
            Kind::SlidingLog(log) => log.window_us(),
            Kind::SlidingCounter(counter) => counter.window_us(),
        })
    }

    /// The rate of a bucket; `None` for windows, which have none.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        match self.0 {
            Kind::TokenBucket(bucket) => Some(*bucket.rate()),
            Kind::LeakyBucket(bucket) => Some(*bucket.rate()),
            Kind::FixedWindow(_) | Kind::SlidingLog(_) | Kind::SlidingCounter(_) => None,
        }
    }

    /// The `num`/`den`th part of it, rounded down, but at least room for one.
    #[cfg(feature = "redis")]
    #[must_use]
    pub(crate) fn share(&self, num: u64, den: u64) -> Self {
        let part = |n: u64| {
            let part = u128::from(n) * u128::from(num) / u128::from(den.max(1));
            u64::try_from(part).unwrap_or(n).max(1)
        };
        Self(match self.0 {
            Kind::TokenBucket(bucket) => Kind::TokenBucket(TokenBucket::new(
                bucket.rate().share(num, den),
                part(bucket.capacity()),
            )),
            Kind::LeakyBucket(bucket) => Kind::LeakyBucket(LeakyBucket::new(
                bucket.rate().share(num, den),
                part(bucket.capacity()),
            )),
            Kind::FixedWindow(window) => {
                Kind::FixedWindow(FixedWindow::new(part(window.limit()), window.window_us()))
            }
            Kind::SlidingLog(log) => {
                Kind::SlidingLog(SlidingLog::new(part(log.limit()), log.window_us()))
            }
            Kind::SlidingCounter(counter) => Kind::SlidingCounter(SlidingCounter::new(
                part(counter.limit()),
                counter.window_us(),
            )),
        })
    }

    #[inline]
    pub(crate) fn as_token_bucket(&self) -> Option<&TokenBucket> {
        match &self.0 {
            Kind::TokenBucket(bucket) => Some(bucket),
            _ => None,
        }
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.0
    }
}

/// The text that [`str::parse`] reads back as the same limit.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let windowed = |f: &mut fmt::Formatter<'_>, limit, window_us| {
            write!(
                f,
                "{limit} per {} {}",
                span_text(window_us),
                self.algorithm()
            )
        };
        match self.0 {
            Kind::TokenBucket(b) => write!(f, "{} burst {}", b.rate(), b.capacity()),
            Kind::LeakyBucket(b) => write!(f, "{} queue {}", b.rate(), b.capacity()),
            Kind::FixedWindow(w) => windowed(f, w.limit(), w.window_us()),
            Kind::SlidingLog(l) => windowed(f, l.limit(), l.window_us()),
            Kind::SlidingCounter(c) => windowed(f, c.limit(), c.window_us()),
        }
    }
}

fn counted(what: &'static str, got: u64, most: u64) -> Result<u64, LimitError> {
    match got {
        0 => Err(LimitError::Zero { what }),
        _ if got > most => Err(LimitError::TooLarge { what, got, most }),
        _ => Ok(got),
    }
}

fn windowed(limit: u64, window: Duration, most: u64) -> Result<(u64, u64), LimitError> {
    Ok((
        counted("the limit", limit, most)?,
        whole_us("the window", window)?,
    ))
}

fn drainable(what: &'static str, capacity: u64, rate: &Rate) -> Result<u64, LimitError> {
    counted(what, capacity, MAX_CAPACITY)?;
    let drained_in_time = u128::from(LONGEST_DRAIN_US) * u128::from(rate.drain_utok())
        / u128::from(rate.drain_us())
        / u128::from(UTOK);
    if u128::from(capacity) > drained_in_time {
        return Err(LimitError::TooSlow {
            capacity,
            rate: rate.to_string(),
            most: u64::try_from(drained_in_time).unwrap_or(MAX_CAPACITY),
        });
    }
    Ok(capacity)
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_down_and_never_nothing() {
        for (whole, num, den, part) in [
            ("8000/s burst 8000", 8, 80, "800/s burst 800"),
            ("10/s burst 50", 8, 30, "80/30s burst 13"),
            ("3/d burst 3", 8, 100, "24/100d burst 1"),
            ("100 per 1m fixed_window", 8, 30, "26 per 1m fixed_window"),
            (
                "1 per 1m sliding_counter",
                8,
                80,
                "1 per 1m sliding_counter",
            ),
        ] {
            let whole: Limit = whole.parse().unwrap();
            assert_eq!(whole.share(num, den).to_string(), part);
        }
    }

    #[test]
    fn a_share_of_the_finest_rate_is_no_faster() {
        let whole: Limit = "3999999990/400d burst 7".parse().unwrap();
        let (share, whole) = (whole.share(8, 7_770).rate(), whole.rate());
        let (share, whole) = (share.unwrap(), whole.unwrap());
        let per_us = |rate: Rate| u128::from(rate.drain_utok()) << 64;
        assert!(
            per_us(share) / u128::from(share.drain_us())
                <= per_us(whole) / u128::from(whole.drain_us()) * 8 / 7_770 + 1
        );
    }
}
