//! Callers that are taken for somebody else, or for nobody.

use std::net::IpAddr;

use tollgate::{Dimension, Name};
use tollgate_tower::identity::{ClientSource, PlanSource};

use crate::draft::Draft;
use crate::rules::RuleEntry;
use tollgate_http::headers::Underscores;

use crate::document::{Problems, Spot};
use crate::storage::RulesFrom;

fn counts_by(rule: &RuleEntry, dimension: Dimension) -> bool {
    rule.rule.dimensions().contains(&dimension)
}

/// An address that only machines close by can reach: whoever calls from elsewhere comes through something.
fn is_inside(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

/// A gateway that listens inside is behind a proxy, and takes all callers for that proxy unless it is trusted.
pub(super) fn everybody_behind_one_proxy(draft: &Draft, problems: &mut Problems) {
    let Some(gateway) = &draft.gateway else {
        return;
    };
    let identity = &draft.identity.config;
    if !is_inside(gateway.listen.ip()) || !identity.trusted_proxies.is_empty() {
        return;
    }
    let by_address = identity.client.iter().any(ClientSource::is_ip);
    let rules = draft.rules.iter().filter(|rule| rule.is_on());
    let hit: Vec<&RuleEntry> = rules
        .filter(|rule| {
            counts_by(rule, Dimension::Ip) || by_address && counts_by(rule, Dimension::Client)
        })
        .collect();
    if let Some(rule) = hit.first() {
        problems
            .warning(
                rule.per_spot.clone(),
                "this counts by address, and the gateway is only reached through something in front of it: everybody would share the \
                 bucket of that proxy",
            )
            .help("name the proxy in identity.trusted_proxies, such as [127.0.0.0/8]")
            .also(draft.spots.gateway.at, "listens here");
    }
}

/// Whoever can choose a name can choose a new one for each request, and then no limit per client holds.
pub(super) fn names_that_anybody_can_invent(draft: &Draft, problems: &mut Problems) {
    let identity = &draft.identity.config;
    if !identity.trusted_proxies.is_empty() || draft.rules_from == RulesFrom::Database {
        return;
    }
    let is_claimed = identity.client.iter().any(ClientSource::is_claimed);
    let mut rules = draft.rules.iter().filter(|rule| rule.is_on());
    let has_ip_tier = rules.clone().any(|rule| counts_by(rule, Dimension::Ip));
    if !is_claimed || has_ip_tier || !rules.any(|rule| counts_by(rule, Dimension::Client)) {
        return;
    }
    problems
        .warning(
            draft.identity.client_spot.clone(),
            "anybody can write the header that names clients: with ever new names a caller gets a new bucket for each request",
        )
        .help("add a rule with per: [ip], or name in identity.trusted_proxies who checks these headers");
}

/// A plan in a header is believed from trusted proxies alone.
pub(super) fn plans_that_nobody_vouches_for(draft: &Draft, problems: &mut Problems) {
    let identity = &draft.identity.config;
    if !identity.plan.is_empty() && identity.trusted_proxies.is_empty() {
        problems
            .warning(
                draft.identity.plan_spot.clone(),
                "a plan in a header is believed only from trusted proxies, and there are none: it is never believed",
            )
            .help("name the proxies that set it in identity.trusted_proxies, or give plans to `clients`");
    }
}

/// `0.0.0.0/0`.
pub(super) fn everybody_is_trusted(draft: &Draft, problems: &mut Problems) {
    let identity = &draft.identity;
    let proxies = identity.config.trusted_proxies.iter();
    for (network, spot) in proxies.zip(&identity.proxy_spots) {
        if network.prefix_len() == 0 {
            problems
                .warning(
                    spot.clone(),
                    "this trusts everybody: any caller can choose its address, and with it its bucket",
                )
                .help("name only the networks of your own proxies");
        }
    }
}

pub(super) fn key_source_without_keys(draft: &Draft, problems: &mut Problems) {
    let has_source = draft
        .identity
        .config
        .client
        .iter()
        .any(ClientSource::is_secret);
    let mut clients = draft.clients.iter();
    let has_key = clients.any(|entry| entry.client.api_key_sha256.is_some());
    if draft.rules_from == RulesFrom::File && has_source && !has_key {
        problems
            .warning(
                draft.identity.client_spot.clone(),
                "clients are to be known by API keys, and no client has one: every key counts as unknown",
            )
            .help("add clients: - { id: NAME, api_key_sha256: \"...\" }, with what `printf %s KEY | sha256sum` prints");
    }
}

pub(super) fn keys_without_a_source(draft: &Draft, problems: &mut Problems) {
    let has_source = draft
        .identity
        .config
        .client
        .iter()
        .any(ClientSource::is_secret);
    let mut clients = draft.clients.iter();
    let with_key = clients.find(|entry| entry.client.api_key_sha256.is_some());
    if let Some(client) = with_key
        && !has_source
    {
        problems
            .warning(client.spot.clone(), "this client has an API key, and identity.client looks for none: nobody is ever this client")
            .help("add \"api_key:X-API-Key\" (the header your callers use) or bearer to identity.client");
    }
}

/// Requests without a header share a bucket, as they have the same value: none.
pub(super) fn bucket_of_all_without_a_header(draft: &Draft, problems: &mut Problems) {
    buckets_of_all_without_a_header(&draft.rules, problems);
}

/// The same for rules that stand in no configuration.
pub(crate) fn buckets_of_all_without_a_header(rules: &[RuleEntry], problems: &mut Problems) {
    for rule in rules.iter().filter(|rule| rule.is_on()) {
        if counts_by(rule, Dimension::Client) || counts_by(rule, Dimension::Ip) {
            continue;
        }
        let is_asked_for =
            |name: &Name| rule.when.attributes.iter().any(|(asked, _)| asked == name);
        let missing = rule
            .rule
            .dimensions()
            .iter()
            .find_map(|dimension| match dimension {
                Dimension::Attribute(name) if !is_asked_for(name) => Some(name.as_str()),
                _ => None,
            });
        let Some(name) = missing else { continue };
        let (what, condition) = match name.strip_prefix("header:") {
            Some(header) => (
                "header",
                format!("match: {{ headers: {{ {header}: \"*\" }} }}"),
            ),
            None => (
                "attribute",
                format!("match: {{ attributes: {{ {name}: \"*\" }} }}"),
            ),
        };
        problems
            .warning(
                rule.per_spot.clone(),
                format!(
                    "all requests without the {what} share one bucket here, whoever sends them"
                ),
            )
            .help(format!(
                "add {condition}, and another rule for requests without it, such as per: [ip]"
            ));
    }
}

/// A header with an underscore in its name never comes as far as whoever looks for it.
pub(super) fn headers_that_are_dropped(draft: &Draft, problems: &mut Problems) {
    let gateway = draft.gateway.as_ref();
    if gateway.is_none_or(|gateway| gateway.front.underscores != Underscores::Drop) {
        return;
    }
    let identity = &draft.identity;
    let clients = identity.config.client.iter();
    let client = clients.filter_map(ClientSource::header_name);
    let plan = identity.config.plan.iter().map(PlanSource::header_name);
    let sources = client
        .map(|name| (name, &identity.client_spot))
        .chain(plan.map(|name| (name, &identity.plan_spot)));
    let mut dropped: Vec<&Spot> = sources
        .filter(|(name, _)| name.as_str().contains('_'))
        .map(|(_, spot)| spot)
        .collect();
    let is_dropped = |name: &Name| {
        let header = name.as_str().strip_prefix("header:");
        header.is_some_and(|header| header.contains('_'))
    };
    for rule in &draft.rules {
        let counted = rule.rule.dimensions().iter().filter_map(|d| match d {
            Dimension::Attribute(name) => Some(*name),
            _ => None,
        });
        let mut names = rule.when.compiled.attribute_names().chain(counted);
        dropped.extend(names.any(|name| is_dropped(&name)).then_some(&rule.spot));
    }
    for cost in &draft.costs {
        let mut names = cost.when.compiled.attribute_names();
        dropped.extend(names.any(|name| is_dropped(&name)).then_some(&cost.spot));
    }
    for spot in dropped {
        problems
            .warning(
                spot.clone(),
                "the gateway drops headers with an underscore in their names, so the one that is named here never arrives",
            )
            .help("use a header with hyphens, or set gateway.underscores: pass");
    }
}
