//! The program `tollgate`, as a library: the binary only calls [`main`].
//!
//! [`main`] parses the command line, runs the command, and turns an error into one line on stderr and an exit code (0 done, 1 could not
//! read, write or connect, 2 bad input).

mod access;
mod admin;
pub mod audit;
mod cli;
mod commands;
mod counters;
pub mod database;
pub mod decider;
mod explanation;
mod failure;
mod gateway;
pub mod live;
mod metrics;
mod problem;
mod serve;
pub mod service;
mod stalls;
mod time;
mod traces;
mod usage;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

/// Runs the program with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    let Err(failure) = commands::run(&cli::Cli::parse().command) else {
        return ExitCode::SUCCESS;
    };
    if let Some(message) = failure.message() {
        // If stderr is closed as well, the exit code is all there is.
        let _ = writeln!(io::stderr(), "error: {message}");
    }
    ExitCode::from(failure.exit_code())
}
