//! `make attack`: runs the collected attacks on the built program, and prints one line to compare.
//!
//! Fails if a limit was bypassed, if Envoy got an error, or if a case could not be judged.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that reports"
)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use attack::Setting;
use clap::Parser;

/// Runs the collected attacks on the built program, with Node's http and Starlette behind it.
#[derive(Debug, Parser)]
struct Arguments {
    /// The program `tollgate`.
    #[arg(long, default_value = "target/release/tollgate")]
    tollgate: PathBuf,
    /// The program `node`.
    #[arg(long, default_value = "node")]
    node: PathBuf,
    /// A Python with what is in bench/attack/requirements.txt.
    #[arg(long, default_value = "target/attack/bin/python")]
    python: PathBuf,
    /// Runs at most so many cases of each list, each with one of the upstreams.
    #[arg(long)]
    cases_per_list: Option<usize>,
    /// How many seconds a good client beside a flood may wait, at most 10.
    #[arg(long, default_value_t = 3)]
    patience: u64,
    /// Runs only these lists: identity, proxies, hosts, headers, methods, paths, trailers, framing, tokens, json, rls, floods.
    #[arg(long)]
    only: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let setting = Setting {
        tollgate: arguments.tollgate,
        node: arguments.node,
        python: arguments.python,
        cases_per_list: arguments.cases_per_list,
        patience: Duration::from_secs(arguments.patience),
        only: arguments.only,
    };
    match attack::run(&setting, |list| eprintln!("{list}")) {
        Ok(outcome) => {
            println!("{}", outcome.summary());
            match outcome.is_success() {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
