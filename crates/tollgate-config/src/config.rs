//! The configuration of the program: from text to a form that cannot be wrong.

use std::cell::RefCell;
use std::time::Duration;

use super::draft::Draft;
use super::gateway::Gateway;
use super::listeners::{Admin, Service};
use super::policy::{PolicyConfig, Settings};
use super::storage::{AuditConfig, DatabaseSettings, LogConfig, RulesFrom};
use super::store::StoreConfig;
use super::traces::TracesConfig;
use super::warnings;
use crate::document::reading::Input;
use crate::document::{self, Location, Node, Problems};

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The reverse proxy, if it is to run.
    pub gateway: Option<Gateway>,
    /// The decision service, if it is to run.
    pub service: Option<Service>,
    /// The admin listener, if there is to be one.
    pub admin: Option<Admin>,
    /// Where usage is stored.
    pub store: StoreConfig,
    /// The database of rules or violations, if there is one.
    pub database: Option<DatabaseSettings>,
    /// The record of violations, if it is kept.
    pub audit: Option<AuditConfig>,
    /// The program's own log.
    pub log: LogConfig,
    /// The export of traces, if there is one.
    pub traces: Option<TracesConfig>,
    /// Time between reporting unready and closing the listeners.
    pub shutdown_delay: Duration,
    /// Where rules and clients come from.
    pub rules_from: RulesFrom,
    /// Identity and limits; without rules and clients if those are in the database.
    pub policy: PolicyConfig,
    /// What is valid, but probably a mistake.
    pub warnings: Problems,
}

impl Config {
    /// The configuration, if it has no errors. Only then are there warnings.
    fn read(root: &Node, problems: &RefCell<Problems>) -> Option<Self> {
        let draft = Draft::read(&Input::root(root, "", problems))?;
        let settings = Settings {
            answers: draft.answers.clone(),
            identity: draft.identity.clone(),
            costs: draft.costs.iter().map(|entry| entry.cost.clone()).collect(),
            paths: draft.paths,
            routes: draft.routes.clone(),
            boundaries: draft.gateway.iter().flat_map(Gateway::boundaries).collect(),
        };
        let policy = settings.compile(&draft.clients, &draft.rules, problems)?;
        if problems.borrow().has_errors() {
            return None;
        }
        Some(Self {
            warnings: warnings::all(&draft),
            gateway: draft.gateway,
            service: draft.service,
            admin: draft.admin,
            store: draft.store.store,
            database: draft.database,
            audit: draft.audit,
            log: draft.log,
            traces: draft.traces,
            shutdown_delay: draft.shutdown_delay,
            rules_from: draft.rules_from,
            policy,
        })
    }

    /// The sections that differ in `next` and take effect only after a restart: listeners, stores and connections are
    /// created once.
    #[must_use]
    pub fn sections_needing_restart(&self, next: &Self) -> Vec<&'static str> {
        let sections = [
            ("gateway", self.gateway != next.gateway),
            ("service", self.service != next.service),
            ("admin", self.admin != next.admin),
            ("store", stores_differ(&self.store, &next.store)),
            ("database", self.database != next.database),
            ("audit", differ(&self.audit, &next.audit)),
            ("log", self.log != next.log),
            ("traces", self.traces != next.traces),
            ("shutdown_delay", self.shutdown_delay != next.shutdown_delay),
        ];
        let changed = sections.into_iter().filter(|(_, differs)| *differs);
        changed.map(|(section, _)| section).collect()
    }
}

/// Compares addresses as well, because `Debug` hides their passwords.
fn stores_differ(one: &StoreConfig, next: &StoreConfig) -> bool {
    match (one, next) {
        (StoreConfig::Redis(a), StoreConfig::Redis(b)) if a.url != b.url => true,
        _ => differ(one, next),
    }
}

/// Compares plain settings, all of which are in their `Debug`.
fn differ(one: &impl std::fmt::Debug, next: &impl std::fmt::Debug) -> bool {
    format!("{one:?}") != format!("{next:?}")
}

/// Reads a configuration. `env` looks up the variables in it.
///
/// ```
/// let text = "rules: [{ id: everyone, per: [], limit: \"100/s\" }]";
/// let config = tollgate_config::parse(text, &|_| None)?;
/// assert_eq!(config.policy.rules.rules().count(), 1);
///
/// let problems = tollgate_config::parse("rulez: []", &|_| None).unwrap_err();
/// assert!(problems.to_string().contains("did you mean \"rules\"?"));
/// # Ok::<(), tollgate_config::document::Problems>(())
/// ```
///
/// # Errors
/// All problems, each with its location.
pub fn parse(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, Problems> {
    let document = document::parse(text, env);
    let problems = RefCell::new(document.problems);
    let config = match document.root.filter(|root| root.kind() != "nothing") {
        Some(root) => Config::read(&root, &problems),
        None => None,
    };
    let mut problems = problems.into_inner();
    if config.is_none() && !problems.has_errors() {
        problems
            .error(Location::default(), "the configuration is empty")
            .help("`tollgate init` writes one to begin with");
    }
    config.filter(|_| !problems.has_errors()).ok_or(problems)
}

/// Every field that a configuration with all of these sections may have, such as `gateway.listen`; `[]` stands for the
/// items of a list.
#[cfg(test)]
pub(crate) fn known_fields(text: &str) -> std::collections::BTreeSet<String> {
    let document = document::parse(text, &|_| None);
    let problems = RefCell::new(document.problems);
    Draft::read(&Input::root(&document.root.unwrap(), "", &problems)).unwrap();
    problems.take().known_fields
}
