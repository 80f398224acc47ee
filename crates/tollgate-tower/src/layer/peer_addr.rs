//! The other end of the connection, as whoever accepted it tells the layer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Put among a request's extensions, tells the layer where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

/// Those of whom nobody said where they came from are counted together.
pub(super) const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
