//! Who is calling: sources, trusted proxies, known clients, and the forms of paths.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;
use tollgate::{EncodedSlash, ForwardedPath, PathClass, PathClasses, PathRules};
use tollgate_tower::identity::{
    Client, ClientSource, Clients, Identity, IdentityConfig, IdentityError, PlanSource, ProxyHeader,
};

use super::values::{parsed, plan};
use crate::document::reading::{Fields, Place, choice, number, shown, text, truth};
use crate::document::{Problems, Spot};

pub(super) const IDENTITY: &[&str] = &[
    "client",
    "plan",
    "trusted_proxies",
    "proxy_header",
    "ipv6_prefix",
];
pub(super) const PATHS: &[&str] = &["forward", "ignore_case", "encoded_slash", "accept"];
pub(super) const CLIENT: &[&str] = &["id", "plan", "api_key_sha256"];

/// What was said of identity, and where.
#[derive(Clone, Debug, Default)]
pub(super) struct IdentityDraft {
    pub(super) config: IdentityConfig,
    pub(super) client_spot: Spot,
    pub(super) plan_spot: Spot,
    pub(super) proxy_spots: Vec<Spot>,
}

pub(super) fn identity(place: &Place<'_>, problems: &mut Problems) -> Option<IdentityDraft> {
    let fields = Fields::of(place, IDENTITY, problems)?;
    let default = IdentityConfig::default();
    let client = fields.or("client", default.client, problems, client_sources);
    let plan = fields.or("plan", default.plan, problems, plan_sources);
    let proxies = fields.or(
        "trusted_proxies",
        Vec::new(),
        problems,
        |place, problems| {
            let items = place.items("networks such as 10.0.0.0/8", problems)?;
            let read = |item: &Place<'_>| Some((item.spot(), network(item, problems)?));
            Some(items.iter().filter_map(read).collect())
        },
    );
    let headers = [
        ("x-forwarded-for", ProxyHeader::XForwardedFor),
        ("forwarded", ProxyHeader::Forwarded),
    ];
    let proxy_header = fields.or(
        "proxy_header",
        default.proxy_header,
        problems,
        choice(&headers),
    );
    let ipv6_prefix = fields.optional("ipv6_prefix", problems, number(1..=128));
    let (proxy_spots, trusted_proxies) = proxies.into_iter().unzip();
    Some(IdentityDraft {
        config: IdentityConfig {
            client,
            plan,
            trusted_proxies,
            proxy_header,
            ipv6_prefix: ipv6_prefix
                .and_then(|bits| u8::try_from(bits).ok())
                .unwrap_or(default.ipv6_prefix),
        },
        client_spot: fields.spot_of("client"),
        plan_spot: fields.spot_of("plan"),
        proxy_spots,
    })
}

fn client_sources(place: &Place<'_>, problems: &mut Problems) -> Option<Vec<ClientSource>> {
    let mut sources: Vec<ClientSource> = Vec::new();
    for item in place.items("sources of clients, such as ip", problems)? {
        let expected = "a source of clients: api_key:NAME, header:NAME, bearer or ip";
        let Some(source) = parsed::<ClientSource>(expected)(&item, problems) else {
            continue;
        };
        let wrong = if sources.contains(&source) {
            IdentityError::ClientSourceTwice(source.clone())
        } else if sources.iter().any(ClientSource::is_ip) {
            IdentityError::BehindIp(source.clone())
        } else {
            sources.push(source);
            continue;
        };
        let message = match item.is_from_environment() {
            true => "this source stands there already, or behind ip, and is never asked".to_owned(),
            false => wrong.to_string(),
        };
        item.error(problems, message);
    }
    Some(sources)
}

fn plan_sources(place: &Place<'_>, problems: &mut Problems) -> Option<Vec<PlanSource>> {
    let mut sources: Vec<PlanSource> = Vec::new();
    for item in place.items("sources of plans, such as header:X-Plan", problems)? {
        let expected = "a source of plans: header:NAME";
        let Some(source) = parsed::<PlanSource>(expected)(&item, problems) else {
            continue;
        };
        if sources.contains(&source) {
            item.error(problems, "this source stands there already; name it once");
        } else {
            sources.push(source);
        }
    }
    Some(sources)
}

/// A network, or a single address.
fn network(place: &Place<'_>, problems: &mut Problems) -> Option<IpNet> {
    let expected = "a network such as 10.0.0.0/8, or an address";
    let scalar = place.scalar(expected, problems)?;
    let address = scalar.text.parse::<IpAddr>().map(IpNet::from);
    match address.ok().or_else(|| scalar.text.parse::<IpNet>().ok()) {
        Some(network) if network.addr() == network.network() => Some(network),
        Some(network) => {
            let problem = place.error(
                problems,
                format!("{} has bits behind its prefix", shown(scalar)),
            );
            if !scalar.is_from_environment() {
                problem.help(format!("the network is {}", network.trunc()));
            }
            None
        }
        None => {
            place.error(problems, format!("{} is not {expected}", shown(scalar)));
            None
        }
    }
}

