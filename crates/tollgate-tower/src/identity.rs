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
//! An identity header that can be read in more than one way (several lines with different values, a value that is too long or
//! unreadable, `Bearer` without a space, an API key in another form than the configured one) is an error, and the request is to be
//! refused: a server behind might read a client where Tollgate reads none, so that a client could shed its limits. A header that is
//! absent, empty, of another scheme or with an unknown key leaves it to the next source.
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
//! let caller = identity.caller(proxy, &headers, &clients)?;
//! assert_eq!(caller.client(), Some("ip:203.0.113.7"));
//!
//! // With its key, it is the merchant, wherever it calls from.
//! headers.insert("x-api-key", "a long random key".parse()?);
//! let caller = identity.caller(proxy, &headers, &clients)?;
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
mod error;
mod explanation;
mod forwarded;
mod proxies;
mod source;

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName};

pub use address::{AddressError, parse_address};
pub use caller::{Caller, IdentifiedBy};
pub use clients::{Client, Clients, ClientsError, api_key_sha256};
pub use config::{IdentityConfig, IdentityError};
pub use error::HeaderError;
pub use explanation::{Explanation, Outcome, Step};
pub use forwarded::{ForwardedError, forwarded_elements, forwarded_for};
pub use proxies::{ChainEnd, ProxyChain, ProxyHeader, ProxyHeaderError};
pub use source::{ClientSource, PlanSource, SourceError};

use clients::Known;
use explanation::{Observer, Recorder};
use proxies::Proxies;
use source::{Kind, Scheme};
pub(crate) use source::{LONGEST_ID, LONGEST_PLAN, check_text};
use source::{LONGEST_KEY, single, single_text, trimmed};

