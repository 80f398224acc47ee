//! The results of a simulation in figures that make algorithms comparable, and their JSON report.
//!
//! Costs are counted in tokens, at the times at which requests were forwarded.

use std::time::Duration;

use serde::{Serialize, Serializer};
use tollgate::{Algorithm, Limit};

use super::files::ChartPaths;
use super::run::{self, Admission, Limits, Progress};
use super::scenario::Traffic;
use super::text::percentage;

/// The same traffic through five algorithms.
pub(super) struct Comparison {
    pub(super) traffic: Traffic,
    pub(super) limits: Limits,
    /// One per algorithm, in the order of [`Algorithm::ALL`].
    pub(super) outcomes: [Outcome; 5],
}

/// The result of one algorithm.
pub(super) struct Outcome {
    pub(super) limit: Limit,
    pub(super) admissions: Vec<Admission>,
    pub(super) figures: Figures,
}

/// The figures of one algorithm, as they are in the report.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    pub(super) offered: u64,
    pub(super) admitted: u64,
    pub(super) denied: u64,
    denied_percent: f64,
    /// The highest total in any window of the limit's length.
    pub(super) worst_window: u64,
    /// The highest total in any [burst span](burst_span).
    pub(super) largest_burst: u64,
    /// The time between arrival and forwarding; `None` for an algorithm that never delays.
    #[serde(rename = "max_delay_seconds", serialize_with = "seconds")]
    pub(super) max_delay: Option<Duration>,
    #[serde(rename = "mean_delay_seconds", serialize_with = "seconds")]
    pub(super) mean_delay: Option<Duration>,
    requests: Requests,
}

/// Numbers of requests.
#[derive(Debug, Serialize)]
struct Requests {
    offered: usize,
    admitted: usize,
    denied: usize,
}

fn seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// The short span in which the largest burst is counted: a tenth of the window.
pub(super) fn burst_span(window: Duration) -> Duration {
    window / 10
}

impl Comparison {
    pub(super) fn of(traffic: Traffic, limits: Limits) -> Self {
        let mut progress = Progress::of(traffic.arrivals.len() * limits.all.len());
        let outcome = |limit: &Limit| {
            let admissions = run::admissions(limit, &traffic.arrivals, &mut progress);
            Outcome {
                limit: *limit,
                figures: Figures::of(&traffic, limit, limits.period, &admissions),
                admissions,
            }
        };
        Self {
            outcomes: limits.all.each_ref().map(outcome),
            traffic,
            limits,
        }
    }
}

impl Figures {
    fn of(traffic: &Traffic, limit: &Limit, window: Duration, admissions: &[Admission]) -> Self {
        let delays = (limit.algorithm() == Algorithm::LeakyBucket).then(|| delays(admissions));
        let offered = traffic.total_cost();
        let admitted: u64 = admissions.iter().map(|admission| admission.cost).sum();
        let denied = offered - admitted;
        Self {
            offered,
            admitted,
            denied,
            denied_percent: percentage(denied, offered),
            worst_window: most_in_any(window, admissions),
            largest_burst: most_in_any(burst_span(window), admissions),
            max_delay: delays.map(|(max, _)| max),
            mean_delay: delays.map(|(_, mean)| mean),
            requests: Requests {
                offered: traffic.arrivals.len(),
                admitted: admissions.len(),
                denied: traffic.arrivals.len() - admissions.len(),
            },
        }
    }
}

/// The maximum and the mean time between arrival and forwarding.
fn delays(admissions: &[Admission]) -> (Duration, Duration) {
    let delays = admissions.iter().map(|a| a.forwarded_us - a.arrived_us);
    let delays = delays.map(Duration::from_micros);
    let count = u32::try_from(admissions.len()).unwrap_or(u32::MAX).max(1);
    let max = delays.clone().max().unwrap_or_default();
    (max, delays.sum::<Duration>() / count)
}

/// The highest total cost forwarded in any half-open window `[t, t + span)`.
///
/// Requests are sorted by the time at which they were forwarded. The fullest window can be moved until it starts at one
/// of them, so two positions that only move forward find it.
fn most_in_any(span: Duration, admissions: &[Admission]) -> u64 {
    let span_us = span.as_micros();
    let (mut most, mut inside, mut oldest) = (0, 0, 0);
    for newest in admissions {
        inside += newest.cost;
        while u128::from(newest.forwarded_us - admissions[oldest].forwarded_us) >= span_us {
            inside -= admissions[oldest].cost;
            oldest += 1;
        }
        most = most.max(inside);
    }
    most
}

/// The report of a simulation. Field names are a promise to scripts: add, never rename.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    scenario: &'a str,
    shows: &'a str,
    limit: String,
    window_seconds: f64,
    burst_span_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    algorithms: Vec<AlgorithmReport<'a>>,
    chart: Option<ChartPaths>,
}

/// The report of one algorithm. Amounts are in tokens.
#[derive(Debug, Serialize)]
struct AlgorithmReport<'a> {
    algorithm: &'static str,
    limit: String,
    #[serde(flatten)]
    figures: &'a Figures,
}

impl<'a> Report<'a> {
    pub(super) fn new(comparison: &'a Comparison, chart: Option<ChartPaths>) -> Self {
        let Comparison {
            traffic,
            limits,
            outcomes,
        } = comparison;
        let algorithm = |outcome: &'a Outcome| AlgorithmReport {
            algorithm: outcome.limit.algorithm().name(),
            limit: outcome.limit.to_string(),
            figures: &outcome.figures,
        };
        Self {
            scenario: &traffic.name,
            shows: &traffic.title,
            limit: limits.original.to_string(),
            window_seconds: limits.period.as_secs_f64(),
            burst_span_seconds: burst_span(limits.period).as_secs_f64(),
            seed: traffic.seed,
            algorithms: outcomes.iter().map(algorithm).collect(),
            chart,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded_at(times_us: &[u64]) -> Vec<Admission> {
        let admission = |forwarded_us: &u64| Admission {
            arrived_us: 0,
            forwarded_us: *forwarded_us,
            cost: 1,
        };
        times_us.iter().map(admission).collect()
    }

    #[test]
    fn a_window_includes_its_start_and_not_its_end() {
        let most = |times_us: &[u64]| {
            let admissions = forwarded_at(times_us);
            most_in_any(Duration::from_millis(1), &admissions)
        };
        assert_eq!(most(&[0, 999, 1_000, 1_001, 2_500]), 3);
        assert_eq!(most(&[0, 1_000]), 1);
        assert_eq!(most(&[]), 0);
    }

    #[test]
    fn windows_count_costs() {
        let mut admissions = forwarded_at(&[0, 500, 5_000]);
        admissions[1].cost = 7;
        assert_eq!(most_in_any(Duration::from_millis(1), &admissions), 8);
    }

    #[test]
    fn delays_are_from_arrival_to_forwarding() {
        let (max, mean) = delays(&forwarded_at(&[0, 100, 500]));
        assert_eq!(max, Duration::from_micros(500));
        assert_eq!(mean, Duration::from_micros(200));
        assert_eq!(delays(&[]), (Duration::ZERO, Duration::ZERO));
    }
}
