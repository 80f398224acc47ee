//! All sections as they were said, each right in itself, and then checked against each other.

use std::time::Duration;

use tollgate::{PathRules, Pattern};

use super::answers::{self, AnswersConfig};
use super::identity::{self, ClientEntry, IdentityDraft};
use super::listeners::{self, Admin, Gateway, Service};
use super::rules::{self, CostEntry, RuleEntry};
use super::storage::RulesFrom;
use super::storage::{self, AuditDraft, DatabaseSettings, LogConfig};
use super::store::{self, StoreDraft};
use super::traces::{self, TracesConfig};
use super::values::parsed;
use crate::document::reading::{Fields, Place, choice, duration};
use crate::document::{Node, Problems, Spot};

pub(super) const ROOT: &[&str] = &[
    "gateway",
    "service",
    "admin",
    "store",
    "database",
    "rules_from",
    "audit",
    "log",
    "traces",
    "shutdown_delay",
    "answers",
    "identity",
    "paths",
    "routes",
    "clients",
    "costs",
    "rules",
];

/// Everything that was said, and where.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) gateway: Option<Gateway>,
    pub(super) service: Option<Service>,
    pub(super) admin: Option<Admin>,
    pub(super) store: StoreDraft,
    pub(super) database: Option<DatabaseSettings>,
    pub(super) audit: Option<AuditDraft>,
    pub(super) log: LogConfig,
    pub(super) traces: Option<TracesConfig>,
    pub(super) shutdown_delay: Duration,
    pub(super) answers: Option<AnswersConfig>,
    pub(super) identity: IdentityDraft,
    pub(super) paths: PathRules,
    pub(super) routes: Vec<Pattern>,
    pub(super) clients: Vec<ClientEntry>,
    pub(super) costs: Vec<CostEntry>,
    pub(super) rules: Vec<RuleEntry>,
    pub(super) rules_from: RulesFrom,
    pub(super) spots: Spots,
}

/// Where the sections are.
#[derive(Debug, Default)]
pub(super) struct Spots {
    pub(super) gateway: Spot,
    pub(super) service: Spot,
    pub(super) admin: Spot,
    pub(super) token: Spot,
    pub(super) service_token: Spot,
    pub(super) database: Spot,
    pub(super) rules: Spot,
}

impl Draft {
    /// Reads all sections. What is wrong stands in `problems`.
    pub(super) fn read(root: &Node, problems: &mut Problems) -> Option<Self> {
        let place = Place::root(root, "");
        let fields = Fields::of(&place, ROOT, problems)?;
        let rules_from = rules_from(&fields, problems);
        let spots = Spots {
            gateway: fields.spot_of("gateway"),
            service: fields.spot_of("service"),
            admin: fields.spot_of("admin"),
            token: fields.spot_within("admin", "token"),
            service_token: fields.spot_within("service", "token"),
            database: fields.spot_within("database", "url"),
            rules: fields.spot_of("rules"),
        };
        let draft = Self {
            gateway: fields.optional("gateway", problems, listeners::gateway),
            service: fields.optional("service", problems, listeners::service),
            admin: fields.optional("admin", problems, listeners::admin),
            store: fields.or("store", StoreDraft::default(), problems, store::store),
            database: fields.optional("database", problems, storage::database),
            audit: fields.optional("audit", problems, storage::audit),
            log: fields.or("log", LogConfig::default(), problems, storage::log),
            traces: fields.optional("traces", problems, traces::traces),
            shutdown_delay: fields.or(
                "shutdown_delay",
                Duration::ZERO,
                problems,
                duration(Duration::ZERO..=Duration::from_secs(300)),
            ),
            answers: fields.optional("answers", problems, answers::answers),
            identity: fields.or(
                "identity",
                IdentityDraft::default(),
                problems,
                identity::identity,
            ),
            paths: fields.or("paths", PathRules::default(), problems, identity::paths),
            routes: all(
                &fields,
                "routes",
                problems,
                parsed("a path such as /v1/users/{id}"),
            ),
            clients: all(&fields, "clients", problems, identity::client),
            costs: all(&fields, "costs", problems, rules::cost),
            rules: all(&fields, "rules", problems, rules::rule),
            rules_from,
            spots,
        };
        draft.check_doors(problems);
        draft.check_audit(fields.has("database"), problems);
        Some(draft)
    }

    fn check_doors(&self, problems: &mut Problems) {
        let spots = &self.spots;
        let listen = [
            (
                "gateway",
                self.gateway.as_ref().map(|door| door.listen),
                spots.gateway.clone(),
            ),
            (
                "service",
                self.service.as_ref().map(|door| door.listen),
                spots.service.clone(),
            ),
            (
                "admin",
                self.admin.as_ref().map(|door| door.listen),
                spots.admin.clone(),
            ),
        ];
        listeners::same_address(&listen, problems);
    }

    fn check_audit(&self, has_database: bool, problems: &mut Problems) {
        if let Some(audit) = &self.audit
            && audit.enabled
            && !has_database
        {
            problems
                .error(
                    audit.spot.clone(),
                    "the audit trail needs a database, and none is configured",
                )
                .help("add database: { url: \"sqlite:tollgate.db\" }, or leave `audit` out");
        }
    }
}

/// The items of a list; those that are wrong are left out.
fn all<T>(
    fields: &Fields<'_>,
    name: &str,
    problems: &mut Problems,
    read: impl Fn(&Place<'_>, &mut Problems) -> Option<T>,
) -> Vec<T> {
    fields.or(name, Vec::new(), problems, |place, problems| {
        let items = place.items(name, problems)?;
        Some(
            items
                .iter()
                .filter_map(|item| read(item, problems))
                .collect(),
        )
    })
}

/// Rules and clients come from one place. With a database and rules in the file, the user has to say which.
fn rules_from(fields: &Fields<'_>, problems: &mut Problems) -> RulesFrom {
    let words = [("file", RulesFrom::File), ("database", RulesFrom::Database)];
    let said = fields.optional("rules_from", problems, choice(&words));
    let in_file = ["rules", "clients"]
        .into_iter()
        .find(|name| fields.has(name));
    match (said, fields.has("database"), in_file) {
        (Some(RulesFrom::Database), false, _) => {
            problems
                .error(
                    fields.spot_of("rules_from"),
                    "rules are to come from a database, and none is configured",
                )
                .help("add database: { url: \"sqlite:tollgate.db\" }");
        }
        (Some(RulesFrom::Database), true, Some(name)) => {
            problems
                .error(
                    fields.spot_of(name),
                    format!("{name} are in this file, and rules and clients are to come from the database"),
                )
                .help("rules and clients come from one place: leave them out here, or say rules_from: file")
                .also(fields.spot_of("rules_from").at, "said here");
        }
        (None, true, Some(name)) if !fields.has("rules_from") => {
            problems
                .error(
                    fields.spot_of(name),
                    format!("{name} are in this file, and a database is configured that can hold them as well"),
                )
                .help(
                    "choose: rules_from: file (the database then keeps only the audit trail), \
                     or rules_from: database and no rules and clients here",
                )
                .also(fields.spot_of("database").at, "the database");
        }
        (None, true, None) => return RulesFrom::Database,
        _ => {}
    }
    said.unwrap_or_default()
}
