//! What can be wrong with a limit, and what would be right.

use std::fmt;

use super::amount::{grouped, period_text};

/// Why a limit was refused. Its text says what would be right.
///
/// ```
/// use tollgate::{Limit, LimitError};
///
/// let error = "10/fortnight".parse::<Limit>().unwrap_err();
/// assert!(matches!(error, LimitError::Syntax { position: 3, .. }));
/// # println!("{error}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// A rate, burst, queue or limit of zero.
    Zero {
        /// Which figure.
        what: &'static str,
    },
    /// A burst, queue or limit above what can be counted.
    TooLarge {
        /// Which figure.
        what: &'static str,
        /// What was asked for.
        got: u64,
        /// The largest that works.
        most: u64,
    },
    /// A rate above 10,000,000/s.
    TooFast {
        /// Tokens …
        count: u64,
        /// … per this many microseconds.
        period_us: u64,
        /// The largest count for that period.
        most: u64,
    },
    /// A fraction that cannot be kept exactly.
    TooFine {
        /// Tokens …
        count: u64,
        /// … per this many microseconds.
        period_us: u64,
        /// A rate close by that works.
        instead: String,
    },
    /// A bucket that takes more than a century to drain.
    TooSlow {
        /// The burst or queue.
        capacity: u64,
        /// The rate, as it was written.
        rate: String,
        /// The largest burst or queue for that rate.
        most: u64,
    },
    /// A window or period below 1 ms.
    TooShort {
        /// Which figure.
        what: &'static str,
    },
    /// A window or period above 400 days.
    TooLong {
        /// Which figure.
        what: &'static str,
    },
    /// A window or period with a part below a microsecond.
    NotWholeMicroseconds {
        /// Which figure.
        what: &'static str,
    },
    /// Text that is not a limit.
    Syntax {
        /// The text.
        input: String,
        /// Where in it, in bytes.
        position: usize,
        /// What should stand there.
        expected: String,
    },
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero { what } => {
                write!(
                    f,
                    "{what} is 0 and would let nothing through; use at least 1"
                )
            }
            Self::TooLarge { what, got, most } => write!(
                f,
                "{what} is {}; it can be at most {}",
                grouped(*got),
                grouped(*most)
            ),
            Self::TooFast {
                count,
                period_us,
                most,
            } => write!(
                f,
                "{}/{period} is faster than 10,000,000/s; use at most {}/{period}",
                grouped(*count),
                grouped(*most),
                period = period_text(*period_us),
            ),
            Self::TooFine {
                count,
                period_us,
                instead,
            } => write!(
                f,
                "{}/{} cannot be kept exactly; use {instead}",
                grouped(*count),
                period_text(*period_us),
            ),
            Self::TooSlow {
                capacity,
                rate,
                most,
            } => write!(
                f,
                "{} tokens at {rate} take more than a century to drain; use a faster rate, or at most {} tokens",
                grouped(*capacity),
                grouped(*most),
            ),
            Self::TooShort { what } => write!(f, "{what} is shorter than 1ms; use 1ms to 400d"),
            Self::TooLong { what } => write!(f, "{what} is longer than 400 days; use 1ms to 400d"),
            Self::NotWholeMicroseconds { what } => write!(
                f,
                "{what} has a part below a microsecond; use whole microseconds"
            ),
            Self::Syntax {
                input,
                position,
                expected,
            } => write!(
                f,
                "{:?} is not a limit: at column {}, expected {expected}",
                input,
                input.get(..*position).unwrap_or(input).chars().count() + 1,
            ),
        }
    }
}

impl std::error::Error for LimitError {}
