//! The configuration of the program: from a text to a form that cannot be wrong.
//!
//! [`parse`] reports everything that is wrong at once, and warns of what is legal but probably a mistake.

use std::time::Duration;

use super::draft::Draft;
use super::listeners::{Admin, Gateway, Service};
use super::policy::{PolicyConfig, Settings};
use super::storage::{AuditConfig, DatabaseSettings, LogConfig, RulesFrom};
use super::store::StoreConfig;
use super::traces::TracesConfig;
use super::warnings;
use crate::document::{self, Problems};

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
    pub audit: Option<AuditConfig>,
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

impl Config {
    /// The configuration, if all of it fits together. Warnings come last, when nothing is wrong.
    fn of(draft: Draft, problems: &mut Problems) -> Option<Self> {
        let policy = PolicyConfig::of(
            Settings {
                answers: draft.answers.clone(),
                identity: draft.identity.clone(),
                costs: draft.costs.iter().map(|entry| entry.cost.clone()).collect(),
                paths: draft.paths,
                routes: draft.routes.clone(),
                boundaries: draft.gateway.iter().flat_map(Gateway::boundaries).collect(),
            },
            &draft.clients,
            &draft.rules,
            problems,
        );
        if problems.has_errors() {
            return None;
        }
        let mut warned = Problems::default();
        warnings::all(&draft, &mut warned);
        let scope = draft.database.as_ref().map(|database| database.scope);
        let audit = match (scope, draft.audit) {
            (Some(_), None) => Some(AuditConfig::default()),
            (Some(_), Some(audit)) if audit.enabled => Some(audit.config),
            _ => None,
        };
        let audit = audit.map(|audit| AuditConfig {
            scope: scope.map_or_else(String::new, |scope| scope.to_string()),
            ..audit
        });
        Some(Self {
            gateway: draft.gateway,
            service: draft.service,
            admin: draft.admin,
            store: draft.store.store,
            database: draft.database,
            audit,
            log: draft.log,
            traces: draft.traces,
            shutdown_delay: draft.shutdown_delay,
            rules_from: draft.rules_from,
            policy: policy?,
            warnings: warned,
        })
    }
}

/// Reads a configuration. `env` says what the variables in it hold.
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
    let finished = draft.and_then(|draft| Config::of(draft, &mut problems));
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
        ("", super::draft::ROOT),
        ("gateway.", super::listeners::GATEWAY),
        ("gateway.tls.", super::gateway::TLS),
        ("gateway.upstreams[].", super::upstreams::UPSTREAM),
        ("gateway.upstreams[].health.", super::upstreams::HEALTH),
        ("service.", super::listeners::SERVICE),
        ("service.rls.", super::listeners::RLS),
        ("admin.", super::listeners::ADMIN),
        ("store.", super::store::STORE),
        ("store.breaker.", super::store::BREAKER),
        ("database.", super::storage::DATABASE),
        ("audit.", super::storage::AUDIT),
        ("log.", super::storage::LOG),
        ("traces.", super::traces::TRACES),
        ("answers.", super::answers::ANSWERS),
        ("answers.denied.", super::answers::DENIED),
        ("identity.", super::identity::IDENTITY),
        ("paths.", super::identity::PATHS),
        ("clients[].", super::identity::CLIENT),
        ("costs[].", super::rules::COST),
        ("rules[].", super::rules::RULE),
        ("rules[].match.", super::conditions::MATCH),
        ("rules[].limit.", super::limits::LIMIT),
    ];
    let of = |(section, fields): (&str, &[&str])| {
        let fields = fields.iter().map(|field| format!("{section}{field}"));
        fields.collect::<Vec<_>>()
    };
    sections.into_iter().flat_map(of).collect()
}
