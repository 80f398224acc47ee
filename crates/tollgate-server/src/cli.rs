//! The command line: its arguments, defaults and help. It does not know what the commands do.

mod database;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use tollgate::Limit;
use tollgate_simulate::Scenario;

pub(crate) use database::{
    DatabaseArgs, ExportArgs, ExportFormat, ImportArgs, RulesArgs, RulesCommand, SetArgs,
    ViolationsArgs,
};

/// An exact rate limiter.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the listeners of the configuration: gateway, decision service and admin. Without a configuration, run a demo.
    #[command(after_help = include_str!("../assets/help/serve.txt"))]
    Serve(ServeArgs),

    /// Run the five algorithms on the same arrivals and compare what each admits.
    #[command(long_about = include_str!("../assets/help/simulate-about.txt"), after_help = include_str!("../assets/help/simulate.txt"))]
    Simulate(SimulateArgs),

    /// Report all errors in a configuration, and what is probably a mistake.
    #[command(after_help = include_str!("../assets/help/check-config.txt"))]
    CheckConfig(CheckConfigArgs),

    /// Write a configuration to start with, complete and explained.
    Init(InitArgs),

    /// Show the client of a request, the rules that apply and why others do not, and usage. Charges nothing.
    #[command(after_help = include_str!("../assets/help/explain.txt"))]
    Explain(ExplainArgs),

    /// Show what a client has used of every rule, and when it is full again. Changes nothing.
    #[command(after_help = include_str!("../assets/help/inspect.txt"))]
    Inspect(SubjectArgs),

    /// Forget what a client has used, so that its limits are full again.
    #[command(after_help = include_str!("../assets/help/reset.txt"))]
    Reset(ResetArgs),

    /// List and change the rules in the database.
    #[command(after_help = include_str!("../assets/help/rules.txt"))]
    Rules(RulesArgs),

    /// Show the audit trail: which clients were denied by which rules.
    #[command(after_help = include_str!("../assets/help/violations.txt"))]
    Violations(ViolationsArgs),
}

/// The default configuration file.
pub(crate) const CONFIG_FILE: &str = "tollgate.yaml";

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// The configuration [default: tollgate.yaml if it exists, else a demo].
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct CheckConfigArgs {
    /// The configuration; "-" reads stdin.
    #[arg(default_value = CONFIG_FILE)]
    pub(crate) file: PathBuf,

    /// Print one JSON document with all problems instead of text.
    #[arg(long)]
    pub(crate) json: bool,

    /// Treat warnings as errors.
    #[arg(long)]
    pub(crate) strict: bool,

    /// Do not open the files it names: certificates, keys and bodies that are on another machine.
    #[arg(long)]
    pub(crate) no_files: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The method, such as GET.
    pub(crate) method: String,

    /// The path with its query, or a URL with the host.
    pub(crate) path: String,

    /// A header of the request; may be given several times.
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,

    /// The peer: the client, or the proxy in front of the gateway [default: 127.0.0.1].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) ip: Option<IpAddr>,

    /// The client, whatever the headers say: an id as a header would carry it, or a name such as x-user-id:42.
    #[arg(long, value_name = "ID")]
    pub(crate) client: Option<String>,

    /// The cost of the request, whatever the rules say.
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

    /// Overwrite an existing file.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Whose usage.
#[derive(Args, Debug)]
pub(crate) struct SubjectArgs {
    /// A client, by its id. One that is not in `clients` is called after the header that names it, such as x-user-id:42; a bare
    /// id stands for the first header of identity.client.
    #[arg(long, value_name = "ID")]
    pub(crate) client: Option<String>,

    /// An address; an IPv6 address stands for its network, as it is counted.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) ip: Option<IpAddr>,

    /// An attribute that rules count by; may be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) attribute: Vec<String>,

    /// The plan [default: the plan of a known client].
    #[arg(long, value_name = "NAME")]
    pub(crate) plan: Option<String>,

    /// The endpoint, by the pattern under which it is counted, such as "/v1/charges/{id}".
    #[arg(long, value_name = "PATTERN")]
    pub(crate) route: Option<String>,

    /// A path; the rules find its endpoint.
    #[arg(long, value_name = "PATH", conflicts_with = "route")]
    pub(crate) path: Option<String>,

    /// The method, such as POST.
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,

    /// The host of the request.
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,

    /// The configuration.
    #[arg(short, long, value_name = "FILE", default_value = CONFIG_FILE)]
    pub(crate) config: PathBuf,

    /// Print one JSON document instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    pub(crate) subject: SubjectArgs,

    /// Forget what all clients share, instead of what one client has used.
    #[arg(long, conflicts_with_all = ["client", "ip", "attribute"])]
    pub(crate) everybody: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SimulateArgs {
    /// The arrivals to run.
    #[arg(value_enum, default_value_t = Scenario::Boundary)]
    pub(crate) scenario: Scenario,

    /// Run the arrivals of this CSV file instead; "-" reads stdin.
    #[arg(long, value_name = "FILE", requires = "limit", conflicts_with_all = ["scenario", "seed"])]
    pub(crate) csv: Option<PathBuf>,

    /// Sort the arrivals of the CSV by time instead of refusing them when they are out of order.
    #[arg(long, requires = "csv")]
    pub(crate) sort: bool,

    /// The limit that all five are derived from, such as "200/min" or "100/s burst 200"; every scenario has its own.
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
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