#[cfg(debug_assertions)]
thread_local! {
    static RESOLVED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

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
    how: IdentifiedBy,
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

    /// Whether `peer` is a proxy whose word counts.
    #[must_use]
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.proxies.trust(peer)
    }

    /// Who calls, from `peer`, the other end of the connection, with these headers.
    ///
    /// # Errors
    /// When an identity header can be read in more than one way: the request is to be refused.
    pub fn caller(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
        clients: &Clients,
    ) -> Result<Caller, HeaderError> {
        let (caller, _, refused) = self.find(peer, headers, clients, &mut ());
        refused.map_or(Ok(caller), Err)
    }

    /// Who calls if only its address counts: what headers say of clients and plans is left out, and what trusted proxies say of the
    /// address is not.
    #[must_use]
    pub fn caller_by_address(&self, peer: IpAddr, headers: &HeaderMap) -> Caller {
        self.by_address(&self.proxies.chain(peer, headers))
    }

    /// The plan that a trusted proxy says in a header, if it does.
    pub(crate) fn claimed_plan(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
    ) -> Result<Option<String>, HeaderError> {
        let chain = self.proxies.chain(peer, headers);
        let mut found = None;
        for source in &self.plan {
            match plan_at(source, &chain, headers) {
                Ok(plan) => _ = found.get_or_insert_with(|| plan.into_owned()),
                Err(outcome) if outcome.is_refused() => {
                    let ip = address::counted(chain.address, self.ipv6_prefix);
                    return Err(HeaderError::new(source.header_name(), outcome, ip));
                }
                Err(_) => {}
            }
        }
        Ok(found)
    }

    /// Who calls, with the reasons.
    #[must_use]
    pub fn explain(&self, peer: IpAddr, headers: &HeaderMap, clients: &Clients) -> Explanation {
        let mut recorder = Recorder::new(&self.client, &self.plan);
        let (caller, chain, refused) = self.find(peer, headers, clients, &mut recorder);
        recorder.explanation(caller, chain, refused)
    }

    /// Where clients are found, in order.
    #[must_use]
    pub fn client_sources(&self) -> &[ClientSource] {
        &self.client
    }

    /// The headers that name clients and plans.
    pub fn header_names(&self) -> impl Iterator<Item = &HeaderName> {
        let clients = self.client.iter().filter_map(ClientSource::header_name);
        clients.chain(self.plan.iter().map(PlanSource::header_name))
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

    /// The name under which a client is counted, from what somebody who is believed calls it: an operator, or a gateway that asks.
    ///
    /// A known client's id is its name, and so is a name that a header makes (`x-user-id:42`) or that of an address (`ip:…`, in its
    /// one spelling). Anything else is an id as the first source that is a header would find it: `42` is `x-user-id:42`. If there is
    /// no such source, it is the name. Spaces and tabs around it are removed, as from a header.
    #[must_use]
    pub fn client_name<'t>(&self, text: &'t str, clients: &Clients) -> Cow<'t, str> {
        let text = text.trim_matches([' ', '\t']);
        if clients.contains(text) {
            return text.into();
        }
        if let Some(address) = text.strip_prefix(address::NAME_PREFIX) {
            return address::name_of(address, self.ipv6_prefix).map_or(text.into(), Cow::Owned);
        }
        let mut claimed = self.client.iter().filter(|source| source.is_claimed());
        let names = claimed.clone().filter_map(ClientSource::header_name);
        let is_made_by = |header: &HeaderName| {
            let value = text.strip_prefix(header.as_str());
            value.is_some_and(|value| value.starts_with(':'))
        };
        if names.into_iter().any(is_made_by) {
            return text.into();
        }
        match claimed.next().and_then(ClientSource::header_name) {
            Some(first) => made_name(first.as_str(), text).into(),
            None => text.into(),
        }
    }

    /// How many clients this thread has identified: for tests that it is done once for each request.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    #[must_use]
    pub fn resolved_on_this_thread() -> u64 {
        RESOLVED.get()
    }

    /// Every source that this peer may use is judged, also behind the one that yields the client: so a request is refused or not
    /// whatever the order of the sources.
    fn find(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
        clients: &Clients,
        observer: &mut impl Observer,
    ) -> (Caller, ProxyChain, Option<HeaderError>) {
        #[cfg(debug_assertions)]
        RESOLVED.set(RESOLVED.get() + 1);
        let chain = self.proxies.chain(peer, headers);
        let ip = address::counted(chain.address, self.ipv6_prefix);
        let mut caller = Caller {
            client: None,
            ip,
            plan: None,
            how: IdentifiedBy::Nothing,
        };
        let mut refused = None;
        for (i, source) in self.client.iter().enumerate() {
            let outcome = match caller.how {
                IdentifiedBy::Nothing => match self.client_at(source, &chain, ip, headers, clients)
                {
                    Ok(Found { name, known, how }) => {
                        caller.plan = known.and_then(|known| known.plan.clone());
                        caller.client = Some(name);
                        caller.how = how;
                        Outcome::Chosen
                    }
                    Err(outcome) => outcome,
                },
                _ => match self.judge(source, &chain, headers) {
                    Err(outcome) if outcome.is_refused() => outcome,
                    _ => Outcome::NotTried,
                },
            };
            observer.client(i, outcome);
            if outcome.is_refused()
                && let Some(name) = source.header_name()
            {
                refused.get_or_insert_with(|| HeaderError::new(name, outcome, ip));
            }
        }
        for (i, source) in self.plan.iter().enumerate() {
            let outcome = match (plan_at(source, &chain, headers), &caller.plan) {
                (Err(outcome), None) => outcome,
                (Err(outcome), Some(_)) if outcome.is_refused() => outcome,
                (_, Some(_)) => Outcome::NotTried,
                (Ok(plan), None) => {
                    caller.plan = Some(plan.into());
                    Outcome::Chosen
                }
            };
            observer.plan(i, outcome);
            if outcome.is_refused() {
                let header = source.header_name();
                refused.get_or_insert_with(|| HeaderError::new(header, outcome, ip));
            }
        }
        if refused.is_some() {
            caller = self.by_address(&chain);
        }
        (caller, chain, refused)
    }

    fn by_address(&self, chain: &ProxyChain) -> Caller {
        let ip = address::counted(chain.address, self.ipv6_prefix);
        let is_named = self.client.iter().any(ClientSource::is_ip);
        Caller {
            client: is_named.then(|| address::client_name(ip, self.ipv6_prefix)),
            ip,
            plan: None,
            how: match is_named {
                true => IdentifiedBy::Address,
                false => IdentifiedBy::Nothing,
            },
        }
    }

    fn client_at<'c>(
        &self,
        source: &ClientSource,
        chain: &ProxyChain,
        ip: IpAddr,
        headers: &HeaderMap,
        clients: &'c Clients,
    ) -> Result<Found<'c>, Outcome> {
        match source.kind() {
            Kind::ApiKey { name, scheme } => {
                let value = single(headers, name)?;
                let key = secret_in(&value, *scheme);
                let found = key.and_then(|key| clients.by_key(key).ok_or(Outcome::UnknownApiKey));
                match found {
                    Ok((id, known)) => Ok(Found {
                        name: id.to_owned(),
                        known: Some(known),
                        how: IdentifiedBy::ApiKey,
                    }),
                    Err(Outcome::UnknownApiKey | Outcome::OtherScheme)
                        if clients.key_among_words(key.unwrap_or(&value), key.ok()) =>
                    {
                        Err(Outcome::KeyInOtherForm)
                    }
                    Err(outcome) => Err(outcome),
                }
            }
            Kind::Header(name) => {
                let id = self.claimed_id(name, chain, headers)?;
                match clients.by_id(&id) {
                    Some(known) if known.has_key => Err(Outcome::HasApiKey),
                    Some(known) => Ok(Found {
                        name: id.into_owned(),
                        known: Some(known),
                        how: IdentifiedBy::KnownId,
                    }),
                    None => unknown_id(name.as_str(), &id, clients),
                }
            }
            Kind::Ip => Ok(Found {
                name: address::client_name(ip, self.ipv6_prefix),
                known: None,
                how: IdentifiedBy::Address,
            }),
        }
    }

    /// Whether a source could be read, without asking whom it names.
    fn judge(
        &self,
        source: &ClientSource,
        chain: &ProxyChain,
        headers: &HeaderMap,
    ) -> Result<(), Outcome> {
        match source.kind() {
            Kind::ApiKey { name, scheme } => {
                secret_in(&single(headers, name)?, *scheme).map(|_| ())
            }
            Kind::Header(name) => self.claimed_id(name, chain, headers).map(|_| ()),
            Kind::Ip => Ok(()),
        }
    }

    /// The id in a header, if the peer may say it. What others write there is not judged: they are known by their address,
    /// whatever it is.
    fn claimed_id<'h>(
        &self,
        name: &HeaderName,
        chain: &ProxyChain,
        headers: &'h HeaderMap,
    ) -> Result<Cow<'h, str>, Outcome> {
        match self.proxies.is_empty() || chain.peer_is_trusted() {
            true => single_text(headers, name, LONGEST_ID),
            false => Err(not_believed(headers, name)),
        }
    }
}

