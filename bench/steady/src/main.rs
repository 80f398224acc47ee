//! `make steady`: proves that a busy machine is not mistaken for a failed Redis.
//!
//! Starts the real program, Redis, nginx and Envoy, runs one phase after the other, writes a report
//! and prints one line to compare. Fails if a goal is missed or the referee finds too much.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that measures and prints"
)]

mod busy;
mod envoy;
mod figures;
mod load;
mod metrics;
mod outage;
mod outcome;
mod paced;
mod pauses;
mod phase;
mod process;
mod report;
mod shared_rule;
mod tollgate;
mod upstream;
mod verdict;
mod wrk;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::outcome::Outcome;
use crate::phase::Phase;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Proves that a busy machine is not mistaken for a failed Redis.
#[derive(Debug, Parser)]
struct Arguments {
    /// The program `tollgate`.
    #[arg(long, default_value = "target/release/tollgate")]
    tollgate: PathBuf,
    /// The program `envoy`.
    #[arg(long, default_value = "target/servers/envoy")]
    envoy: PathBuf,
    /// Envoy's configuration.
    #[arg(long, default_value = "docs/gateways/envoy.yaml")]
    envoy_config: PathBuf,
    /// Length of each saturated or paced phase in seconds. Others are at most as long.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(2..=600))]
    seconds: u64,
    /// Runs only these steps.
    #[arg(long, value_enum)]
    only: Vec<Step>,
    /// When and where this runs, for the report.
    #[arg(long, default_value = "")]
    circumstances: String,
    /// Where to write the report.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// A step of the run, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    Saturated,
    Paced,
    RedisPauses,
    OwnStalls,
    Outage,
    FourGateways,
    Envoy,
}

impl Arguments {
    /// The length of a phase that takes `seconds` in a whole run.
    fn length(&self, seconds: u64) -> Duration {
        Duration::from_secs(self.seconds.min(seconds))
    }

    fn runs(&self, step: Step) -> bool {
        self.only.is_empty() || self.only.contains(&step)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether all goals were met.
fn run(arguments: &Arguments) -> Result<bool> {
    let outcome = measure(arguments)?;
    let text = report::markdown(&outcome, &arguments.circumstances);
    println!("{text}");
    if let Some(path) = &arguments.out {
        std::fs::write(path, text)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        println!("written to {}\n", path.display());
    }
    println!("{}", outcome.summary());
    Ok(outcome.is_success())
}

fn measure(arguments: &Arguments) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    measure_busy(arguments, &mut outcome)?;
    let program = &arguments.tollgate;
    if arguments.runs(Step::Outage) {
        let (phase, outage) = outage::outage(program)?;
        outcome.outage = Some(outage);
        record(&mut outcome, phase);
    }
    if arguments.runs(Step::FourGateways) {
        let phase = shared_rule::four_gateways(program, arguments.length(10))?;
        outcome.four_gateways = phase.ratio;
        record(&mut outcome, phase);
    }
    if arguments.runs(Step::Envoy) {
        let (envoy, configuration) = (&arguments.envoy, &arguments.envoy_config);
        let phase = shared_rule::envoy(program, envoy, configuration, arguments.length(10))?;
        outcome.envoy = phase.ratio;
        record(&mut outcome, phase);
    }
    Ok(outcome)
}

/// The phases before the outage, in which the breaker must stay closed.
fn measure_busy(arguments: &Arguments, outcome: &mut Outcome) -> Result<()> {
    let program = &arguments.tollgate;
    let length = Duration::from_secs(arguments.seconds);
    let share = |phase: &Phase| phase.counters.map(metrics::Counters::share);
    if arguments.runs(Step::Saturated) {
        for connections in [64, 512] {
            let phase = busy::saturated(program, connections, length)?;
            outcome.saturated = lower(outcome.saturated, share(&phase));
            record(outcome, phase);
        }
    }
    if arguments.runs(Step::Paced) {
        for per_second in [1_000, 3_000] {
            let phase = busy::paced(program, per_second, length)?;
            outcome.paced = lower(outcome.paced, share(&phase));
            record(outcome, phase);
        }
    }
    if arguments.runs(Step::RedisPauses) {
        let phase = busy::redis_pauses(program, arguments.length(20))?;
        outcome.redis_pauses = share(&phase);
        record(outcome, phase);
    }
    if arguments.runs(Step::OwnStalls) {
        let phase = busy::own_stalls(program, arguments.length(20))?;
        outcome.own_stalls = share(&phase);
        record(outcome, phase);
    }
    let counters = outcome.phases.iter().filter_map(|phase| phase.counters);
    let openings: Vec<_> = counters.map(|counters| counters.openings).collect();
    outcome.openings = (!openings.is_empty()).then(|| openings.iter().sum());
    Ok(())
}

fn lower(one: Option<figures::Share>, other: Option<figures::Share>) -> Option<figures::Share> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Shows a phase on stderr and keeps it.
fn record(outcome: &mut Outcome, phase: Phase) {
    eprintln!("{phase}");
    outcome.phases.push(phase);
}
