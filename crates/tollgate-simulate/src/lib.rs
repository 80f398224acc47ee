//! The command `tollgate simulate`: runs the five algorithms over the same arrivals and shows what each admits, as a table
//! and a chart.
//!
//! Arrivals are from a `scenario` or a CSV file (`arrivals_csv`), and `limits` derives one limit for each algorithm. `run`
//! asks the engine, `figures` counts, and `table`, `explanation`, `report` and `chart` show the result.

mod arrivals_csv;
mod chart;
mod explanation;
mod figures;
mod files;
mod limits;
mod report;
mod run;
mod scenario;
mod table;
mod text;
mod traffic;

use std::fmt;
use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use tollgate::{Limit, LimitError};

pub use scenario::Scenario;

use chart::Chart;
use figures::Outcome;
use limits::Limits;
use report::{ChartPaths, Report};
use run::Progress;
use table::Paint;
use traffic::Traffic;

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
    let limits = Limits::derived_from(limit)?;
    let mut progress = Progress::of(traffic.arrivals.len() * limits.all.len());
    let run = |limit: &Limit| {
        let admissions = run::admissions(limit, &traffic.arrivals, &mut progress);
        Outcome::of(&traffic, *limit, limits.period, admissions)
    };
    let outcomes: Vec<Outcome> = limits.all.iter().map(run).collect();
    drop(progress);
    let chart = Chart {
        traffic: &traffic,
        limits: &limits,
        outcomes: &outcomes,
    };
    let paths = simulation.draws_chart.then(|| {
        let paths = chart_paths(simulation.out.as_deref(), &traffic.name);
        write_chart(&chart, &paths).map(|()| paths)
    });
    let paths = paths.transpose().map_err(SimulateError::Unavailable)?;
    if simulation.json {
        let report = Report::new(&traffic, &limits, &outcomes, paths);
        serde_json::to_writer_pretty(&mut *out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write_text(out, &traffic, &limits, &outcomes, paths.as_ref())?;
    }
    Ok(out.flush()?)
}

fn write_text(
    out: &mut impl Write,
    traffic: &Traffic,
    limits: &Limits,
    outcomes: &[Outcome],
    chart: Option<&ChartPaths>,
) -> io::Result<()> {
    let coloured =
        io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let paint = if coloured { Paint::Ansi } else { Paint::Plain };
    writeln!(out, "{}", paint.bold(&format!("{}.", traffic.title)))?;
    writeln!(
        out,
        "{}\n",
        paint.dim(&format!("limit: {}", limits.original))
    )?;
    table::write(out, paint, limits, outcomes)?;
    writeln!(out)?;
    for sentence in explanation::sentences(traffic.scenario, limits, outcomes) {
        writeln!(out, "{}", text::wrapped(&sentence, 100))?;
    }
    if let Some(ChartPaths { svg, png }) = chart {
        writeln!(out, "\nchart: {} and {}", svg.display(), png.display())?;
    }
    Ok(())
}

fn write_chart(chart: &Chart<'_>, paths: &ChartPaths) -> Result<(), String> {
    let drawing = chart.draw()?;
    let png = drawing.to_png()?;
    files::write_all(&[
        (&paths.svg, drawing.to_svg().as_bytes()),
        (&paths.png, &png),
    ])
}

/// The paths of a chart, from a directory or from a path with or without an extension.
fn chart_paths(out: Option<&Path>, name: &str) -> ChartPaths {
    let default = format!("simulation-{name}");
    let path = match out {
        None => PathBuf::from(default),
        Some(path) if path.is_dir() || path.as_os_str().to_string_lossy().ends_with('/') => {
            path.join(default)
        }
        Some(path) => path.to_owned(),
    };
    let stem = match path.extension() {
        Some(extension) if extension == "svg" || extension == "png" => path.with_extension(""),
        _ => path,
    };
    // Not `with_extension`: "v1.2" is a name, not a file with the extension "2".
    let with = |extension: &str| {
        let mut path = stem.clone().into_os_string();
        path.push(extension);
        PathBuf::from(path)
    };
    ChartPaths {
        svg: with(".svg"),
        png: with(".png"),
    }
}

/// Why a simulation has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum SimulateError {
    /// The limit or the arrivals are not valid.
    BadInput(String),
    /// The chart could not be drawn or written.
    Unavailable(String),
    /// The result could not be printed.
    Output(io::Error),
}

impl fmt::Display for SimulateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadInput(text) | Self::Unavailable(text) => f.write_str(text),
            Self::Output(error) => write!(f, "cannot print the result: {error}"),
        }
    }
}

impl std::error::Error for SimulateError {}

impl From<LimitError> for SimulateError {
    fn from(error: LimitError) -> Self {
        Self::BadInput(format!(
            "the limit does not work for all five algorithms: {error}"
        ))
    }
}

impl From<io::Error> for SimulateError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_are_written_where_out_points() {
        let paths = |out: Option<&str>| {
            let ChartPaths { svg, png } = chart_paths(out.map(Path::new), "surge");
            (svg.display().to_string(), png.display().to_string())
        };
        let pair = |stem: &str| (format!("{stem}.svg"), format!("{stem}.png"));
        assert_eq!(paths(None), pair("simulation-surge"));
        assert_eq!(paths(Some("a/b")), pair("a/b"));
        assert_eq!(paths(Some("a/b.png")), pair("a/b"));
        assert_eq!(paths(Some("a/v1.2")), pair("a/v1.2"));
        assert_eq!(paths(Some("new/")), pair("new/simulation-surge"));
        assert_eq!(paths(Some("/")), pair("/simulation-surge"));
    }
}
