//! The command `tollgate simulate`: runs the five algorithms over the same arrivals and shows what each lets
//! through, as a table and a chart.
//!
//! Arrivals come from a `scenario` or a file (`arrivals_csv`), and one `limit` for each algorithm from `limits`. `run`
//! plays the arrivals, `figures` counts, and `table`, `report` and `chart` show the result. It uses the engine as any
//! other program would.

mod arrivals_csv;
mod chart;
mod figures;
mod files;
mod limits;
mod progress;
mod random;
mod reading;
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

use arrivals_csv::CsvError;
use chart::{Chart, ChartError, Fonts, Panel};
use figures::{Figures, Results};
use files::WriteError;
use limits::Limits;
use progress::Progress;
use report::{ChartPaths, Report};
use run::Passage;
use table::Paint;
use traffic::Traffic;

/// What to simulate, and how to show the result.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// Where the arrivals come from.
    pub arrivals: Arrivals,
    /// The limit that all five are derived from; every scenario has its own.
    pub limit: Option<Limit>,
    /// Where to write the chart: a directory, or a path with or without an ending.
    pub out: Option<PathBuf>,
    /// Whether to draw a chart.
    pub draws_chart: bool,
    /// Whether to print one JSON document instead of a table.
    pub json: bool,
}

/// Where the arrivals come from.
#[derive(Clone, Debug)]
pub enum Arrivals {
    /// A built-in scenario, and another seed for it.
    Scenario(Scenario, Option<u64>),
    /// A CSV file, or stdin for `-`.
    Csv {
        /// Its path.
        file: PathBuf,
        /// Whether to sort the arrivals by time instead of refusing them when they are out of order.
        sort: bool,
    },
}

impl Arrivals {
    fn traffic(&self) -> Result<Traffic, CsvError> {
        match self {
            Self::Scenario(scenario, seed) => Ok(Traffic::of(*scenario, *seed)),
            Self::Csv { file, sort } => arrivals_csv::read(file, *sort),
        }
    }
}

/// Runs a simulation, prints its result to `out` and writes its chart.
///
/// # Errors
/// When a limit does not work for all five algorithms, the arrivals cannot be read, or the result cannot be written.
pub fn simulate(simulation: &Simulation, out: &mut impl Write) -> Result<(), SimulateError> {
    let traffic = simulation.arrivals.traffic()?;
    let limits = Limits::derived_from(match (simulation.limit, &simulation.arrivals) {
        (Some(limit), _) => limit,
        (None, Arrivals::Scenario(scenario, _)) => scenario.limit()?,
        (None, Arrivals::Csv { .. }) => {
            let text = "arrivals from a file need a limit, such as \"50/s burst 100\"";
            return Err(SimulateError::BadInput(text.to_owned()));
        }
    })?;
    let passages = play_all(&traffic, &limits)?;
    let results: Vec<(Limit, Figures)> = (limits.all.iter().zip(&passages))
        .map(|(limit, passages)| (*limit, Figures::of(&traffic, passages, limits.period)))
        .collect();
    let chart = match simulation.draws_chart {
        false => None,
        true => Some(write_chart(
            simulation.out.as_deref(),
            &traffic,
            &limits,
            &results,
            &passages,
        )?),
    };
    if simulation.json {
        let report = Report::new(&traffic, &limits, &results, chart);
        serde_json::to_writer_pretty(&mut *out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write_text(out, &traffic, &limits, &results, chart.as_ref())?;
    }
    Ok(out.flush()?)
}

fn play_all(traffic: &Traffic, limits: &Limits) -> Result<Vec<Vec<Passage>>, SimulateError> {
    let decisions = traffic.arrivals.len() * limits.all.len();
    let mut progress = Progress::of(decisions as u64);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| {
            SimulateError::Unavailable(format!("cannot start the simulation: {error}"))
        })?;
    Ok(runtime.block_on(async {
        let mut passages = Vec::with_capacity(limits.all.len());
        for limit in &limits.all {
            passages.push(run::play(limit, &traffic.arrivals, &mut progress).await);
        }
        passages
    }))
}

fn write_text(
    out: &mut impl Write,
    traffic: &Traffic,
    limits: &Limits,
    results: &Results,
    chart: Option<&ChartPaths>,
) -> io::Result<()> {
    let coloured =
        io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let paint = if coloured { Paint::Ansi } else { Paint::Plain };
    writeln!(out, "{}", paint.bold(&format!("{}.", traffic.shows)))?;
    writeln!(out, "{}\n", paint.dim(&format!("limit: {}", limits.said)))?;
    table::write(out, paint, limits, results)?;
    writeln!(out)?;
    for sentence in reading::reading(traffic.scenario, limits, results) {
        writeln!(out, "{}", text::wrapped(&sentence, 100))?;
    }
    if let Some(ChartPaths { svg, png }) = chart {
        writeln!(out, "\nchart: {} and {}", svg.display(), png.display())?;
    }
    Ok(())
}

fn write_chart(
    out: Option<&Path>,
    traffic: &Traffic,
    limits: &Limits,
    results: &Results,
    passages: &[Vec<Passage>],
) -> Result<ChartPaths, SimulateError> {
    let panels = (results.iter().zip(passages))
        .map(|((limit, figures), passages)| Panel {
            limit,
            figures,
            passages,
        })
        .collect();
    let fonts = Fonts::embedded()?;
    let drawing = Chart {
        traffic,
        limits,
        panels,
    }
    .draw(&fonts);
    let paths = chart_paths(out, &traffic.name);
    let png = drawing.to_png(&fonts)?;
    files::write_all(&[
        (&paths.svg, drawing.to_svg().as_bytes()),
        (&paths.png, &png),
    ])?;
    Ok(paths)
}

/// Both files from what the user said: a directory, or a path with or without an ending.
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
        Some(ending) if ending == "svg" || ending == "png" => path.with_extension(""),
        _ => path,
    };
    // Not `with_extension`: "v1.2" is a name, not a file with the ending "2".
    let with = |ending: &str| {
        let mut path = stem.clone().into_os_string();
        path.push(ending);
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
    /// The limit or the arrivals make no sense.
    BadInput(String),
    /// The chart could not be drawn or written, or the simulation not started.
    Unavailable(String),
    /// The output could not be printed.
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

impl From<CsvError> for SimulateError {
    fn from(error: CsvError) -> Self {
        Self::BadInput(error.to_string())
    }
}

impl From<ChartError> for SimulateError {
    fn from(error: ChartError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<WriteError> for SimulateError {
    fn from(error: WriteError) -> Self {
        Self::Unavailable(error.to_string())
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
    fn a_chart_goes_where_it_is_told() {
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
