//! The commands of the program, one file each, and what they share.

mod check_config;
mod explain;
mod inputs;
mod rules;
mod serve;
mod usage;
mod violations;

use std::fs::OpenOptions;
use std::io::{self, Write};

use serde::Serialize;
use tollgate_config::text::escaped;
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

/// Maximum number of characters in a column, so that a long name does not push the others out of sight.
const MAX_COLUMN: usize = 40;

/// The width of a terminal. The last column, the least important one, gets what is left of it.
const MAX_LINE: usize = 100;
const MIN_LAST_COLUMN: usize = 16;

/// Writes a head and rows, each column as wide as its longest cell.
fn write_table<const N: usize>(
    out: &mut impl Write,
    head: [&str; N],
    rows: &[[String; N]],
) -> io::Result<()> {
    let mut shown: Vec<[String; N]> = (rows.iter())
        .map(|row| row.each_ref().map(|cell| escaped(cell, MAX_COLUMN)))
        .collect();
    let mut widths = head.map(|name| name.chars().count());
    for row in &shown {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let before: usize = widths.iter().rev().skip(1).map(|width| width + 2).sum();
    let room = MAX_LINE.saturating_sub(before).max(MIN_LAST_COLUMN);
    for (row, cells) in shown.iter_mut().zip(rows) {
        if let (Some(last), Some(cell)) = (row.last_mut(), cells.last()) {
            *last = escaped(cell, room.min(MAX_COLUMN));
        }
    }
    let shown = shown.iter().map(|row| row.each_ref().map(String::as_str));
    for cells in std::iter::once(head).chain(shown) {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            line.push_str(cell);
            let blanks = (width + 2).saturating_sub(cell.chars().count());
            line.extend(std::iter::repeat_n(' ', blanks));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_last_column_is_cut_to_the_width_of_a_terminal() {
        let mut out = Vec::new();
        let rows = [["x".repeat(40), "y".repeat(30), "z".repeat(200)]];
        write_table(&mut out, ["a", "b", "c"], &rows).unwrap();
        let text = String::from_utf8(out).unwrap();
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert_eq!(widest, Some(MAX_LINE), "{text}");
    }

    #[test]
    fn columns_line_up_and_hidden_characters_are_escaped() {
        let mut out = Vec::new();
        let rows = [
            ["a".to_owned(), "x\u{1b}[2J".to_owned()],
            ["crème".to_owned(), String::new()],
        ];
        write_table(&mut out, ["name", "what"], &rows).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "name   what\na      x\\u{1b}[2J\ncrème\n");
    }
}
