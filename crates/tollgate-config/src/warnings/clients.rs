//! Clients that are mistaken for others, or for none.

use std::net::IpAddr;

use tollgate::{Dimension, Name};
use tollgate_http::headers::{Underscores, is_plain_name};
use tollgate_tower::identity::{ClientSource, PlanSource};

use super::Context;
use crate::document::Problems;
use crate::rules::RuleEntry;
use crate::storage::RulesFrom;

fn counts_by(rule: &RuleEntry<'_>, dimension: Dimension) -> bool {
    rule.rule.dimensions().contains(&dimension)
}

/// Whether only machines in the same network can reach an address, so that clients elsewhere come through a proxy.
fn is_internal(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

/// A gateway on an internal address is behind a proxy, and counts all clients as that proxy unless it is trusted.
pub(super) fn untrusted_proxy_in_front(context: &Context<'_>, problems: &mut Problems) {
    let (identity, gateway) = (context.identity(), context.config.gateway.as_ref());
    let is_behind_proxy = gateway.is_some_and(|gateway| is_internal(gateway.listen.ip()));
    if !is_behind_proxy || !identity.trusted_proxies.is_empty() {
        return;
    }
    let by_address = identity.client.iter().any(ClientSource::is_ip);
    let counts_by_address = |rule: &&RuleEntry<'_>| {
        counts_by(rule, Dimension::Ip) || by_address && counts_by(rule, Dimension::Client)
    };
    if let Some(rule) = context.rules_in_force().find(counts_by_address) {
        let message = "this counts by address, but the gateway can only be reached through a proxy, so all clients share the bucket \
                       of that proxy";
        let help = "name the proxy in identity.trusted_proxies, such as [127.0.0.0/8]";
        problems
            .warning(rule.input.location_of("per"), message, help)
            .related(context.root.location_of("gateway").span, "listens here");
    }
}

/// A client that can choose its name can choose a new one for each request, which defeats every limit per client.
pub(super) fn client_names_without_proof(context: &Context<'_>, problems: &mut Problems) {
    let identity = context.identity();
    if !identity.trusted_proxies.is_empty() || context.config.rules_from == RulesFrom::Database {
        return;
    }
    let is_claimed = identity.client.iter().any(ClientSource::is_claimed);
    let mut rules = context.rules_in_force();
    let has_ip_rule = rules.clone().any(|rule| counts_by(rule, Dimension::Ip));
    if is_claimed && !has_ip_rule && rules.any(|rule| counts_by(rule, Dimension::Client)) {
        let message = "any client can send the header that names clients, and get a new bucket for each request with ever new names";
        let help = "add a rule with per: [ip], or name the proxies that check this header in identity.trusted_proxies";
        problems.warning(context.root.location_of("identity.client"), message, help);
    }
}

/// A plan in a header is believed from trusted proxies only.
pub(super) fn plans_without_trusted_proxy(context: &Context<'_>, problems: &mut Problems) {
    if !context.identity().plan.is_empty() && context.identity().trusted_proxies.is_empty() {
        let message =
            "a plan in a header is believed from trusted proxies only, and there are none";
        let help =
            "name the proxies that set it in identity.trusted_proxies, or give plans to `clients`";
        problems.warning(context.root.location_of("identity.plan"), message, help);
    }
}

/// `0.0.0.0/0`.
pub(super) fn every_client_is_trusted(context: &Context<'_>, problems: &mut Problems) {
    let networks = context.root.field("identity.trusted_proxies");
    let locations = networks.and_then(|networks| networks.items("networks"));
    let proxies = context.identity().trusted_proxies.iter();
    for (network, input) in proxies.zip(locations.unwrap_or_default()) {
        if network.prefix_len() == 0 {
            let message = "this trusts all clients, so any of them can choose its address, and with it its bucket";
            let help = "name only the networks of your own proxies";
            problems.warning(input.location(), message, help);
        }
    }
}

pub(super) fn keys_and_their_source(context: &Context<'_>, problems: &mut Problems) {
    let has_source = context
        .identity()
        .client
        .iter()
        .any(ClientSource::is_secret);
    let mut clients = context.clients.iter();
    let with_key = clients.find(|entry| entry.client.api_key_sha256.is_some());
    match with_key {
        Some(entry) if !has_source => {
            let message = "this client has an API key, but identity.client has no source of keys, so no request is from this client";
            let help = "add \"api_key:X-API-Key\" (the header that your clients use) or bearer to identity.client";
            problems.warning(entry.location.clone(), message, help);
        }
        None if has_source && context.config.rules_from == RulesFrom::File => {
            let message =
                "clients are identified by API keys, but none has one, so every key is unknown";
            let help = "add clients: - { id: NAME, api_key_sha256: \"...\" }, with what `printf %s KEY | sha256sum` prints";
            problems.warning(context.root.location_of("identity.client"), message, help);
        }
        _ => {}
    }
}

