//! The configuration of the program, in a form that cannot be wrong; and in a few lines, as `check-config` prints it.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use super::gateway::Gateway;
use super::listeners::{Admin, Service};
use super::policy::PolicyConfig;
use super::storage::{AuditConfig, DatabaseSettings, LogConfig, RulesFrom, StoreConfig};
use super::traces::TracesConfig;
use crate::document::Problems;
use crate::text::grouped;

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
    /// Where rules and clients come from.
    pub rules_from: RulesFrom,
    /// The record of violations, if it is kept.
    pub audit: Option<AuditConfig>,
    /// The program's own log.
    pub log: LogConfig,
    /// The export of traces, if there is one.
    pub traces: Option<TracesConfig>,
    /// Time between reporting unready and closing the listeners.
    pub shutdown_delay: Duration,
    /// Identity and limits; without rules and clients if those are in the database.
    pub policy: PolicyConfig,
    /// What is valid, but probably a mistake.
    pub warnings: Problems,
}

impl Config {
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

/// The addresses of all listeners, with their names.
pub(super) fn listeners(
    gateway: &Option<Gateway>,
    service: &Option<Service>,
    admin: &Option<Admin>,
) -> Vec<(&'static str, SocketAddr)> {
    let gateway = gateway.iter().map(|gateway| ("gateway", gateway.listen));
    let service = service.iter().map(|service| ("service", service.listen));
    let admin = admin.iter().map(|admin| ("admin", admin.listen));
    gateway.chain(service).chain(admin).collect()
}

/// The summary of a configuration.
#[derive(Debug, Serialize)]
pub struct Summary {
    rules: usize,
    clients: usize,
    costs: usize,
    rules_from: &'static str,
    state: String,
    listens: Vec<String>,
    audit: bool,
}

impl Summary {
    /// The summary of a configuration.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let listeners = listeners(&config.gateway, &config.service, &config.admin);
        let listens = listeners.into_iter();
        let listens = listens.map(|(name, address)| format!("{name} at {address}"));
        Self {
            rules: config.policy.rules.rules().count(),
            clients: config.policy.clients.len(),
            costs: config.policy.costs().len(),
            rules_from: match config.rules_from {
                RulesFrom::File => "file",
                RulesFrom::Database => "database",
            },
            state: match &config.store {
                StoreConfig::Memory(memory) => {
                    format!("in memory, up to {} keys", grouped(memory.max_keys as u64))
                }
                StoreConfig::Redis(redis) => format!("in Redis at {}", redis.url),
            },
            listens: listens.collect(),
            audit: config.audit.is_some(),
        }
    }
}

fn counted(count: usize, one: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {one}{plural}", grouped(count as u64))
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let costs = counted(self.costs, "cost");
        let rules = match self.rules_from {
            "database" => format!("from the database, {costs} here"),
            _ => {
                let (rules, clients) =
                    (counted(self.rules, "rule"), counted(self.clients, "client"));
                format!("{rules}, {clients}, {costs}")
            }
        };
        let listens = match self.listens.is_empty() {
            true => "nowhere".to_owned(),
            false => self.listens.join(", "),
        };
        let audit = match self.audit {
            true => "kept in the database",
            false => "not kept",
        };
        let state = &self.state;
        write!(
            f,
            "  rules:   {rules}\n  state:   {state}\n  listens: {listens}\n  audit:   {audit}"
        )
    }
}
