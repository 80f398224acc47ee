//! The configuration of the program, in a form that cannot be wrong.

use std::net::SocketAddr;
use std::time::Duration;

use super::gateway::Gateway;
use super::listeners::{Admin, Service};
use super::policy::PolicyConfig;
use super::storage::{AuditConfig, DatabaseSettings, LogConfig, RulesFrom};
use super::store::StoreConfig;
use super::traces::TracesConfig;
use crate::document::Problems;

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
