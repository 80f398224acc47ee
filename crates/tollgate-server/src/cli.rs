//! The command line: what can be said, and the help that teaches it.
//!
//! It knows names and defaults, and nothing of what the commands do.

mod database;
mod usage;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use tollgate::Limit;
use tollgate_simulate::Scenario;

pub(crate) use database::{
    DatabaseArgs, ExportArgs, ExportFormat, ImportArgs, ListArgs, RemoveArgs, RulesArgs,
    RulesCommand, SetArgs, ViolationsArgs,
};

pub(crate) use usage::{InspectArgs, ResetArgs, WhoArgs};

/// An exact rate limiter.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway, the decision service and the operators' door, whatever the configuration has; or a demo without one.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),

    /// Run the five algorithms over the same arrivals and compare what each lets through.
    #[command(long_about = SIMULATE_ABOUT, after_help = SIMULATE_EXAMPLES)]
    Simulate(SimulateArgs),

    /// Say everything that is wrong with a configuration, and what is surely not meant.
    #[command(after_help = CHECK_CONFIG_EXAMPLES)]
    CheckConfig(CheckConfigArgs),

    /// Write a configuration to begin with, complete and explained.
    Init(InitArgs),

    /// Say who a request would be taken for, which rules it meets and why not the others, and what is used. Charges nothing.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),

    /// Say what a caller used of every rule, and when it is full again. Changes nothing.
    #[command(after_help = usage::INSPECT_EXAMPLES)]
    Inspect(InspectArgs),

    /// Forget what a caller used, so that its limits are full again.
    #[command(after_help = usage::RESET_EXAMPLES)]
    Reset(ResetArgs),

    /// See and change the rules in the database.
    #[command(after_help = database::RULES_EXAMPLES)]
    Rules(RulesArgs),

    /// Show who was denied what, from the audit trail in the database.
    #[command(after_help = database::VIOLATIONS_EXAMPLES)]
    Violations(ViolationsArgs),
}

/// Where the configuration is, unless somebody says otherwise.
pub(crate) const CONFIG_FILE: &str = "tollgate.yaml";

const SERVE_EXAMPLES: &str = "\
Examples:
  tollgate serve                      by tollgate.yaml, or as a demo if there is none
  tollgate serve -c /etc/tollgate.yaml

Signals: TERM and INT end it once all requests under way have ended, a second one at once; HUP looks at the configuration and the \
database again, which happens by itself as well; USR1 opens the access log anew; USR2 starts the program anew from its file, hands the sockets over and ends, \
without a request being dropped.

Exit codes: 0 ended as told, 1 it could not start or was ended at once, 2 the configuration is wrong.";

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// The configuration [default: tollgate.yaml if it is there, else a demo].
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

const CHECK_CONFIG_EXAMPLES: &str = "\
Variables such as ${TOLLGATE_ADMIN_TOKEN} are taken from the environment, so set them as for the real start. Certificates and \
keys that it names are opened, unless --no-files is given. Nothing is connected to.

Exit codes: 0 fine (warnings allowed), 1 the file could not be read, 2 something is wrong.";

#[derive(Args, Debug)]
pub(crate) struct CheckConfigArgs {
    /// The configuration; "-" reads stdin.
    #[arg(default_value = CONFIG_FILE)]
    pub(crate) file: PathBuf,

    /// Print one JSON document with all problems instead of text.
    #[arg(long)]
    pub(crate) json: bool,

    /// Take warnings for errors.
    #[arg(long)]
    pub(crate) strict: bool,

    /// Do not open the files that it names: certificates, keys and bodies that are on another machine.
    #[arg(long)]
    pub(crate) no_files: bool,
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  tollgate explain GET /v1/charges/ch_7 --ip 203.0.113.7
  tollgate explain POST https://api.example.com/v1/charges -H 'X-API-Key: …' --json
  tollgate explain GET / --client 42                   x-user-id:42, if clients are found in X-User-Id

Rules are read from where the configuration has them, and what is used from Redis if usage is kept there. Nothing is charged.

Exit codes: 0 done, 1 the file or the database could not be read, 2 bad input.";

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The method, such as GET.
    pub(crate) method: String,

    /// The path with its query, or a whole address with the host.
    pub(crate) path: String,

    /// A header of the request; may be given several times.
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,

    /// Where the connection comes from, that is the proxy if there is one ["127.0.0.1" if nobody says so].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) ip: Option<IpAddr>,

    /// The client, whatever the headers say: an id as the gateway would find it in a header, or a name such as x-user-id:42.
    #[arg(long, value_name = "ID")]
    pub(crate) client: Option<String>,

    /// What the request costs, whatever the rules say.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) cost: Option<u64>,

    /// The configuration.
    #[arg(short, long, value_name = "FILE", default_value = CONFIG_FILE)]
    pub(crate) config: PathBuf,

    /// Print one JSON document instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct InitArgs {
    /// The file to write.
    #[arg(default_value = CONFIG_FILE)]
    pub(crate) file: PathBuf,

    /// Overwrite the file if it is there.
    #[arg(long)]
    pub(crate) force: bool,
}

const SIMULATE_ABOUT: &str = "\
Runs token bucket, leaky bucket, fixed window, sliding log and sliding counter over the same arrivals, on a simulated \
clock, and shows what each lets through: a table here, and a chart as SVG and PNG.

Everything is derived from one limit of N per period with a burst or queue of B: the token bucket gets N per period \
and bursts of B, the leaky bucket drains N per period from a queue of B, and the windows allow N in each period.";

const SIMULATE_EXAMPLES: &str = "\
Examples:
  tollgate simulate                                   two bursts around a full minute
  tollgate simulate surge --seed 7                    ten times the traffic, other arrivals
  tollgate simulate drivers --out charts/drivers      writes charts/drivers.svg and .png
  tollgate simulate boundary --limit \"100/min burst 20\"
  tollgate simulate --csv access.csv --limit \"50/s burst 100\" --json

A CSV has one request per line: when it came, in seconds since the epoch with decimals (1767610798.25) or in whole \
milliseconds (1767610798250), and optionally what it costs, a whole number. A first line of names is skipped.

Exit codes: 0 done, 1 a file could not be written, 2 bad input.";

#[derive(Args, Debug)]
pub(crate) struct SimulateArgs {
    /// Which arrivals to play.
    #[arg(value_enum, default_value_t = Scenario::Boundary)]
    pub(crate) scenario: Scenario,

    /// Play the arrivals of this CSV file instead; "-" reads stdin.
    #[arg(long, value_name = "FILE", requires = "limit", conflicts_with_all = ["scenario", "seed"])]
    pub(crate) csv: Option<PathBuf>,

    /// Sort the arrivals of the CSV by time instead of refusing them when they are out of order.
    #[arg(long, requires = "csv")]
    pub(crate) sort: bool,

    /// The limit all five are derived from, such as "200/min" or "100/s burst 200"; every scenario has its own.
    #[arg(long, value_name = "LIMIT")]
    pub(crate) limit: Option<Limit>,

    /// Another seed for the arrivals of surge and drivers; the same seed gives the same arrivals.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Where to write the chart: a directory, or a path with or without .svg or .png. Directories are created.
    #[arg(long, value_name = "PATH")]
    pub(crate) out: Option<PathBuf>,

    /// Write no chart.
    #[arg(long, conflicts_with = "out")]
    pub(crate) no_chart: bool,

    /// Print the figures as one JSON document instead of the table.
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_fits_together() {
        Cli::command().debug_assert();
    }
}
