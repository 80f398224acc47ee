//! Reads all sections of a configuration, and checks them against each other.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

use super::answers::answers;
use super::config::{Config, listeners};
use super::gateway::{Gateway, gateway};
use super::identity::{self, identity, paths};
use super::listeners::{admin, service};
use super::policy::Settings;
use super::rules::{self, cost};
use super::storage::{AuditConfig, DatabaseSettings, RulesFrom, audit, database, log, store};
use super::traces::traces;
use super::values::MINUTE;
use super::warnings::{self, Context};
use crate::document::reading::{Fields, Input, choice, duration, map, map_with_hints, parsed};
use crate::document::{self, Location, Problems};

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
