//! The program `tollgate`, as a library: the binary only calls [`main`].
//!
//! It starts and ends: reads the command line, hands over, and turns an error into one line on stderr and an exit
//! code (0 done, 1 could not read or write, 2 bad input).

pub mod admin;
pub mod audit;
mod bearer;
mod calendar;
mod cli;
mod commands;
pub mod counters;
pub mod database;
pub mod decider;
mod explanation;
mod failure;
pub mod gateway;
pub mod live;
pub mod log;
pub mod metrics;
mod router;
mod serve;
pub mod service;
mod sharded;
mod stalls;
mod traces;
mod usage;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};
use commands::{
    check_config, explain, init, inspect, reset, rules, serve as serve_command, simulate,
    violations,
};
use failure::Failure;

/// Runs the program with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    let Err(failure) = run(&Cli::parse()) else {
        return ExitCode::SUCCESS;
    };
    if let Some(message) = failure.message() {
        // When stderr is closed as well, there is nobody left to tell.
        let _ = writeln!(io::stderr(), "error: {message}");
    }
    ExitCode::from(failure.exit_code())
}

fn run(cli: &Cli) -> Result<(), Failure> {
    match &cli.command {
        Command::Serve(args) => serve_command::serve(args),
        Command::Simulate(args) => simulate::simulate(args, &mut io::stdout().lock()),
        Command::CheckConfig(args) => check_config::check_config(args),
        Command::Init(args) => init::init(args, &mut io::stdout().lock()),
        Command::Explain(args) => explain::explain(args, &mut io::stdout().lock()),
        Command::Inspect(args) => inspect::inspect(args, &mut io::stdout().lock()),
        Command::Reset(args) => reset::reset(args, &mut io::stdout().lock()),
        Command::Rules(args) => rules::rules(args, &mut io::stdout().lock()),
        Command::Violations(args) => violations::violations(args, &mut io::stdout().lock()),
    }
}
