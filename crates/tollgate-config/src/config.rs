//! The configuration of the program, in a form that cannot be wrong: read from text, with all sections and the checks between
//! them; and in a few lines, as `check-config` prints it.

use std::cell::RefCell;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use super::answers::answers;
use super::gateway::{Gateway, gateway};
use super::identity::{self, identity, paths};
use super::listeners::{Admin, Service, admin, service};
use super::policy::{PolicyConfig, Settings};
use super::rules::{self, cost};
use super::storage::{
    AuditConfig, DatabaseSettings, LogConfig, RulesFrom, StoreConfig, audit, database, log, store,
};
use super::traces::{TracesConfig, traces};
use super::values::MINUTE;
use super::warnings::{self, Context};
use crate::document::reading::{Fields, Input, choice, duration, map, map_with_hints, parsed};
use crate::document::{self, Location, Problems};
use crate::text::grouped;

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
        Some(root) => map(read)(&Input::root(&root, "", &problems)),
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

/// Reads all sections, and checks them against each other.
fn read(fields: &Fields<'_>) -> Option<Config> {
    let root = fields.input();
    let gateway = fields.read("gateway", map(gateway));
    let service = fields.read("service", map(service));
    let admin = fields.read("admin", map(admin));
    check_addresses(root, &listeners(&gateway, &service, &admin));
    let (store, unused) = fields.read("store", map(store)).unwrap_or_default();
    let database = fields.read("database", map(database));
    let rules_from = rules_from(fields);
    let audit = audit_trail(fields, database.as_ref());
    let log = fields.read("log", map(log)).unwrap_or_default();
    let traces = fields.read("traces", map(traces));
    let delay = duration(Duration::ZERO..=MINUTE * 5);
    let shutdown_delay = fields.read("shutdown_delay", delay).unwrap_or_default();
    let answers = fields.read("answers", map(answers));
    let identity = fields.read("identity", map(identity)).unwrap_or_default();
    let paths = fields.read("paths", map(paths)).unwrap_or_default();
    let routes = fields.list("routes", parsed("a path such as /v1/users/{id}"));
    let client = map_with_hints(identity::CLIENT_HINTS, identity::client);
    let clients = fields.list("clients", client);
    let costs = fields.list("costs", map(cost));
    let rules = fields.list("rules", map_with_hints(rules::HINTS, rules::rule));
    let settings = Settings {
        answers,
        identity,
        costs: costs.iter().map(|entry| entry.cost.clone()).collect(),
        paths,
        routes,
        boundaries: gateway.iter().flat_map(Gateway::boundaries).collect(),
    };
    let mut config = Config {
        policy: settings.compile(&clients, &rules, root.problems())?,
        gateway,
        service,
        admin,
        store,
        database,
        rules_from,
        audit,
        log,
        traces,
        shutdown_delay,
        warnings: Problems::default(),
    };
    if fields.are_right() {
        config.warnings = warnings::all(&Context {
            root,
            config: &config,
            unused: &unused,
            clients: &clients,
            costs: &costs,
            rules: &rules,
        });
    }
    Some(config)
}

/// Only one of several listeners could use an address.
fn check_addresses(root: &Input<'_>, listeners: &[(&str, SocketAddr)]) {
    for (name, address) in listeners {
        let first = listeners.iter().find(|(_, other)| other == address);
        let first = first.filter(|(first, _)| first != name && address.port() > 0);
        let Some((first, _)) = first else { continue };
        let message = format!("{first} already listens on this address");
        let first = root.location_of(first).span;
        (root.error_at(root.location_of(name), message))
            .help("give each a port of its own")
            .related(first, "the first is here");
    }
}

/// The audit trail: kept if there is a database, unless the file turns it off.
fn audit_trail(fields: &Fields<'_>, database: Option<&DatabaseSettings>) -> Option<AuditConfig> {
    let has_database = fields.has("database");
    let default = (has_database, AuditConfig::default());
    let (is_on, audit) = fields.read("audit", map(audit)).unwrap_or(default);
    if is_on && !has_database {
        let message = "the audit trail needs a database, and none is configured";
        (fields.error_at("audit", message))
            .help("add database: { url: \"sqlite:tollgate.db\" }, or remove `audit`");
    }
    let scope = database?.scope.to_string();
    is_on.then_some(AuditConfig { scope, ..audit })
}

/// Rules and clients come from one place. With a database and rules in the file, the user has to choose.
fn rules_from(fields: &Fields<'_>) -> RulesFrom {
    let words = [("file", RulesFrom::File), ("database", RulesFrom::Database)];
    let chosen = fields.read("rules_from", choice(&words));
    let has_database = fields.has("database");
    let mut in_file = ["rules", "clients"].into_iter();
    let in_file = in_file.find(|name| fields.input().field(name).is_some());
    match (chosen, in_file) {
        (Some(RulesFrom::Database), _) if !has_database => {
            let message = "rules_from is database, and no database is configured";
            (fields.error_at("rules_from", message))
                .help("add database: { url: \"sqlite:tollgate.db\" }");
        }
        (Some(RulesFrom::Database), Some(name)) => {
            let message = format!("{name} are in this file, but rules_from is database");
            let chosen = fields.location_of("rules_from").span;
            (fields.error_at(name, message))
                .help("rules and clients come from one place: remove them here, or set rules_from: file")
                .related(chosen, "set here");
        }
        (None, Some(name)) if has_database && !fields.has("rules_from") => {
            let database = fields.location_of("database").span;
            let message = format!(
                "{name} are in this file, and a database is configured that can hold them as well"
            );
            let help = "choose: rules_from: file (the database then keeps only the audit trail), or rules_from: database and no \
                        rules and clients here";
            (fields.error_at(name, message))
                .help(help)
                .related(database, "the database");
        }
        (None, None) if has_database => return RulesFrom::Database,
        _ => {}
    }
    chosen.unwrap_or_default()
}

/// Every field that a configuration with all of these sections may have, such as `gateway.listen`; `[]` stands for the
/// items of a list.
#[cfg(test)]
pub(crate) fn known_fields(text: &str) -> std::collections::BTreeSet<String> {
    let root = document::parse(text, &|_| None).root.unwrap();
    let problems = RefCell::default();
    map(read)(&Input::root(&root, "", &problems));
    problems.take().known_fields
}

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
