//! Commands of the program.

mod check_config;
mod config_files;
mod database;
mod explain;
mod simulate_chart;
mod simulate_csv;
mod simulate_figures;
mod simulate_refusals;
mod usage;

use serde_json::Value;
use tollgate_testing::Program;

/// What `tollgate simulate` prints. It must succeed.
fn simulate(program: &Program, args: &[&str]) -> String {
    program.stdout(&[&["simulate"], args].concat())
}

/// The figures of `tollgate simulate`, without a chart.
fn figures(program: &Program, args: &[&str]) -> Value {
    program.json(&[&["simulate"], args, &["--json", "--no-chart"]].concat())
}

/// What `tollgate simulate` reports when it fails with this exit code.
fn simulate_failure(program: &Program, exit_code: i32, args: &[&str]) -> String {
    program.failure(exit_code, &[&["simulate"], args].concat())
}

/// One algorithm's part of the figures.
fn figures_of<'a>(figures: &'a Value, algorithm: &str) -> &'a Value {
    let algorithms = figures["algorithms"].as_array().unwrap();
    let part = algorithms
        .iter()
        .find(|part| part["algorithm"] == algorithm);
    part.unwrap_or_else(|| panic!("{algorithm} is not in the figures"))
}
