//! The five limits that follow from one.

use std::time::Duration;

use tollgate::{Limit, LimitError, Rate};

/// The limits that are compared, and what they have in common.
#[derive(Debug)]
pub(super) struct Limits {
    /// The one that the others are derived from.
    pub(super) original: Limit,
    pub(super) count: u64,
    /// The period of the count, and the window in which forwarded requests are counted.
    pub(super) period: Duration,
    /// One per algorithm, in the order of [`tollgate::Algorithm::ALL`].
    pub(super) all: [Limit; 5],
}

impl Limits {
    /// Buckets with the rate and the capacity of a limit, and windows with its rate.
    ///
    /// # Errors
    /// When a figure is valid for the original, but not for another: a sliding log holds less than a bucket.
    pub(super) fn derived_from(original: Limit) -> Result<Self, LimitError> {
        let rate = match original.rate() {
            Some(rate) => rate,
            None => Rate::new(original.capacity(), original.window())?,
        };
        let (count, period, capacity) = (rate.count(), rate.period(), original.capacity());
        Ok(Self {
            original,
            count,
            period,
            all: [
                Limit::token_bucket(rate, capacity)?,
                Limit::leaky_bucket(rate, capacity)?,
                Limit::fixed_window(count, period)?,
                Limit::sliding_log(count, period)?,
                Limit::sliding_counter(count, period)?,
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use tollgate::Algorithm;

    use super::*;

    fn texts(limit: &str) -> Vec<String> {
        let limits = Limits::derived_from(limit.parse().unwrap()).unwrap();
        limits.all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_bucket_gives_its_rate_to_the_windows() {
        assert_eq!(
            texts("100/s burst 200"),
            [
                "100/s burst 200",
                "100/s queue 200",
                "100 per 1s fixed_window",
                "100 per 1s sliding_log",
                "100 per 1s sliding_counter",
            ]
        );
        assert_eq!(texts("3000/s queue 5000"), texts("3000/s burst 5000"));
    }

    #[test]
    fn a_window_gives_its_limit_to_the_buckets() {
        assert_eq!(texts("200/min sliding_log"), texts("200/min burst 200"));
    }

    #[test]
    fn the_limits_have_the_order_of_the_algorithms() {
        let limits = Limits::derived_from("5/s".parse().unwrap()).unwrap();
        let algorithms: Vec<Algorithm> = limits.all.iter().map(Limit::algorithm).collect();
        assert_eq!(algorithms, Algorithm::ALL);
    }

    #[test]
    fn a_figure_too_large_for_one_of_them_is_rejected() {
        let error = Limits::derived_from("2000000/s".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("at most 1,000,000"), "{error}");
    }
}
