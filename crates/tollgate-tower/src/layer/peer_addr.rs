//! The other end of a connection, as the server tells the layer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::Extensions;

use crate::gate::PeerFrom;

/// Put among a request's extensions, tells the layer where the request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

/// The peer of a request. Requests without one are counted together.
pub(super) fn peer_of(extensions: &Extensions, peer: Option<&PeerFrom>) -> IpAddr {
    let told = peer.and_then(|peer| peer(extensions));
    let put = || extensions.get::<PeerAddr>().map(|peer| peer.0);
    let peer = told.or_else(put).map(|peer| peer.ip());
    peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
}
