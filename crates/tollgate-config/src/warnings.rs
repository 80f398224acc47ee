//! Warnings: what is valid, but probably a mistake. Each is one function, and says why it matters and what to do.
//!
//! They look at a configuration without errors.

mod clients;
mod requests;

use std::cell::RefCell;

use tollgate::{RuleSet, RuleSetWarning};
use tollgate_tower::identity::IdentityConfig;

use super::config::Config;
use super::identity::ClientEntry;
use super::policy::read_rules;
use super::rules::{CostEntry, RuleEntry};
use super::storage::{RulesFrom, StoreConfig};
use crate::document::reading::Input;
use crate::document::{Location, Node, Problems};
use crate::encryption::{Encryption, is_this_machine};
use crate::secret::Secret;

/// A configuration, and where its parts are defined.
pub(super) struct Context<'a> {
    pub(super) root: &'a Input<'a>,
    pub(super) config: &'a Config,
    /// Fields of the store that have no effect.
    pub(super) unused: &'a [Location],
    pub(super) clients: &'a [ClientEntry],
    pub(super) costs: &'a [CostEntry<'a>],
    pub(super) rules: &'a [RuleEntry<'a>],
}

impl<'a> Context<'a> {
    fn identity(&self) -> &'a IdentityConfig {
        &self.config.policy.settings.identity
    }

    /// The rules that are not off.
    fn rules_in_force(&self) -> impl Iterator<Item = &'a RuleEntry<'a>> + Clone {
        self.rules.iter().filter(|rule| rule.is_on)
    }
}

