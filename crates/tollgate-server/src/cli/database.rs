//! Arguments of the commands that work on a database.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Subcommand, ValueEnum};
use tollgate::Limit;

/// Which database.
#[derive(Args, Debug)]
pub(crate) struct DatabaseArgs {
    /// The database: sqlite:FILE or postgres://user:password@host/name.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "TOLLGATE_DATABASE",
        hide_env_values = true
    )]
    pub(crate) database: Option<String>,

    /// A configuration that names the database and its scope; --database and --scope take precedence [default: tollgate.yaml if it
    /// exists and no database is named].
    #[arg(short, long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// The scope of the rules, if several services share the database [default: "default"].
    #[arg(long, global = true)]
    pub(crate) scope: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct RulesArgs {
    #[command(flatten)]
    pub(crate) target: DatabaseArgs,

    #[command(subcommand)]
    pub(crate) command: RulesCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RulesCommand {
    /// Show the rules as a table.
    List {
        /// Print JSON instead of the table.
        #[arg(long)]
        json: bool,
    },
    /// Store the rules and clients of a configuration file.
    Import(ImportArgs),
    /// Print the rules and clients in the form of a configuration file.
    Export(ExportArgs),
    /// Change a rule, or add one.
    Set(SetArgs),
    /// Remove a rule.
    Remove {
        /// The rule's id.
        id: String,

        /// The plan of the rule; without it, the rule for every plan that has none of its own.
        #[arg(long)]
        plan: Option<String>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// The file, in YAML or JSON; only its `rules` and `clients` count. "-" reads stdin.
    pub(crate) file: PathBuf,

    /// Report what would change, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Remove rules and clients that are not in the file.
    #[arg(long)]
    pub(crate) prune: bool,

    /// As --prune, and remove fields that the file leaves out. Otherwise they stay as they are stored, such as a client's
    /// API key, and only null removes one, as in `plan: null`.
    #[arg(long)]
    pub(crate) exact: bool,

    /// Change nothing if there are rules or clients already.
    #[arg(long, conflicts_with_all = ["prune", "exact"])]
    pub(crate) if_empty: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ExportArgs {
    /// The format.
    #[arg(long, value_enum, default_value_t = ExportFormat::Yaml)]
    pub(crate) format: ExportFormat,

    /// Include inactive ones, marked as such: `rules import` understands that, a configuration does not.
    #[arg(long)]
    pub(crate) all: bool,
}

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    Yaml,
    Json,
}

#[derive(Args, Debug)]
pub(crate) struct SetArgs {
    /// The rule's id.
    pub(crate) id: String,

    /// The plan of the rule; without it, the rule for every plan that has none of its own.
    #[arg(long)]
    pub(crate) plan: Option<String>,

    /// The limit, such as "10/s burst 50" or "600 per 1m sliding_counter"; a new rule must have one.
    #[arg(long)]
    pub(crate) limit: Option<Limit>,

    /// What to count by, such as client,route; "" is one bucket for all. A new rule counts by client.
    #[arg(long, value_name = "LIST")]
    pub(crate) per: Option<String>,

    /// The mode: enforce, shadow or off.
    #[arg(long)]
    pub(crate) mode: Option<String>,

    /// What happens when the store is unavailable: local, open or closed.
    #[arg(long, value_name = "POLICY")]
    pub(crate) on_store_failure: Option<String>,

    /// Whether the rule is active.
    #[arg(long, action = ArgAction::Set)]
    pub(crate) active: Option<bool>,

    /// A description.
    #[arg(long)]
    pub(crate) description: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct ViolationsArgs {
    #[command(flatten)]
    pub(crate) target: DatabaseArgs,

    /// Only of this client.
    #[arg(long)]
    pub(crate) client: Option<String>,

    /// Only from this address; IPv6 by its network as it is counted, by default a /64.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) ip: Option<IpAddr>,

    /// Only of this rule.
    #[arg(long)]
    pub(crate) rule: Option<String>,

    /// Not older than this: 90s, 15m, 1h, 7d.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) since: Option<Duration>,

    /// Maximum number of rows.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,

    /// Print JSON instead of the table: one object per line.
    #[arg(long)]
    pub(crate) json: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    tollgate_config::document::parsed_duration(text)
        .ok_or_else(|| "expected a time such as 90s, 15m, 1h or 7d".to_owned())
}
