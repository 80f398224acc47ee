//! The command `tollgate simulate`: runs the five algorithms over the same arrivals and shows what each admits, as a table
//! and a chart.
//!
//! Arrivals are from a `scenario` or a CSV file (`arrivals_csv`). `run` derives one limit for each algorithm and asks the engine,
//! `figures` compares, and `table`, `explanation` and `chart` show the result.

mod arrivals_csv;
mod chart;
mod explanation;
mod figures;
mod files;
mod run;
mod scenario;
mod table;
mod text;

use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use tollgate::{Limit, LimitError};

pub use scenario::Scenario;

use figures::{Comparison, Report};
use files::ChartPaths;
use run::Limits;
use scenario::Traffic;
use table::Paint;

/// What to simulate, and how to show the result.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// Where the arrivals are from.
    pub arrivals: Arrivals,
    /// The limit that all five are derived from; every scenario has its own.
    pub limit: Option<Limit>,
    /// Where to write the chart: a directory, or a path with or without an extension.
    pub out: Option<PathBuf>,
    /// Whether to draw a chart.
    pub draws_chart: bool,
    /// Whether to print one JSON document instead of a table.
    pub json: bool,
}

/// Where the arrivals are from.
#[derive(Clone, Debug)]
pub enum Arrivals {
    /// A built-in scenario, and another seed for it.
    Scenario(Scenario, Option<u64>),
    /// A CSV file, or stdin for `-`.
    Csv {
        /// Its path.
        file: PathBuf,
        /// Whether to sort arrivals that are out of order instead of rejecting them.
        sort: bool,
    },
}

/// Runs a simulation, prints its result to `out` and writes its chart.
///
/// # Errors
/// When a limit does not work for all five algorithms, the arrivals cannot be read, or the result cannot be written.
pub fn simulate(simulation: &Simulation, out: &mut impl Write) -> Result<(), SimulateError> {
    let (traffic, default_limit) = match &simulation.arrivals {
        Arrivals::Scenario(scenario, seed) => {
            (Traffic::of(*scenario, *seed), Some(scenario.limit()?))
        }
        Arrivals::Csv { file, sort } => {
            let traffic = arrivals_csv::read(file, *sort).map_err(SimulateError::BadInput)?;
            (traffic, None)
        }
    };
    let Some(limit) = simulation.limit.or(default_limit) else {
        let message = "arrivals from a file need a limit, such as \"50/s burst 100\"";
        return Err(SimulateError::BadInput(message.to_owned()));
    };
    let comparison = Comparison::of(traffic, Limits::derived_from(limit)?);
    let chart = match simulation.draws_chart {
        true => Some(write_chart(&comparison, simulation.out.as_deref())),
        false => None,
    };
    let chart = chart.transpose().map_err(SimulateError::Unavailable)?;
    if simulation.json {
        let report = Report::new(&comparison, chart);
        serde_json::to_writer_pretty(&mut *out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write_text(out, &comparison, chart.as_ref())?;
    }
    Ok(out.flush()?)
}

fn write_chart(comparison: &Comparison, out: Option<&Path>) -> Result<ChartPaths, String> {
    let paths = ChartPaths::new(out, &comparison.traffic.name);
    let (svg, png) = chart::draw(comparison)?.finish()?;
    files::write_all(&[(&paths.svg, svg.as_bytes()), (&paths.png, &png)])?;
    Ok(paths)
}

fn write_text(
    out: &mut impl Write,
    comparison: &Comparison,
    chart: Option<&ChartPaths>,
) -> io::Result<()> {
    let coloured =
        io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let paint = if coloured { Paint::Ansi } else { Paint::Plain };
    let title = format!("{}.", comparison.traffic.title);
    let limit = format!("limit: {}", comparison.limits.original);
    writeln!(out, "{}\n{}\n", paint.bold(&title), paint.dim(&limit))?;
    table::write(out, paint, comparison)?;
    writeln!(out)?;
    for sentence in explanation::sentences(comparison) {
        writeln!(out, "{}", text::wrapped(&sentence, 100))?;
    }
    if let Some(ChartPaths { svg, png }) = chart {
        writeln!(out, "\nchart: {} and {}", svg.display(), png.display())?;
    }
    Ok(())
}

/// Why a simulation has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// The limit or the arrivals are not valid.
    #[error("{0}")]
    BadInput(String),
    /// The chart could not be drawn or written.
    #[error("{0}")]
    Unavailable(String),
    /// The result could not be printed.
    #[error("cannot print the result: {0}")]
    Output(#[from] io::Error),
}

impl From<LimitError> for SimulateError {
    fn from(error: LimitError) -> Self {
        Self::BadInput(format!(
            "the limit does not work for all five algorithms: {error}"
        ))
    }
}