pub(super) fn all(context: &Context<'_>) -> Problems {
    let each: [fn(&Context<'_>, &mut Problems); 21] = [
        nothing_listens,
        nothing_is_limited,
        unused_store_fields,
        requests::plan_without_clients,
        requests::plan_excluded_by_match,
        requests::path_without_upstream,
        requests::path_in_another_notation,
        requests::limit_below_a_cost,
        requests::cost_without_rule,
        requests::large_sliding_log,
        rule_set,
        clients::untrusted_proxy_in_front,
        clients::client_names_without_proof,
        clients::plans_without_trusted_proxy,
        clients::every_client_is_trusted,
        clients::keys_and_their_source,
        clients::bucket_of_all_without_a_header,
        clients::headers_that_are_dropped,
        redis_password_without_tls,
        database_without_verified_tls,
        secrets_in_file,
    ];
    let mut problems = Problems::default();
    for warn in each {
        warn(context, &mut problems);
    }
    problems
}

/// The warnings of rule documents. Those with an error are left out.
#[must_use]
pub fn rule_warnings(rules: &[Node]) -> Problems {
    let errors = RefCell::default();
    let mut warnings = Problems::default();
    let rules = read_rules(rules, &errors);
    clients::buckets_of_all_without_a_header(&rules, &mut warnings);
    if let Ok(set) = RuleSet::new(rules.iter().map(|entry| entry.rule.clone())) {
        // A rule without a plan may be stored already.
        let mut found = set.warnings();
        found.retain(|warning| !matches!(warning, RuleSetWarning::NoFallback { .. }));
        warnings_of_set(found, &rules, &mut warnings);
    }
    warnings
}

fn rule_set(context: &Context<'_>, problems: &mut Problems) {
    warnings_of_set(
        context.config.policy.rules.warnings(),
        context.rules,
        problems,
    );
}

/// What the engine finds in the rules together, each at the rule that it is about.
fn warnings_of_set(found: Vec<RuleSetWarning>, rules: &[RuleEntry<'_>], problems: &mut Problems) {
    for warning in found {
        let is_its = |entry: &&RuleEntry<'_>| {
            let plan = warning.plan();
            entry.rule.id() == warning.id() && (plan.is_none() || entry.rule.plan_name() == plan)
        };
        let Some(entry) = rules.iter().filter(|entry| entry.is_on).find(is_its) else {
            continue;
        };
        // The engine's own message names the rule and its plans, which may come from the environment.
        let (field, message, help) = match &warning {
            RuleSetWarning::NoFallback { .. } => (
                "plan",
                "the rules of this id are for plans only: clients without one of them are not limited by it",
                "add a rule of the same id without a plan",
            ),
            RuleSetWarning::CostAboveLimit { .. } => (
                "limit",
                "this rule charges more for each request than its limit ever allows: it denies every request",
                "allow a larger burst, or lower the cost",
            ),
            RuleSetWarning::ExceptsEverything { .. } => (
                "id",
                "this rule excepts every request that it matches: it never applies",
                "remove the rule, or give the exception other conditions",
            ),
            // Reported with all other plans.
            _ => continue,
        };
        problems.warning(entry.input.location_of(field), message, help);
    }
}

fn nothing_listens(context: &Context<'_>, problems: &mut Problems) {
    if context.config.gateway.is_none() && context.config.service.is_none() {
        let message = "neither gateway nor service is configured, so no request arrives";
        let help = "add gateway: { upstreams: [...] } or service: {}";
        problems.warning(Location::default(), message, help);
    }
}

fn nothing_is_limited(context: &Context<'_>, problems: &mut Problems) {
    if context.config.rules_from == RulesFrom::File && context.rules_in_force().next().is_none() {
        let message = "no rule is on, so nothing is limited";
        let help = "begin with: - { id: client, per: [client], limit: \"10/s burst 50\" }";
        problems.warning(context.root.location_of("rules"), message, help);
    }
}

fn unused_store_fields(context: &Context<'_>, problems: &mut Problems) {
    let why = match context.config.store {
        StoreConfig::Memory(_) => "it is for Redis, and usage is stored in memory",
        StoreConfig::Redis(_) => "it is for memory, and usage is stored in Redis",
    };
    for location in context.unused {
        let help = "remove it, or set the address of Redis in `redis`";
        problems.warning(location.clone(), format!("this has no effect: {why}"), help);
    }
}

fn redis_password_without_tls(context: &Context<'_>, problems: &mut Problems) {
    let StoreConfig::Redis(redis) = &context.config.store else {
        return;
    };
    let plain = ["redis", "redis+sentinel", "redis+cluster"];
    let is_remote = redis.url.hosts().any(|host| !is_this_machine(host));
    if plain.contains(&redis.url.scheme()) && redis.url.has_password() && is_remote {
        let message =
            "the password is sent to another machine without TLS: anybody on the way can read it";
        let help = "use rediss:// if the server supports TLS";
        problems.warning(context.root.location_of("store.redis"), message, help);
    }
}

fn database_without_verified_tls(context: &Context<'_>, problems: &mut Problems) {
    let Some(database) = &context.config.database else {
        return;
    };
    let url = database.url.expose();
    let message = match Encryption::of(url).weakness() {
        Ok(None) => return,
        Ok(Some(weakness)) => weakness.to_owned(),
        Err(unknown_mode) => unknown_mode,
    };
    let help = match Encryption::of_url(url).has_mode() {
        true => {
            "remove sslmode (the default is verify-full), and add sslrootcert=FILE if the certificate is from an authority of your own"
        }
        false => "PGSSLMODE in the environment causes this: unset it, or set sslmode in the URL",
    };
    let location = context.root.location_of("database.url");
    problems.warning(location, message, help);
}

fn secrets_in_file(context: &Context<'_>, problems: &mut Problems) {
    let config = context.config;
    let admin = config.admin.as_ref().and_then(|admin| admin.token.as_ref());
    let service = (config.service.as_ref()).and_then(|service| service.token.as_ref());
    let redis = match &config.store {
        StoreConfig::Redis(redis) => redis.url.has_password_in_file(),
        StoreConfig::Memory(_) => false,
    };
    let database = config.database.as_ref();
    let database = database.is_some_and(|database| database.url.has_password_in_file());
    for (is_in_file, field, kind, example) in [
        (
            admin.is_some_and(Secret::is_in_file),
            "admin.token",
            "token",
            "token: \"${TOLLGATE_ADMIN_TOKEN}\"",
        ),
        (
            service.is_some_and(Secret::is_in_file),
            "service.token",
            "token",
            "token: \"${TOLLGATE_SERVICE_TOKEN}\"",
        ),
        (
            redis,
            "store.redis",
            "password",
            "redis://user:${REDIS_PASSWORD}@host",
        ),
        (
            database,
            "database.url",
            "password",
            "postgres://user:${DATABASE_PASSWORD}@host/database",
        ),
    ] {
        if is_in_file {
            let message =
                format!("the {kind} is in the file: everybody who can read it, or a copy, has it");
            let help = format!("put it into the environment: {example}");
            problems.warning(context.root.location_of(field), message, help);
        }
    }
}

#[cfg(test)]
mod tests;
