//! What can be said about what callers used.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

use super::CONFIG_FILE;

pub(super) const INSPECT_EXAMPLES: &str = "\
Examples:
  tollgate inspect --client merchant_123               what it used of every rule, on all its routes
  tollgate inspect --ip 203.0.113.7 --json
  tollgate inspect --client merchant_123 --path /v1/charges --method POST
  tollgate inspect                                     what is counted for everybody

What a request with these words would meet comes first, used or not; then whatever else the same callers used, as \"other\" and a hash of \
what is not known of it. Nothing is charged or changed, and no keys are searched for. It asks the Redis of the configuration; usage in memory is known to \
the running program alone, whose decision service answers POST /v1/inspect.

Exit codes: 0 done, 1 the file, the database or Redis could not be reached, 2 bad input.";

pub(super) const RESET_EXAMPLES: &str = "\
Examples:
  tollgate reset --client merchant_123                 what it used is forgotten, on all its routes
  tollgate reset --ip 203.0.113.7 --json
  tollgate reset --everybody                           what rules with per: [] have counted
  tollgate reset --everybody --path /v1/charges        what all share who ask for this

What the named callers used is forgotten. A rule that counts by two of them, such as per: [ip, client], is forgotten for both if both are named. What they share with others, such as a limit for everybody or for a route, stays, unless --everybody \
is said in place of a caller. Programs that remember a denial keep to it for five seconds at the most. It asks the Redis of the configuration; usage in memory is known to the running program alone, whose decision \
service answers POST /v1/reset.

Exit codes: 0 done, 1 the file, the database or Redis could not be reached, 2 bad input.";

/// Who is meant.
#[derive(Args, Debug)]
pub(crate) struct WhoArgs {
    /// A client, by its id. One that is not in `clients` is called after the header that names it, such as x-user-id:42; of a bare
    /// id, that is the first header of identity.client.
    #[arg(long, value_name = "ID")]
    pub(crate) client: Option<String>,

    /// A caller's address; an IPv6 address stands for its network, as it is counted.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) ip: Option<IpAddr>,

    /// An attribute that rules count by; may be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) attribute: Vec<String>,

    /// The plan [that of the client, if the client is known].
    #[arg(long, value_name = "NAME")]
    pub(crate) plan: Option<String>,

    /// The endpoint, as the pattern by which it is counted, such as "/v1/charges/{id}".
    #[arg(long, value_name = "PATTERN")]
    pub(crate) route: Option<String>,

    /// A path, of which the rules say which endpoint it is.
    #[arg(long, value_name = "PATH", conflicts_with = "route")]
    pub(crate) path: Option<String>,

    /// The method, such as POST.
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,

    /// The host that is asked.
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
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) who: WhoArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    pub(crate) who: WhoArgs,

    /// Everybody is meant: what all share, in place of what a caller used.
    #[arg(long, conflicts_with_all = ["client", "ip", "attribute"])]
    pub(crate) everybody: bool,
}
