//! The commands of the program, one file each, and what they share.

mod check_config;
mod configured;
mod database;
mod explain;
mod init;
mod rules;
mod serve;
mod table;
mod usage;
mod violations;

use std::io::{self, Write};

use serde::Serialize;
use tollgate_simulate::{Arrivals, Simulation};

use crate::cli::{Command, SimulateArgs};
use crate::failure::Failure;

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    let out = &mut io::stdout();
    match command {
        Command::Serve(args) => serve::serve(args),
        Command::Simulate(args) => simulate(args, out),
        Command::CheckConfig(args) => check_config::check_config(args, out),
        Command::Init(args) => init::init(args, out),
        Command::Explain(args) => explain::explain(args, out),
        Command::Inspect(args) => usage::inspect(args, out),
        Command::Reset(args) => usage::reset(args, out),
        Command::Rules(args) => rules::rules(args, out),
        Command::Violations(args) => violations::violations(args, out),
    }
}

fn simulate(args: &SimulateArgs, out: &mut impl Write) -> Result<(), Failure> {
    let arrivals = match &args.csv {
        Some(file) => Arrivals::Csv {
            file: file.clone(),
            sort: args.sort,
        },
        None => Arrivals::Scenario(args.scenario, args.seed),
    };
    let simulation = Simulation {
        arrivals,
        limit: args.limit,
        out: args.out.clone(),
        draws_chart: !args.no_chart,
        json: args.json,
    };
    Ok(tollgate_simulate::simulate(&simulation, out)?)
}

/// Runs what waits for a database or a store.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Unavailable(format!("cannot start: {error}")))?
        .block_on(work)
}

fn print_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}
