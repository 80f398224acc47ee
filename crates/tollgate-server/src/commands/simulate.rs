//! `tollgate simulate`: what was typed becomes a [`Simulation`].

use std::io::Write;

use tollgate_simulate::{Arrivals, Simulation};

use crate::cli::SimulateArgs;
use crate::failure::Failure;

/// Runs the command.
pub(crate) fn simulate(args: &SimulateArgs, out: &mut impl Write) -> Result<(), Failure> {
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
