//! `make payments`: plays the whole, writes a report, and prints one line to compare.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that measures and prints"
)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use payments::{Setting, report};

/// A payment API behind four gateways on one Redis, which is killed and comes back.
#[derive(Debug, Parser)]
struct Arguments {
    /// The program `tollgate`.
    #[arg(long, default_value = "target/release/tollgate")]
    tollgate: PathBuf,
    /// How many seconds each of the four phases takes.
    #[arg(long, default_value_t = 35)]
    phase: u64,
    /// The batch job runs around every multiple of so many seconds.
    #[arg(long, default_value_t = 60)]
    batch_every: u64,
    /// When and where this runs, for the report.
    #[arg(long, default_value = "")]
    circumstances: String,
    /// Where to write the report.
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let setting = Setting {
        tollgate: arguments.tollgate,
        phase: Duration::from_secs(arguments.phase),
        batch_every: Duration::from_secs(arguments.batch_every),
        store: "",
    };
    let outcome = payments::run(&setting, |phase| {
        eprintln!("{} for {} s …", phase.name(), arguments.phase);
    });
    let text = report::markdown(&outcome, &setting, &arguments.circumstances);
    println!("{text}");
    if let Some(path) = arguments.out {
        if let Err(error) = std::fs::write(&path, text) {
            eprintln!("error: {} cannot be written: {error}", path.display());
            return ExitCode::FAILURE;
        }
        println!("written to {}\n", path.display());
    }
    println!("{}", report::summary(&outcome));
    let is_within_bounds =
        (outcome.findings.iter()).all(|finding| finding.beyond_bound.tokens == 0);
    match is_within_bounds {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
