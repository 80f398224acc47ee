//! The figures of a whole simulation, in the form in which they are printed as JSON.
//!
//! Field names are a promise to scripts: add, never rename.

use std::path::PathBuf;

use serde::Serialize;
use tollgate::{Algorithm, Limit};

use super::figures::{Counted, Figures, Results, burst_span};
use super::limits::Limits;
use super::text::percentage;
use super::traffic::Traffic;

/// One simulation.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    scenario: String,
    shows: String,
    limit: String,
    window_seconds: f64,
    burst_span_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    algorithms: Vec<AlgorithmReport>,
    chart: Option<ChartPaths>,
}

/// What one algorithm let through. Amounts are in tokens.
#[derive(Debug, Serialize)]
struct AlgorithmReport {
    algorithm: &'static str,
    limit: String,
    offered: u64,
    admitted: u64,
    denied: u64,
    denied_percent: f64,
    worst_window: u64,
    largest_burst: u64,
    /// Only a leaky bucket holds requests back.
    max_delay_seconds: Option<f64>,
    mean_delay_seconds: Option<f64>,
    requests: Requests,
}

/// The same, in requests.
#[derive(Debug, Serialize)]
struct Requests {
    offered: usize,
    admitted: usize,
    denied: usize,
}

/// Where the chart was written.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ChartPaths {
    pub(super) svg: PathBuf,
    pub(super) png: PathBuf,
}

impl Report {
    pub(super) fn new(
        traffic: &Traffic,
        limits: &Limits,
        results: &Results,
        chart: Option<ChartPaths>,
    ) -> Self {
        Self {
            scenario: traffic.name.clone(),
            shows: traffic.shows.clone(),
            limit: limits.said.to_string(),
            window_seconds: limits.period.as_secs_f64(),
            burst_span_seconds: burst_span(limits.period).as_secs_f64(),
            seed: traffic.seed,
            algorithms: results
                .iter()
                .map(|(limit, figures)| AlgorithmReport::new(limit, figures))
                .collect(),
            chart,
        }
    }
}

impl AlgorithmReport {
    fn new(limit: &Limit, figures: &Figures) -> Self {
        let delays = limit.algorithm() == Algorithm::LeakyBucket;
        let Counted {
            tokens: offered, ..
        } = figures.offered;
        Self {
            algorithm: limit.algorithm().name(),
            limit: limit.to_string(),
            offered,
            admitted: figures.admitted.tokens,
            denied: figures.denied.tokens,
            denied_percent: percentage(figures.denied.tokens, offered),
            worst_window: figures.worst_window,
            largest_burst: figures.largest_burst,
            max_delay_seconds: delays.then_some(figures.delay.max.as_secs_f64()),
            mean_delay_seconds: delays.then_some(figures.delay.mean.as_secs_f64()),
            requests: Requests {
                offered: figures.offered.requests,
                admitted: figures.admitted.requests,
                denied: figures.denied.requests,
            },
        }
    }
}
