//! The configuration of the program: from a text to a form that cannot be wrong.
//!
//! [`parse`] reads everything, says everything that is wrong at once, and warns of what is legal and surely not meant.
//! Each section has a file of its own with the list of its fields; `docs/configuration.md` has the same lists, and a
//! test compares them. It opens no other file, and connects to nothing:
//! [`ConfigFile`] reads the text files that a configuration names, and looks at its certificates if it is asked to.

mod answers;
mod certificates;
mod conditions;
mod connections;
mod doors;
mod draft;
mod file;
mod gateway;
mod keeping;
mod limits;
mod policy;
mod restart;
mod rules;
mod secret;
mod store;
mod summary;
mod traces;
mod upstreams;
mod values;
mod warnings;
mod who;

pub use connections::{ConnectionLimits, WaitingLimits};
pub use doors::{Admin, Gateway, Rls, Service};
pub use file::ConfigFile;
pub use gateway::{AccessLogFormat, Front, OverrideHeaders, Preflights, Underscores};
pub use keeping::{DatabaseSettings, LogConfig, LogFormat, LogLevel};
pub(crate) use policy::rule_warnings;
pub use policy::{PolicyConfig, read_client, read_rule};
pub use secret::{Secret, Url};
pub use store::{RedisSettings, StoreConfig};
pub(crate) use summary::Summary;
pub use traces::{TracesConfig, TracesProtocol};
pub use upstreams::{HealthCheck, HostField, Protocol, Upstream};

use std::time::Duration;

use crate::audit::TrailConfig;
use crate::document::{self, Problems};
use draft::Draft;

/// Everything that can be configured.
#[derive(Clone, Debug)]
pub struct Config {
    /// The reverse proxy, if it is to run.
    pub gateway: Option<Gateway>,
    /// The decision service, if it is to run.
    pub service: Option<Service>,
    /// The operators' door, if there is to be one.
    pub admin: Option<Admin>,
    /// Where usage is kept.
    pub store: StoreConfig,
    /// Where rules or violations are kept.
    pub database: Option<DatabaseSettings>,
    /// The record of violations, if it is kept.
    pub audit: Option<TrailConfig>,
    /// The log of the program.
    pub log: LogConfig,
    /// Traces of requests, if some are to be made.
    pub traces: Option<TracesConfig>,
    /// How long to say that the program is not ready before it stops to accept.
    pub shutdown_delay: Duration,
    /// Where rules and clients come from.
    pub rules_from: RulesFrom,
    /// Who is calling, and what is allowed: all of it, or all but the rules and clients of the database.
    pub policy: PolicyConfig,
    /// What is legal and surely not meant.
    pub warnings: Problems,
}

/// Where rules and clients come from: one place at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RulesFrom {
    /// From the configuration file.
    #[default]
    File,
    /// From the database.
    Database,
}

/// Reads a configuration. `env` says what the variables in it hold.
///
/// ```
/// let text = "rules: [{ id: everyone, per: [], limit: \"100/s\" }]";
/// let config = tollgate_server::config::parse(text, &|_| None)?;
/// assert_eq!(config.policy.rules.rules().count(), 1);
///
/// let problems = tollgate_server::config::parse("rulez: []", &|_| None).unwrap_err();
/// assert!(problems.to_string().contains("did you mean \"rules\"?"));
/// # Ok::<(), tollgate_server::document::Problems>(())
/// ```
///
/// # Errors
/// Everything that is wrong, each with its place.
pub fn parse(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, Problems> {
    let document = document::parse(text, env);
    let mut problems = document.problems;
    let Some(root) = document.root else {
        if !problems.has_errors() {
            empty(&mut problems);
        }
        return Err(problems);
    };
    if root.kind() == "nothing" {
        empty(&mut problems);
        return Err(problems);
    }
    let draft = Draft::read(&root, &mut problems);
    let finished = draft.and_then(|draft| draft.finish(&mut problems));
    match finished {
        Some(config) if !problems.has_errors() => Ok(config),
        _ => Err(problems),
    }
}

fn empty(problems: &mut Problems) {
    problems
        .error(document::Spot::default(), "the configuration is empty")
        .help("`tollgate init` writes one to begin with");
}

/// Every field there is, as `section.field`; `[]` stands for the items of a list.
#[cfg(test)]
pub(crate) fn known_fields() -> Vec<String> {
    let sections: [(&str, &[&str]); 23] = [
        ("", draft::ROOT),
        ("gateway.", doors::GATEWAY),
        ("gateway.tls.", gateway::TLS),
        ("gateway.upstreams[].", upstreams::UPSTREAM),
        ("gateway.upstreams[].health.", upstreams::HEALTH),
        ("service.", doors::SERVICE),
        ("service.rls.", doors::RLS),
        ("admin.", doors::ADMIN),
        ("store.", store::STORE),
        ("store.breaker.", store::BREAKER),
        ("database.", keeping::DATABASE),
        ("audit.", keeping::AUDIT),
        ("log.", keeping::LOG),
        ("traces.", traces::TRACES),
        ("answers.", answers::ANSWERS),
        ("answers.denied.", answers::DENIED),
        ("identity.", who::IDENTITY),
        ("paths.", who::PATHS),
        ("clients[].", who::CLIENT),
        ("costs[].", rules::COST),
        ("rules[].", rules::RULE),
        ("rules[].match.", conditions::MATCH),
        ("rules[].limit.", limits::LIMIT),
    ];
    let of = |(section, fields): (&str, &[&str])| {
        let fields = fields.iter().map(|field| format!("{section}{field}"));
        fields.collect::<Vec<_>>()
    };
    sections.into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests;
