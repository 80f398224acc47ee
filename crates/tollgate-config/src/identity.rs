//! Who is calling: sources of names, trusted proxies, known clients, and the normal form of paths.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use tollgate::{EncodedSlash, ForwardedPath, PathClass, PathRules};
use tollgate_tower::identity::{
    Client, ClientSource, Clients, Identity, IdentityConfig, IdentityError, ProxyHeader,
};

use super::values::plan;
use crate::document::reading::{Fields, Input, boolean, choice, list, number, parsed, text};
use crate::document::{Location, Problems};

pub(super) fn identity(fields: &Fields<'_>) -> Option<IdentityConfig> {
    let mut identity = IdentityConfig::default();
    let source = "a source of clients: api_key:NAME, header:NAME, bearer or ip";
    let client = sources(source, ClientSource::is_ip);
    fields.set("client", &mut identity.client, client);
    let plan = sources("a source of plans: header:NAME", |_| false);
    fields.set("plan", &mut identity.plan, plan);
    let networks = list("networks such as 10.0.0.0/8", network);
    fields.set("trusted_proxies", &mut identity.trusted_proxies, networks);
    let words = [
        ("x-forwarded-for", ProxyHeader::XForwardedFor),
        ("forwarded", ProxyHeader::Forwarded),
    ];
    fields.set("proxy_header", &mut identity.proxy_header, choice(&words));
    fields.set("ipv6_prefix", &mut identity.ipv6_prefix, number(1..=128));
    Some(identity)
}

/// A list of sources without duplicates. One that every request has must be the last.
fn sources<T: FromStr<Err: Display> + PartialEq>(
    expected: &'static str,
    is_last: fn(&T) -> bool,
) -> impl Fn(&Input<'_>) -> Option<Vec<T>> {
    move |input| {
        let mut sources = Vec::new();
        for item in input.items("sources such as header:X-Name")? {
            let Some(source) = parsed(expected)(&item) else {
                continue;
            };
            if sources.contains(&source) {
                item.error("this source is listed already; name it once");
            } else if sources.iter().any(is_last) {
                item.error("this source is never used, because every client has an address")
                    .help("put ip last");
            } else {
                sources.push(source);
            }
        }
        Some(sources)
    }
}

/// A network, or a single address.
fn network(input: &Input<'_>) -> Option<IpNet> {
    let network = input.parse("a network such as 10.0.0.0/8, or an address", |text| {
        let address = text.parse::<IpAddr>().map(IpNet::from);
        address.or_else(|_| text.parse()).ok()
    })?;
    if network == network.trunc() {
        return Some(network);
    }
    let help = match input.is_from_environment() {
        true => String::new(),
        false => format!("the network is {}", network.trunc()),
    };
    input.reject_value("a network without bits behind its prefix", &help)
}

pub(super) fn paths(fields: &Fields<'_>) -> Option<PathRules> {
    let mut paths = PathRules::default();
    let words = [
        ("original", ForwardedPath::Original),
        ("normalised", ForwardedPath::Normalised),
    ];
    fields.set("forward", &mut paths.forward, choice(&words));
    fields.set("ignore_case", &mut paths.ignore_case, boolean);
    let words = [
        ("reject", EncodedSlash::Reject),
        ("keep", EncodedSlash::Keep),
    ];
    fields.set("encoded_slash", &mut paths.encoded_slash, choice(&words));
    let classes = PathClass::ALL.map(|class| (class.as_str(), class));
    let accepted = list("classes of paths such as control", choice(&classes));
    if let Some(accepted) = fields.read("accept", accepted) {
        paths.accept = accepted.into_iter().collect();
    }
    Some(paths)
}

/// A client, and where it is defined.
#[derive(Clone, Debug)]
pub(super) struct ClientEntry {
    pub(super) client: Client,
    pub(super) location: Location,
    /// Whether a part of it came from the environment and must not be shown.
    is_hidden: bool,
}

pub(super) const CLIENT_HINTS: &str = "\
api_key: keys are never written down: api_key_sha256 takes what `printf %s KEY | sha256sum` prints
";

pub(super) fn client(fields: &Fields<'_>) -> Option<ClientEntry> {
    let id = fields.required("id", "id: merchant_123", text(128, "the id of a client"));
    let plan = fields.read("plan", plan);
    let api_key_sha256 = fields.read("api_key_sha256", sha256);
    let is_hidden = fields.any_from_environment();
    let client = Client {
        id: id?,
        plan,
        api_key_sha256,
    };
    // Rules of its own: reserved ids, the hash of an empty key.
    if fields.are_right()
        && let Err(error) = Clients::new([client.clone()])
    {
        let message = match is_hidden {
            true => "a client cannot have such an id, plan or key".to_owned(),
            false => error.to_string(),
        };
        return fields.input().reject(message, "");
    }
    Some(ClientEntry {
        client,
        location: fields.input().location(),
        is_hidden,
    })
}

fn sha256(input: &Input<'_>) -> Option<[u8; 32]> {
    let digits = &*input.scalar("a SHA-256 of 64 hex digits")?.text;
    if digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        let byte = |nth: usize| u8::from_str_radix(&digits[2 * nth..2 * nth + 2], 16).ok();
        return Some(std::array::from_fn(|nth| byte(nth).unwrap_or_default()));
    }
    // It may be the key itself, so it is not shown.
    let length = digits.chars().count();
    let message = format!("this is not a SHA-256: expected 64 hex digits, got {length} characters");
    input.reject(message, "`printf %s KEY | sha256sum` prints it")
}

/// All clients, if no two have the same id or key.
pub(super) fn clients(entries: &[ClientEntry], problems: &RefCell<Problems>) -> Option<Clients> {
    let mut problems = problems.borrow_mut();
    let before = problems.errors();
    let (mut by_id, mut by_key) = (HashMap::new(), HashMap::new());
    for entry in entries {
        let key = entry.client.api_key_sha256;
        let same_id = by_id.insert(&entry.client.id, entry);
        let same_key = key.and_then(|key| by_key.insert(key, entry));
        let (first, what) = match (same_id, same_key) {
            (Some(first), _) => (first, "id"),
            (None, Some(first)) => (first, "API key"),
            (None, None) => continue,
        };
        let message = format!("{} has the same {what}", first.location.path);
        (problems.error(entry.location.clone(), message))
            .help(format!("give each client its own {what}"))
            .related(first.location.span, "the first is here");
    }
    if problems.errors() > before {
        return None;
    }
    let clients = Clients::new(entries.iter().map(|entry| entry.client.clone()));
    problems.check(clients, Location::default())
}

/// The identity of a configuration, if its names cannot be confused with the ids of these clients.
pub(super) fn compile(
    config: &IdentityConfig,
    entries: &[ClientEntry],
    clients: &Clients,
    problems: &RefCell<Problems>,
) -> Option<Identity> {
    let checked = Identity::new(config.clone()).and_then(|identity| {
        identity.check(clients)?;
        Ok(identity)
    });
    let error = match checked {
        Ok(identity) => return Some(identity),
        Err(error) => error,
    };
    let entry = match &error {
        IdentityError::ReservedId { id, .. } => entries.iter().find(|entry| entry.client.id == *id),
        _ => None,
    };
    let message = match entry.is_some_and(|entry| entry.is_hidden) {
        true => "this id is reserved: names from a header begin like it".to_owned(),
        false => error.to_string(),
    };
    let location = entry
        .map(|entry| entry.location.clone())
        .unwrap_or_default();
    problems.borrow_mut().check(Err(message), location)
}
