//! What there is to configure about who is calling, and what cannot be meant.

use std::fmt;

use ipnet::IpNet;

use super::proxies::ProxyHeader;
use super::source::{ClientSource, PlanSource};

/// How to find out who is calling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityConfig {
    /// Where clients are found; the first that yields one wins. By default: `ip`.
    pub client: Vec<ClientSource>,
    /// Where plans are found, if the client is not known or its plan is not. By default: nowhere.
    pub plan: Vec<PlanSource>,
    /// Whose headers are believed. By default: nobody's.
    pub trusted_proxies: Vec<IpNet>,
    /// The header in which they name callers. By default: `X-Forwarded-For`.
    pub proxy_header: ProxyHeader,
    /// How many bits of an IPv6 address count, 1 to 128. By default: 64, which is what a subscriber mostly has.
    pub ipv6_prefix: u8,
}

impl Default for IdentityConfig {
    fn default() -> Self {
        Self {
            client: vec![ClientSource::ip()],
            plan: Vec::new(),
            trusted_proxies: Vec::new(),
            proxy_header: ProxyHeader::default(),
            ipv6_prefix: 64,
        }
    }
}

impl IdentityConfig {
    pub(crate) fn check(&self) -> Result<(), IdentityError> {
        if !(1..=128).contains(&self.ipv6_prefix) {
            return Err(IdentityError::Ipv6Prefix(self.ipv6_prefix));
        }
        for (i, source) in self.client.iter().enumerate() {
            let before = self.client.get(..i).unwrap_or_default();
            if before.contains(source) {
                return Err(IdentityError::ClientSourceTwice(source.clone()));
            }
            if before.iter().any(ClientSource::is_ip) {
                return Err(IdentityError::BehindIp(source.clone()));
            }
        }
        for (i, source) in self.plan.iter().enumerate() {
            if self.plan.get(..i).unwrap_or_default().contains(source) {
                return Err(IdentityError::PlanSourceTwice(source.clone()));
            }
        }
        Ok(())
    }
}

/// What cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdentityError {
    /// Not 1 to 128 bits.
    Ipv6Prefix(u8),
    /// A source of clients that stands there already.
    ClientSourceTwice(ClientSource),
    /// A source of plans that stands there already.
    PlanSourceTwice(PlanSource),
    /// A source behind `ip`, which every caller has.
    BehindIp(ClientSource),
    /// A known client's id that a header's value could make.
    ReservedId {
        /// The client's id.
        id: String,
        /// The source whose names look like it.
        source: ClientSource,
    },
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipv6Prefix(bits) => write!(
                f,
                "an IPv6 prefix of {bits} bits cannot be; use 1 to 128, mostly 64"
            ),
            Self::ClientSourceTwice(source) => write!(
                f,
                "{source} is there twice as a source of clients; name it once"
            ),
            Self::PlanSourceTwice(source) => write!(
                f,
                "{source} is there twice as a source of plans; name it once"
            ),
            Self::BehindIp(source) => write!(
                f,
                "{source} stands behind ip and is never asked, as every caller has an address; put ip last"
            ),
            Self::ReservedId { id, source } => write!(
                f,
                "the client id {id:?} is reserved, as names found by {source} begin like it; use another id"
            ),
        }
    }
}

impl std::error::Error for IdentityError {}
