//! The figures as JSON. Field names are a promise to scripts: add, never rename.

use std::path::PathBuf;

use serde::Serialize;

use super::figures::{Figures, Outcome, burst_span};
use super::limits::Limits;
use super::traffic::Traffic;

/// The report of a simulation.
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

/// The files of a chart.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ChartPaths {
    pub(super) svg: PathBuf,
    pub(super) png: PathBuf,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        traffic: &'a Traffic,
        limits: &Limits,
        outcomes: &'a [Outcome],
        chart: Option<ChartPaths>,
    ) -> Self {
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
