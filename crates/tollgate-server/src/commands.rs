//! The commands of the program, one file each, and what they share.

mod check_config;
mod configured;
mod database;
mod explain;
mod rules;
mod serve;
mod table;
mod usage;
mod violations;

use std::fs::OpenOptions;
use std::io::{self, Write};

use serde::Serialize;
use tollgate_simulate::{Arrivals, Simulation};

use crate::cli::{Command, InitArgs, SimulateArgs};
use crate::failure::Failure;

/// What `tollgate init` writes. A test keeps it free of errors and warnings.
const TEMPLATE: &str = include_str!("../assets/tollgate.yaml");

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    let out = &mut io::stdout();
    match command {
        Command::Serve(args) => serve::serve(args),
        Command::Simulate(args) => simulate(args, out),
        Command::CheckConfig(args) => check_config::check_config(args, out),
        Command::Init(args) => init(args, out),
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

fn init(args: &InitArgs, out: &mut impl Write) -> Result<(), Failure> {
    let name = args.file.display();
    let mut options = OpenOptions::new();
    options.write(true);
    match args.force {
        true => options.create(true).truncate(true),
        false => options.create_new(true),
    };
    let file = options.open(&args.file);
    file.and_then(|mut file| file.write_all(TEMPLATE.as_bytes()))
        .map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                Failure::BadInput(format!("{name} exists already; --force overwrites it"))
            }
            _ => Failure::Unavailable(format!("cannot write {name}: {error}")),
        })?;
    writeln!(
        out,
        "wrote {name}: a gateway in front of http://127.0.0.1:3000, 10 requests a second for each client"
    )?;
    Ok(writeln!(out, "next: tollgate check-config {name}")?)
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

fn bucket_text(values: &[(&'static str, String)]) -> String {
    if values.is_empty() {
        return "shared by all".to_owned();
    }
    let values = values.iter().map(|(name, value)| format!("{name}={value}"));
    values.collect::<Vec<_>>().join(" ")
}
