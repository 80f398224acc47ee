//! Who is calling: decided from the peer's address and the request's headers, and from nothing else.
//!
//! Whatever a caller writes into a header, it must not get more than it had: neither by another address, nor by
//! another's name or plan, nor by ever new names. So
//!
//! - the **address** is the socket's peer, unless that is a trusted proxy. Then the proxies' header is read from the
//!   right, over trusted addresses only. IPv6 counts by network;
//! - the **client** is found at the first source that yields one: the hash of an API key, an id in a header, the address.
//!   An API key that nobody knows yields nothing. An id in a header is believed from trusted proxies alone if any are named;
//!   if none are, from everybody ([`Identity::unverified`] says so). The id of a client with an API key is never
//!   believed without the key;
//! - the **plan** is that of the known client; or else what a header says that a trusted proxy sent.
//!
//! Proxies that are trusted must set or remove the headers that are believed from them (`X-User-Id`, `X-Plan`): what they
//! pass through as the caller sent it, they vouch for.
//!
//! ```
//! use http::HeaderMap;
//! use tollgate_tower::identity::{Client, Clients, Identity, IdentityConfig, api_key_sha256};
//!
//! let identity = Identity::new(IdentityConfig {
//!     client: vec!["api_key:X-API-Key".parse()?, "header:X-User-Id".parse()?, "ip".parse()?],
//!     plan: vec!["header:X-Plan".parse()?],
//!     trusted_proxies: vec!["10.0.0.0/8".parse()?],
//!     ..IdentityConfig::default()
//! })?;
//! let clients = Clients::new([Client {
//!     id: "merchant_123".into(),
//!     plan: Some("enterprise".into()),
//!     api_key_sha256: Some(api_key_sha256(b"a long random key")),
//! }])?;
//!
//! // Somebody calls through our proxy, and has written an address of its own in front of what the proxy adds.
//! let proxy = "10.0.0.1".parse()?;
//! let mut headers = HeaderMap::new();
//! headers.insert("x-forwarded-for", "198.51.100.99, 203.0.113.7".parse()?);
//! let caller = identity.caller(proxy, &headers, &clients);
//! assert_eq!(caller.client(), Some("ip:203.0.113.7"));
//!
//! // With its key, it is the merchant, wherever it calls from.
//! headers.insert("x-api-key", "a long random key".parse()?);
//! let caller = identity.caller(proxy, &headers, &clients);
//! assert_eq!((caller.client(), caller.plan()), (Some("merchant_123"), Some("enterprise")));
//!
//! // Ready for the engine.
//! let request = caller.request().method("POST").route("/v1/charges");
//! # let _ = request;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod caller;
mod clients;
mod config;
mod explanation;
mod forwarded;
mod networks;
mod proxies;
mod source;
mod value;

use std::net::IpAddr;

use http::HeaderMap;

pub use address::{AddressError, parse_address};
pub use caller::{Caller, How};
pub use clients::{Client, Clients, ClientsError, api_key_sha256};
pub use config::{IdentityConfig, IdentityError};
pub use explanation::{Explanation, Outcome, Step};
pub use forwarded::{ForwardedError, forwarded_elements, forwarded_for};
pub use proxies::{ProxyHeader, ProxyHeaderError, Walk, WalkEnd};
pub use source::{ClientSource, PlanSource, SourceError};

use clients::Known;
use explanation::{Observer, Recorder};
use proxies::Proxies;
use source::{Kind, Scheme};
use value::{LONGEST_ID, LONGEST_KEY, LONGEST_PLAN, single, single_text, trimmed};

/// Tells who is calling.
#[derive(Clone, Debug)]
pub struct Identity {
    client: Vec<ClientSource>,
    plan: Vec<PlanSource>,
    proxies: Proxies,
    ipv6_prefix: u8,
}

impl Default for Identity {
    /// By the peer's address, whatever the headers say.
    fn default() -> Self {
        // Nothing in it can be wrong.
        Self::of(IdentityConfig::default())
    }
}

/// A client, where it was found.
struct Found<'c> {
    name: String,
    known: Option<&'c Known>,
    how: How,
}

impl Identity {
    /// # Errors
    /// When the IPv6 prefix is not 1 to 128, when a source stands there twice, or where it is never asked.
    pub fn new(config: IdentityConfig) -> Result<Self, IdentityError> {
        config.check()?;
        Ok(Self::of(config))
    }

    fn of(config: IdentityConfig) -> Self {
        Self {
            proxies: Proxies::new(&config.trusted_proxies, config.proxy_header),
            client: config.client,
            plan: config.plan,
            ipv6_prefix: config.ipv6_prefix,
        }
    }

    /// Who calls, from `peer`, the other end of the connection, with these headers.
    #[must_use]
    pub fn caller(&self, peer: IpAddr, headers: &HeaderMap, clients: &Clients) -> Caller {
        self.find(peer, headers, clients, &mut ()).0
    }

    /// The same, with the reasons.
    #[must_use]
    pub fn explain(&self, peer: IpAddr, headers: &HeaderMap, clients: &Clients) -> Explanation {
        let mut recorder = Recorder::new(&self.client, &self.plan);
        let (caller, walk) = self.find(peer, headers, clients, &mut recorder);
        recorder.explanation(caller, walk)
    }

