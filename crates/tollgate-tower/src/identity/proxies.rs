//! The caller's address: the socket's peer, or whom the proxies that are trusted name. Knows nothing of clients.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

use super::address::Networks;
use super::address::parse_address;
use super::forwarded::{forwarded_elements, forwarded_for};

/// How many addresses of a header are looked at. Nobody has a chain of so many proxies.
pub(crate) const MAX_HOPS: usize = 64;

/// The header in which the trusted proxies say who called them.
///
/// One, never both: a proxy that writes one passes the other through as the caller sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProxyHeader {
    /// `X-Forwarded-For: 203.0.113.7, 10.0.0.1`
    #[default]
    XForwardedFor,
    /// `Forwarded: for=203.0.113.7, for=10.0.0.1` (RFC 7239)
    Forwarded,
}

impl ProxyHeader {
    /// The header's name.
    #[must_use]
    pub fn name(self) -> HeaderName {
        match self {
            Self::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
            Self::Forwarded => FORWARDED,
        }
    }
}

impl fmt::Display for ProxyHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::XForwardedFor => "X-Forwarded-For",
            Self::Forwarded => "Forwarded",
        })
    }
}

impl FromStr for ProxyHeader {
    type Err = ProxyHeaderError;

    fn from_str(text: &str) -> Result<Self, ProxyHeaderError> {
        let all = [Self::XForwardedFor, Self::Forwarded];
        let named = all
            .into_iter()
            .find(|header| header.name().as_str().eq_ignore_ascii_case(text));
        named.ok_or_else(|| ProxyHeaderError(text.chars().take(64).collect()))
    }
}

/// A header that is not one in which proxies name callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyHeaderError(String);

impl fmt::Display for ProxyHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} cannot be the header of proxies; use X-Forwarded-For or Forwarded",
            self.0
        )
    }
}

impl std::error::Error for ProxyHeaderError {}

/// Whom to believe about addresses, and where they say it.
#[derive(Clone, Debug)]
pub(crate) struct Proxies {
    trusted: Networks,
    header: ProxyHeader,
    /// Of `header`, made once.
    name: HeaderName,
}

impl Proxies {
    pub(crate) fn new(trusted: &[IpNet], header: ProxyHeader) -> Self {
        Self {
            trusted: Networks::new(trusted),
            header,
            name: header.name(),
        }
    }

    /// Whether nobody is trusted.
    pub(crate) fn is_empty(&self) -> bool {
        self.trusted.is_empty()
    }

    /// Whether this peer is one of them.
    pub(crate) fn trust(&self, peer: IpAddr) -> bool {
        self.trusted.contain(peer.to_canonical())
    }

    /// From the peer back to the first address that no trusted proxy has.
    pub(crate) fn chain(&self, peer: IpAddr, headers: &HeaderMap) -> ProxyChain {
        let peer = peer.to_canonical();
        if !self.trust(peer) {
            return ProxyChain::ended(peer, peer, 0, ChainEnd::PeerNotTrusted);
        }
        let lines = headers.get_all(&self.name).iter().rev();
        match self.header {
            ProxyHeader::XForwardedFor => {
                let parts = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
                self.follow(peer, parts.map(address_in))
            }
            ProxyHeader::Forwarded => {
                let parts = lines
                    .map(HeaderValue::as_bytes)
                    .flat_map(forwarded_elements);
                self.follow(peer, parts.map(address_in_element))
            }
        }
    }

    /// `None` is a part that cannot be read.
    fn follow(&self, peer: IpAddr, parts: impl Iterator<Item = Option<IpAddr>>) -> ProxyChain {
        let mut last_trusted = peer;
        let mut hops = 0;
        for part in parts {
            if hops == MAX_HOPS {
                return ProxyChain::ended(peer, last_trusted, hops, ChainEnd::TooLong);
            }
            // Whoever is behind it shares the bucket of the proxy that passed it on: never more freedom than they had.
            let Some(address) = part else {
                return ProxyChain::ended(peer, last_trusted, hops, ChainEnd::Unreadable);
            };
            hops += 1;
            if !self.trusted.contain(address) {
                return ProxyChain::ended(peer, address, hops, ChainEnd::Caller);
            }
            last_trusted = address;
        }
        let end = if hops == 0 {
            ChainEnd::NothingSaid
        } else {
            ChainEnd::AllTrusted
        };
        ProxyChain::ended(peer, last_trusted, hops, end)
    }
}

fn address_in(part: &[u8]) -> Option<IpAddr> {
    parse_address(std::str::from_utf8(part).ok()?).ok()
}

fn address_in_element(element: &[u8]) -> Option<IpAddr> {
    let node = forwarded_for(std::str::from_utf8(element).ok()?).ok()?;
    parse_address(&node).ok()
}

/// How the caller's address was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyChain {
    /// The other end of the connection.
    pub peer: IpAddr,
    /// The caller, as it was written: not yet in the form in which it is counted.
    pub address: IpAddr,
    /// How many addresses of the header were read.
    pub hops: usize,
    /// Why the walk ended there.
    pub end: ChainEnd,
}

impl ProxyChain {
    fn ended(peer: IpAddr, address: IpAddr, hops: usize, end: ChainEnd) -> Self {
        Self {
            peer,
            address,
            hops,
            end,
        }
    }

    /// Whether the peer is a trusted proxy.
    #[must_use]
    pub fn peer_is_trusted(&self) -> bool {
        self.end != ChainEnd::PeerNotTrusted
    }
}

impl fmt::Display for ProxyChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            peer,
            address,
            hops,
            end,
        } = self;
        match end {
            ChainEnd::PeerNotTrusted => write!(f, "{address}: {end}"),
            _ => write!(
                f,
                "{address}: the peer {peer} is a trusted proxy; {end} (hops read: {hops})"
            ),
        }
    }
}

/// Why the walk from the peer to the caller ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChainEnd {
    /// The peer is no trusted proxy, so it is the caller, and what it says of others counts for nothing.
    PeerNotTrusted,
    /// The peer is trusted, and the header is not there: the peer itself calls.
    NothingSaid,
    /// The first address from the right that is not trusted.
    Caller,
    /// All addresses are trusted; the leftmost is the caller.
    AllTrusted,
    /// A part that cannot be read: the last trusted address before it counts as the caller.
    Unreadable,
    /// More addresses than anybody has proxies: the last that was looked at counts as the caller.
    TooLong,
}

impl fmt::Display for ChainEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::PeerNotTrusted => "the peer, which is not a trusted proxy",
            Self::NothingSaid => "it names nobody else",
            Self::Caller => "this is the first address from the right that is not trusted",
            Self::AllTrusted => "all addresses are trusted, this is the leftmost",
            Self::Unreadable => "what stands left of this address cannot be read",
            Self::TooLong => "more addresses than are looked at, this is the last of them",
        })
    }
}