fn not_believed(headers: &HeaderMap, name: &HeaderName) -> Outcome {
    match headers.contains_key(name) {
        true => Outcome::PeerNotTrusted,
        false => Outcome::NotPresent,
    }
}

/// A client of its own, whose name says which header named it: so ids of different headers, of known clients and
/// addresses never meet.
fn unknown_id<'c>(header: &str, id: &str, clients: &'c Clients) -> Result<Found<'c>, Outcome> {
    let name = made_name(header, id);
    match clients.own_made_name(&name) {
        true => Err(Outcome::NameTaken),
        false => Ok(Found {
            name,
            known: None,
            how: IdentifiedBy::UnknownId,
        }),
    }
}

fn made_name(header: &str, id: &str) -> String {
    [header, ":", id].concat()
}

/// The secret behind the scheme: `abc` of `Bearer abc`.
fn secret_in(value: &[u8], scheme: Scheme) -> Result<&[u8], Outcome> {
    let secret = match scheme {
        Scheme::None => value,
        Scheme::Any => match value.iter().position(|byte| *byte == b' ') {
            // Not empty, as the value has no spaces at its end.
            Some(space) => trimmed(value.get(space..).unwrap_or_default()),
            None => value,
        },
        Scheme::Bearer => {
            let (word, rest) = value.split_at(value.len().min(BEARER.len()));
            if !word.eq_ignore_ascii_case(BEARER) {
                return Err(Outcome::OtherScheme);
            }
            match rest {
                [] => return Err(Outcome::Empty),
                [b' ', ..] => trimmed(rest),
                // No scheme begins like it. Some servers cut off so many bytes, whatever they are, or split at a tab.
                _ => return Err(Outcome::Malformed),
            }
        }
    };
    match secret.len() > LONGEST_KEY {
        true => Err(Outcome::TooLong),
        false => Ok(secret),
    }
}

const BEARER: &[u8] = b"bearer";

fn plan_at<'h>(
    source: &PlanSource,
    chain: &ProxyChain,
    headers: &'h HeaderMap,
) -> Result<Cow<'h, str>, Outcome> {
    // A plan is a right, so it takes somebody trusted to say it.
    match chain.peer_is_trusted() {
        true => single_text(headers, source.header_name(), LONGEST_PLAN),
        false => Err(not_believed(headers, source.header_name())),
    }
}