/// Requests without a header share a bucket, because they have the same value: none.
pub(super) fn bucket_of_all_without_a_header(context: &Context<'_>, problems: &mut Problems) {
    buckets_of_all_without_a_header(context.rules, problems);
    buckets_of_all_without_a_name(context, problems);
}

/// Without `ip` among the sources, requests that no other source names have no client, and share a bucket.
fn buckets_of_all_without_a_name(context: &Context<'_>, problems: &mut Problems) {
    let identity = context.identity();
    if identity.client.iter().any(ClientSource::is_ip) {
        return;
    }
    let claimed = (identity.client.iter()).filter(|source| source.is_claimed());
    let names: Vec<_> = claimed.filter_map(ClientSource::header_name).collect();
    let has_name = |rule: &RuleEntry<'_>| {
        let mut required = (rule.when.attributes.iter())
            .filter_map(|(attribute, _)| attribute.as_str().strip_prefix("header:"));
        required.any(|header| names.iter().any(|name| *name == header))
    };
    let counts_by_client = |rule: &&RuleEntry<'_>| {
        counts_by(rule, Dimension::Client) && !counts_by(rule, Dimension::Ip)
    };
    let rules = context.rules_in_force().filter(counts_by_client);
    for rule in rules.filter(|rule| rule.rule.plan_name().is_none() && !has_name(rule)) {
        let message = "all requests of clients without a name share one bucket, whoever sends them, because identity.client has no `ip`";
        let help = "add ip to identity.client, after the other sources";
        problems
            .warning(rule.input.location_of("per"), message, help)
            .related(
                context.root.location_of("identity.client").span,
                "these name clients",
            );
    }
}

/// The same for rules that are not in a configuration.
pub(super) fn buckets_of_all_without_a_header(rules: &[RuleEntry<'_>], problems: &mut Problems) {
    for rule in rules.iter().filter(|rule| rule.is_on) {
        if counts_by(rule, Dimension::Client) || counts_by(rule, Dimension::Ip) {
            continue;
        }
        let is_required = |name: &Name| rule.when.attributes.iter().any(|(other, _)| other == name);
        let mut names = attributes(rule).filter(|name| !is_required(name));
        let Some(name) = names.next() else { continue };
        let (kind, section, name) = match name.as_str().strip_prefix("header:") {
            Some(header) => ("header", "headers", header),
            None => ("attribute", "attributes", name.as_str()),
        };
        let message =
            format!("all requests without the {kind} share one bucket, whoever sends them");
        let help = format!(
            "add match: {{ {section}: {{ {name}: \"*\" }} }}, and another rule for requests without it, such as per: [ip]"
        );
        problems.warning(rule.input.location_of("per"), message, help);
    }
}

/// The attributes that a rule counts by.
fn attributes(rule: &RuleEntry<'_>) -> impl Iterator<Item = Name> {
    rule.rule
        .dimensions()
        .iter()
        .filter_map(|dimension| match dimension {
            Dimension::Attribute(name) => Some(*name),
            _ => None,
        })
}

/// A header with an underscore or a dot in its name never reaches the rule that looks for it.
pub(super) fn headers_that_are_dropped(context: &Context<'_>, problems: &mut Problems) {
    let gateway = context.config.gateway.as_ref();
    if gateway.is_none_or(|gateway| gateway.front.underscores != Underscores::Drop) {
        return;
    }
    let (identity, root) = (context.identity(), &context.root);
    let clients = (identity.client.iter()).filter_map(ClientSource::header_name);
    let clients = clients.map(|header| (header.as_str(), "identity.client"));
    let plans = identity.plan.iter().map(PlanSource::header_name);
    let plans = plans.map(|header| (header.as_str(), "identity.plan"));
    let sources = clients
        .chain(plans)
        .filter(|(header, _)| !is_plain_name(header));
    let mut dropped: Vec<_> = sources.map(|(_, field)| root.location_of(field)).collect();
    let is_dropped = |name: Name| {
        let header = name.as_str().strip_prefix("header:");
        header.is_some_and(|header| !is_plain_name(header))
    };
    for rule in context.rules {
        let mut names = rule.when.compiled.attribute_names().chain(attributes(rule));
        let location = rule.input.location_of("id");
        dropped.extend(names.any(is_dropped).then_some(location));
    }
    for cost in context.costs {
        let mut names = cost.when.compiled.attribute_names();
        dropped.extend(names.any(is_dropped).then_some(cost.input.location()));
    }
    for location in dropped {
        let message = "the gateway drops headers with other characters than letters, digits and hyphens in their names, so this one never arrives";
        let help = "use a header with hyphens, or set gateway.underscores: pass";
        problems.warning(location, message, help);
    }
}
