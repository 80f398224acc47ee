//! All sections of a configuration, each valid by itself, and the checks between them.

use std::net::SocketAddr;
use std::time::Duration;

use tollgate::{PathRules, Pattern};
use tollgate_tower::identity::IdentityConfig;

use super::answers::{AnswersConfig, answers};
use super::gateway::{Gateway, gateway};
use super::identity::{self, ClientEntry, identity, paths};
use super::listeners::{Admin, Service, admin, service};
use super::rules::{self, CostEntry, RuleEntry, cost};
use super::storage::{AuditConfig, DatabaseSettings, LogConfig, RulesFrom, audit, database, log};
use super::store::{StoreDraft, store};
use super::traces::{TracesConfig, traces};
use super::values::MINUTE;
use crate::document::reading::{
    Fields, Input, choice, duration, list, map, map_with_hints, parsed,
};

/// The sections of a configuration.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    /// The whole document, to locate fields in warnings.
    pub(super) root: Input<'a>,
    pub(super) gateway: Option<Gateway>,
    pub(super) service: Option<Service>,
    pub(super) admin: Option<Admin>,
    pub(super) store: StoreDraft,
    pub(super) database: Option<DatabaseSettings>,
    pub(super) rules_from: RulesFrom,
    /// `None` if there is no audit trail.
    pub(super) audit: Option<AuditConfig>,
    pub(super) log: LogConfig,
    pub(super) traces: Option<TracesConfig>,
    pub(super) shutdown_delay: Duration,
    pub(super) answers: Option<AnswersConfig>,
    pub(super) identity: IdentityConfig,
    pub(super) paths: PathRules,
    pub(super) routes: Vec<Pattern>,
    pub(super) clients: Vec<ClientEntry>,
    pub(super) costs: Vec<CostEntry<'a>>,
    pub(super) rules: Vec<RuleEntry<'a>>,
}

impl<'a> Draft<'a> {
    /// Reads all sections. Values with an error are replaced by defaults, and items of lists left out.
    pub(super) fn read(root: &Input<'a>) -> Option<Self> {
        map(Self::of)(root)
    }

    fn of(fields: &Fields<'a>) -> Option<Self> {
        let delay = duration(Duration::ZERO..=MINUTE * 5);
        let route = parsed("a path such as /v1/users/{id}");
        let client = map_with_hints(&identity::CLIENT_HINTS, identity::client);
        let rule = map_with_hints(&rules::HINTS, rules::rule);
        let mut draft = Self {
            root: fields.input().clone(),
            gateway: fields.read("gateway", map(gateway)),
            service: fields.read("service", map(service)),
            admin: fields.read("admin", map(admin)),
            store: fields.read("store", map(store)).unwrap_or_default(),
            database: fields.read("database", map(database)),
            rules_from: rules_from(fields),
            audit: audit_trail(fields),
            log: fields.read("log", map(log)).unwrap_or_default(),
            traces: fields.read("traces", map(traces)),
            shutdown_delay: fields.read("shutdown_delay", delay).unwrap_or_default(),
            answers: fields.read("answers", map(answers)),
            identity: fields.read("identity", map(identity)).unwrap_or_default(),
            paths: fields.read("paths", map(paths)).unwrap_or_default(),
            routes: (fields.read("routes", list("routes", route))).unwrap_or_default(),
            clients: (fields.read("clients", list("clients", client))).unwrap_or_default(),
            costs: (fields.read("costs", list("costs", map(cost)))).unwrap_or_default(),
            rules: (fields.read("rules", list("rules", rule))).unwrap_or_default(),
        };
        if let (Some(audit), Some(database)) = (&mut draft.audit, &draft.database) {
            audit.scope = database.scope.to_string();
        }
        draft.check_addresses();
        Some(draft)
    }

    /// Only one of several listeners could use an address.
    fn check_addresses(&self) {
        let listeners = listeners(&self.gateway, &self.service, &self.admin);
        for (name, address) in &listeners {
            let first = listeners.iter().find(|(_, other)| other == address);
            let Some((first, _)) = first.filter(|(first, _)| first != name && address.port() > 0)
            else {
                continue;
            };
            let message = format!("{first} already listens on this address");
            let first = self.root.location_of(first).span;
            (self.root.error_at(self.root.location_of(name), message))
                .help("give each a port of its own")
                .related(first, "the first is here");
        }
    }
}

/// The audit trail: kept if there is a database, unless the file turns it off.
fn audit_trail(fields: &Fields<'_>) -> Option<AuditConfig> {
    let has_database = fields.has("database");
    let default = (has_database, AuditConfig::default());
    let (is_on, audit) = fields.read("audit", map(audit)).unwrap_or(default);
    if is_on && !has_database {
        let message = "the audit trail needs a database, and none is configured";
        (fields.error_at("audit", message))
            .help("add database: { url: \"sqlite:tollgate.db\" }, or remove `audit`");
    }
    is_on.then_some(audit)
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