    /// Whether this peer is a trusted proxy.
    #[must_use]
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.proxies.trusts(peer)
    }

    /// The sources by which anybody who calls can choose a name of its own, and so as many buckets as it likes.
    ///
    /// These are headers with ids while no proxy is trusted. They are right where something behind us, or in front of us in
    /// the same program, has checked or set them; anywhere else they undo the limits.
    pub fn unverified(&self) -> impl Iterator<Item = &ClientSource> {
        let anybody = self.proxies.is_empty();
        self.client
            .iter()
            .filter(move |source| anybody && source.is_claimed())
    }

    /// Whether the names that headers make can be told from the ids of these clients. To be asked when either changes.
    ///
    /// If it is not asked, nobody becomes a known client by such a name, but is found by the next source.
    ///
    /// # Errors
    /// When a client's id begins with the name of a header that names clients, and a colon.
    pub fn check(&self, clients: &Clients) -> Result<(), IdentityError> {
        for source in self.client.iter().filter(|source| source.is_claimed()) {
            let Some(header) = source.header_name() else {
                continue;
            };
            let made = |id: &&str| {
                id.strip_prefix(header.as_str())
                    .is_some_and(|rest| rest.starts_with(':'))
            };
            if let Some(id) = clients.ids().filter(made).min() {
                return Err(IdentityError::ReservedId {
                    id: id.to_owned(),
                    source: source.clone(),
                });
            }
        }
        Ok(())
    }

    fn find(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
        clients: &Clients,
        observer: &mut impl Observer,
    ) -> (Caller, Walk) {
        let walk = self.proxies.walk(peer, headers);
        let ip = address::counted(walk.address, self.ipv6_prefix);
        let mut caller = Caller {
            client: None,
            ip,
            plan: None,
            how: How::Nothing,
        };
        for (i, source) in self.client.iter().enumerate() {
            match self.client_at(source, &walk, ip, headers, clients) {
                Ok(Found { name, known, how }) => {
                    observer.client(i, Outcome::Chosen);
                    caller.plan = known.and_then(|known| known.plan.clone());
                    caller.client = Some(name);
                    caller.how = how;
                    break;
                }
                Err(outcome) => observer.client(i, outcome),
            }
        }
        if caller.plan.is_none() {
            for (i, source) in self.plan.iter().enumerate() {
                match plan_at(source, &walk, headers) {
                    Ok(plan) => {
                        observer.plan(i, Outcome::Chosen);
                        caller.plan = Some(plan.into());
                        break;
                    }
                    Err(outcome) => observer.plan(i, outcome),
                }
            }
        }
        (caller, walk)
    }

    fn client_at<'c>(
        &self,
        source: &ClientSource,
        walk: &Walk,
        ip: IpAddr,
        headers: &HeaderMap,
        clients: &'c Clients,
    ) -> Result<Found<'c>, Outcome> {
        match source.kind() {
            Kind::ApiKey { name, scheme } => {
                let key = without_scheme(single(headers, name, LONGEST_KEY)?, *scheme)?;
                let (id, known) = clients.by_key(key).ok_or(Outcome::UnknownApiKey)?;
                Ok(Found {
                    name: id.to_owned(),
                    known: Some(known),
                    how: How::ApiKey,
                })
            }
            Kind::Header(name) => {
                let id = single_text(headers, name, LONGEST_ID)?;
                if !self.proxies.is_empty() && !walk.peer_is_trusted() {
                    return Err(Outcome::PeerNotTrusted);
                }
                match clients.by_id(id) {
                    Some(known) if known.has_key => Err(Outcome::HasApiKey),
                    Some(known) => Ok(Found {
                        name: id.to_owned(),
                        known: Some(known),
                        how: How::KnownId,
                    }),
                    None => unknown_id(name.as_str(), id, clients),
                }
            }
            Kind::Ip => Ok(Found {
                name: address::client_name(ip, self.ipv6_prefix),
                known: None,
                how: How::Address,
            }),
        }
    }
}

/// A client of its own, whose name says which header named it: so ids of different headers, of known clients and
/// addresses never meet.
fn unknown_id<'c>(header: &str, id: &str, clients: &'c Clients) -> Result<Found<'c>, Outcome> {
    let name = [header, ":", id].concat();
    match clients.own_made_name(&name) {
        true => Err(Outcome::NameTaken),
        false => Ok(Found {
            name,
            known: None,
            how: How::UnknownId,
        }),
    }
}

/// The secret behind the scheme: `abc` of `Bearer abc`.
fn without_scheme(value: &[u8], scheme: Scheme) -> Result<&[u8], Outcome> {
    if scheme == Scheme::None {
        return Ok(value);
    }
    let space = value.iter().position(|byte| *byte == b' ');
    let (word, rest) = match space {
        Some(space) => value.split_at(space),
        None if scheme == Scheme::Bearer && !value.eq_ignore_ascii_case(b"bearer") => {
            return Err(Outcome::OtherScheme);
        }
        None if scheme == Scheme::Bearer => return Err(Outcome::Empty),
        None => return Ok(value),
    };
    if scheme == Scheme::Bearer && !word.eq_ignore_ascii_case(b"bearer") {
        return Err(Outcome::OtherScheme);
    }
    // Not empty, as the value has no spaces at its end.
    Ok(trimmed(rest))
}

fn plan_at<'h>(
    source: &PlanSource,
    walk: &Walk,
    headers: &'h HeaderMap,
) -> Result<&'h str, Outcome> {
    let plan = single_text(headers, source.header_name(), LONGEST_PLAN)?;
    // A plan is a right, so it takes somebody trusted to say it.
    match walk.peer_is_trusted() {
        true => Ok(plan),
        false => Err(Outcome::PeerNotTrusted),
    }
}
