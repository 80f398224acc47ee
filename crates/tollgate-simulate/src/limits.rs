//! One limit said by the user, and the five that follow from it.

use std::time::Duration;

use tollgate::{Limit, LimitError, Rate};

/// The five limits that are compared, and what they have in common.
#[derive(Debug)]
pub(super) struct Limits {
    /// As it was said.
    pub(super) said: Limit,
    /// So many …
    pub(super) count: u64,
    /// … per this long. Also the window in which what was let through is counted.
    pub(super) period: Duration,
    /// One per algorithm, in the order of [`tollgate::Algorithm::ALL`].
    pub(super) all: Vec<Limit>,
}

impl Limits {
    /// From N per period and a burst or queue of B: buckets with both, windows of N per period.
    ///
    /// # Errors
    /// When a figure fits the algorithm that was said, but not another: a sliding log holds less than a bucket.
    pub(super) fn derived_from(said: Limit) -> Result<Self, LimitError> {
        let rate = match said.rate() {
            Some(rate) => rate,
            None => Rate::new(said.capacity(), said.window())?,
        };
        let (count, period, capacity) = (rate.count(), rate.period(), said.capacity());
        let all = [
            Limit::token_bucket(rate, capacity),
            Limit::leaky_bucket(rate, capacity),
            Limit::fixed_window(count, period),
            Limit::sliding_log(count, period),
            Limit::sliding_counter(count, period),
        ];
        Ok(Self {
            said,
            count,
            period,
            all: all.into_iter().collect::<Result<_, _>>()?,
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
    fn the_five_come_in_the_order_of_the_algorithms() {
        let limits = Limits::derived_from("5/s".parse().unwrap()).unwrap();
        let algorithms: Vec<Algorithm> = limits.all.iter().map(Limit::algorithm).collect();
        assert_eq!(algorithms, Algorithm::ALL);
    }

    #[test]
    fn what_one_of_the_five_cannot_hold_is_refused() {
        let error = Limits::derived_from("2000000/s".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("at most 1,000,000"), "{error}");
    }
}