pub(super) fn paths(place: &Place<'_>, problems: &mut Problems) -> Option<PathRules> {
    let fields = Fields::of(place, PATHS, problems)?;
    let slashes = [
        ("reject", EncodedSlash::Reject),
        ("keep", EncodedSlash::Keep),
    ];
    let forms = [
        ("original", ForwardedPath::Original),
        ("normalised", ForwardedPath::Normalised),
    ];
    Some(PathRules {
        forward: fields.or("forward", ForwardedPath::Original, problems, choice(&forms)),
        accept: fields.or("accept", PathClasses::default(), problems, path_classes),
        ignore_case: fields.or("ignore_case", false, problems, truth),
        encoded_slash: fields.or(
            "encoded_slash",
            EncodedSlash::Reject,
            problems,
            choice(&slashes),
        ),
    })
}

fn path_classes(place: &Place<'_>, problems: &mut Problems) -> Option<PathClasses> {
    let classes = PathClass::ALL.map(|class| (class.as_str(), class));
    let items = place.items("classes of paths such as control", problems)?;
    let read = |item: &Place<'_>| choice(&classes)(item, problems);
    Some(items.iter().filter_map(read).collect())
}

/// A client, and where it was said.
#[derive(Clone, Debug)]
pub(super) struct ClientEntry {
    pub(super) client: Client,
    pub(super) spot: Spot,
    /// Whether what it says came from the environment, and must not be shown.
    is_hidden: bool,
}

pub(super) fn client(place: &Place<'_>, problems: &mut Problems) -> Option<ClientEntry> {
    let foreign = [(
        "api_key",
        "keys are never written down: api_key_sha256 takes what `printf %s KEY | sha256sum` prints",
    )];
    let fields = Fields::of_with(place, CLIENT, &foreign, problems)?;
    let before = problems.errors();
    let id = fields.required(
        "id",
        "id: merchant_123",
        problems,
        text(128, "the id of a client"),
    );
    let plan = fields.optional("plan", problems, plan);
    let key = fields.optional("api_key_sha256", problems, sha256);
    let client = Client {
        id: id?,
        plan,
        api_key_sha256: key,
    };
    // Its own rules: reserved ids, the hash of an empty key. Not if something was said already.
    if problems.errors() == before
        && let Err(error) = Clients::new([client.clone()])
    {
        let message = match fields.any_from_environment() {
            true => "a client cannot have such an id, plan or key".to_owned(),
            false => error.to_string(),
        };
        place.error(problems, message);
        return None;
    }
    Some(ClientEntry {
        is_hidden: fields.any_from_environment(),
        client,
        spot: place.spot(),
    })
}

fn sha256(place: &Place<'_>, problems: &mut Problems) -> Option<[u8; 32]> {
    let scalar = place.scalar("a SHA-256 of 64 hex digits", problems)?;
    let digits = scalar.text.as_bytes();
    let mut hash = [0; 32];
    if digits.len() == 64 && digits.iter().all(u8::is_ascii_hexdigit) {
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let text = std::str::from_utf8(pair).unwrap_or_default();
            *byte = u8::from_str_radix(text, 16).unwrap_or_default();
        }
        return Some(hash);
    }
    // It may be the key itself, so it is not shown.
    let length = scalar.text.chars().count();
    place
        .error(
            problems,
            format!("this is not a SHA-256: expected 64 hex digits, got {length} characters"),
        )
        .help("`printf %s KEY | sha256sum` prints it");
    None
}

/// All clients, if they can be told apart.
pub(super) fn clients(entries: &[ClientEntry], problems: &mut Problems) -> Option<Clients> {
    let before = problems.errors();
    let (mut by_id, mut by_key) = (HashMap::new(), HashMap::new());
    for entry in entries {
        let Client {
            id, api_key_sha256, ..
        } = &entry.client;
        if let Some(first) = by_id.insert(id, entry) {
            let message = format!("{} has the same id", first.spot.path);
            let also = first.spot.at;
            problems
                .error(entry.spot.clone(), message)
                .help("give each client an id of its own")
                .also(also, "the first is here");
            continue;
        }
        let Some(key) = api_key_sha256 else { continue };
        if let Some(first) = by_key.insert(key, entry) {
            let other = &first.spot.path;
            problems
                .error(entry.spot.clone(), format!("{other} has the same API key"))
                .help("give each client a key of its own")
                .also(first.spot.at, "the first is here");
        }
    }
    if problems.errors() > before {
        return None;
    }
    let clients = Clients::new(entries.iter().map(|entry| entry.client.clone()));
    clients
        .map_err(|error| problems.error(Spot::default(), error.to_string()).severity)
        .ok()
}

/// Who is told by these sources, if these clients can be told from others by them.
pub(super) fn identified(
    draft: &IdentityDraft,
    entries: &[ClientEntry],
    clients: &Clients,
    problems: &mut Problems,
) -> Option<Identity> {
    let identity = match Identity::new(draft.config.clone()) {
        Ok(identity) => identity,
        Err(error) => {
            problems.error(draft.client_spot.clone(), error.to_string());
            return None;
        }
    };
    if let Err(error) = identity.check(clients) {
        let entry = match &error {
            IdentityError::ReservedId { id, .. } => {
                let mut entries = entries.iter();
                entries.find(|entry| entry.client.id == *id)
            }
            _ => None,
        };
        let spot = entry.map(|entry| entry.spot.clone()).unwrap_or_default();
        let message = match entry.is_some_and(|entry| entry.is_hidden) {
            true => "this id is reserved: names found in a header begin like it".to_owned(),
            false => error.to_string(),
        };
        problems.error(spot, message);
        return None;
    }
    Some(identity)
}
