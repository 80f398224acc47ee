//! An address as proxies write it, and the one form in which it is counted. Also sets of networks, which are
//! looked up for every request. Knows nothing of headers or of trust.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

/// Reads an address as proxies write it: with or without a port, brackets, a zone, spaces around it.
///
/// An IPv4 address that is written as IPv6 (`::ffff:203.0.113.7`) is the IPv4 address. What some libraries would read
/// and others not, or read as something else, is refused: leading zeros, hexadecimal or short forms.
///
/// ```
/// use tollgate_tower::identity::parse_address;
///
/// assert_eq!(parse_address("203.0.113.7:5678")?.to_string(), "203.0.113.7");
/// assert_eq!(parse_address("[fe80::1%eth0]:443")?.to_string(), "fe80::1");
/// assert!(parse_address("010.0.0.1").is_err());
/// # Ok::<(), tollgate_tower::identity::AddressError>(())
/// ```
///
/// # Errors
/// When it is anything else.
pub fn parse_address(text: &str) -> Result<IpAddr, AddressError> {
    let text = text.trim_matches([' ', '\t']);
    if let Some(bracketed) = text.strip_prefix('[') {
        let (inside, port) = bracketed.split_once(']').ok_or(AddressError)?;
        if !port.is_empty() {
            check_port(port.strip_prefix(':').ok_or(AddressError)?)?;
        }
        return parse_v6(inside);
    }
    match text.split_once(':') {
        None => parse_v4(text),
        // A single colon parts an IPv4 address from its port; an IPv6 address has two at the least.
        Some((address, port)) if !port.contains(':') => {
            check_port(port)?;
            parse_v4(address)
        }
        Some(_) => parse_v6(text),
    }
}

fn parse_v4(text: &str) -> Result<IpAddr, AddressError> {
    // The standard library refuses leading zeros, other bases and short forms, as we want it to.
    let address: Ipv4Addr = text.parse().map_err(|_| AddressError)?;
    Ok(IpAddr::V4(address))
}

fn parse_v6(text: &str) -> Result<IpAddr, AddressError> {
    let address = match text.split_once('%') {
        None => text,
        Some((address, zone)) => {
            let allowed =
                |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b'%');
            if zone.is_empty() || !zone.bytes().all(allowed) {
                return Err(AddressError);
            }
            address
        }
    };
    let address: Ipv6Addr = address.parse().map_err(|_| AddressError)?;
    Ok(address.to_canonical())
}

/// A port, or the name that RFC 7239 lets a proxy give instead of it (`_abc`).
fn check_port(port: &str) -> Result<(), AddressError> {
    let right = match port.strip_prefix('_') {
        Some(name) => {
            let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
            !name.is_empty() && name.bytes().all(allowed)
        }
        None => {
            port.len() <= 5
                && port.bytes().all(|b| b.is_ascii_digit())
                && port.parse::<u16>().is_ok()
        }
    };
    if right { Ok(()) } else { Err(AddressError) }
}

/// The form in which an address is counted: IPv4 whole, IPv6 by the first `ipv6_prefix` bits.
///
/// One subscriber has a whole IPv6 network, mostly a /64; counted one by one, its addresses would be as many buckets.
/// An address behind NAT64 (`64:ff9b::/96`) is the IPv4 address inside it, as otherwise all of the IPv4 internet would
/// be one /64.
pub(crate) fn counted(address: IpAddr, ipv6_prefix: u8) -> IpAddr {
    let IpAddr::V6(v6) = address.to_canonical() else {
        return address.to_canonical();
    };
    if let [0x64, 0xff9b, 0, 0, 0, 0, ..] = v6.segments() {
        let [.., a, b, c, d] = v6.octets();
        return IpAddr::V4(Ipv4Addr::new(a, b, c, d));
    }
    let dropped = 128_u32.saturating_sub(u32::from(ipv6_prefix));
    let mask = u128::MAX.checked_shl(dropped).unwrap_or(0);
    IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
}

/// The name of a client that is known by its address alone: `ip:203.0.113.7`, `ip:2001:db8::/64`.
pub(crate) fn client_name(counted: IpAddr, ipv6_prefix: u8) -> String {
    match counted {
        IpAddr::V4(v4) => v4_name(v4),
        IpAddr::V6(v6) if ipv6_prefix < 128 => format!("{NAME_PREFIX}{v6}/{ipv6_prefix}"),
        IpAddr::V6(v6) => format!("{NAME_PREFIX}{v6}"),
    }
}

/// The name of the client with this address, or with the network that is counted as one: `203.0.113.7`, `2001:db8::1`,
/// `2001:db8::/64`.
pub(crate) fn name_of(address: &str, ipv6_prefix: u8) -> Option<String> {
    let address = match address.split_once('/') {
        Some((network, bits)) if bits.parse() == Ok(ipv6_prefix) => network,
        Some(_) => return None,
        None => address,
    };
    let address = parse_address(address).ok()?;
    Some(client_name(counted(address, ipv6_prefix), ipv6_prefix))
}

/// What begins the names of clients that are known by their address.
pub(crate) const NAME_PREFIX: &str = "ip:";

/// Written by hand, as this is done for most requests and formatting takes several times as long.
fn v4_name(address: Ipv4Addr) -> String {
    let mut name = String::with_capacity("ip:255.255.255.255".len());
    name.push_str(NAME_PREFIX);
    for (i, octet) in address.octets().into_iter().enumerate() {
        if i > 0 {
            name.push('.');
        }
        if octet >= 100 {
            name.push(digit(octet / 100));
        }
        if octet >= 10 {
            name.push(digit(octet / 10 % 10));
        }
        name.push(digit(octet % 10));
    }
    name
}

fn digit(digit: u8) -> char {
    char::from(b'0' + digit)
}

/// What was written is not an address. It is not repeated here, as anybody may have written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressError;

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an address; write it like 203.0.113.7, 203.0.113.7:8080, 2001:db8::1 or [2001:db8::1]:8080")
    }
}

impl std::error::Error for AddressError {}

/// Networks as ranges that do not touch, in order, so that a list of thousands costs a dozen comparisons.
#[derive(Clone, Debug, Default)]
pub(crate) struct Networks {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl Networks {
    pub(crate) fn new(networks: &[IpNet]) -> Self {
        let mut all = Self::default();
        for network in networks {
            match unmapped(*network) {
                IpNet::V4(v4) => all
                    .v4
                    .push((v4.network().to_bits(), v4.broadcast().to_bits())),
                IpNet::V6(v6) => all
                    .v6
                    .push((v6.network().to_bits(), v6.broadcast().to_bits())),
            }
        }
        Self {
            v4: joined(all.v4),
            v6: joined(all.v6),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Asked with the IPv4 form of an IPv4 address. An IPv4 address inside a NAT64 address counts for nothing here: who
    /// can make up the outer one would choose the inner one.
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => within(&self.v4, v4.to_bits()),
            IpAddr::V6(v6) => within(&self.v6, v6.to_bits()),
        }
    }
}

/// `::ffff:10.0.0.0/104` is `10.0.0.0/8`, as the addresses it is compared with are IPv4 then.
fn unmapped(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else {
        return network;
    };
    let inside = |v4: Ipv4Addr| Ipv4Net::new(v4, v6.prefix_len().checked_sub(96)?).ok();
    match v6.network().to_ipv4_mapped().and_then(inside) {
        Some(v4) => IpNet::V4(v4),
        None => network,
    }
}

/// Sorted, and those that overlap made one.
fn joined<T: Ord + Copy>(mut ranges: Vec<(T, T)>) -> Vec<(T, T)> {
    ranges.sort_unstable();
    let mut joined: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match joined.last_mut() {
            Some(before) if first <= before.1 => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    joined
}

fn within<T: Ord + Copy>(ranges: &[(T, T)], address: T) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= address);
    match after.checked_sub(1).and_then(|i| ranges.get(i)) {
        Some((_, last)) => address <= *last,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_is_named_as_it_is_shown() {
        for octet in 0..=255 {
            for address in [[octet, 0, 9, 10], [99, 100, octet, 255]].map(Ipv4Addr::from) {
                assert_eq!(
                    client_name(IpAddr::V4(address), 64),
                    format!("ip:{address}")
                );
            }
        }
    }

    fn networks(texts: &[&str]) -> Networks {
        let nets: Vec<IpNet> = texts.iter().map(|text| text.parse().unwrap()).collect();
        Networks::new(&nets)
    }

    #[test]
    fn an_address_is_inside_exactly_the_networks_that_were_named() {
        let some = networks(&[
            "10.0.0.0/8",
            "10.1.0.0/16",
            "203.0.113.7/32",
            "0.0.0.0/32",
            "255.255.255.255/32",
            "2001:db8::/32",
            "::1/128",
        ]);
        let inside = [
            "10.0.0.0",
            "10.255.255.255",
            "10.1.2.3",
            "203.0.113.7",
            "0.0.0.0",
            "255.255.255.255",
            "2001:db8::",
            "2001:db8:ffff::1",
            "::1",
        ];
        for address in inside {
            assert!(some.contain(address.parse().unwrap()), "{address}");
        }
        let outside = [
            "9.255.255.255",
            "11.0.0.0",
            "203.0.113.6",
            "203.0.113.8",
            "0.0.0.1",
            "255.255.255.254",
            "2001:db7::",
            "2001:db9::",
            "::",
            "::2",
        ];
        for address in outside {
            assert!(!some.contain(address.parse().unwrap()), "{address}");
        }
        assert!(!networks(&[]).contain("10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn a_network_that_overlaps_another_does_not_hide_it() {
        let some = networks(&["10.0.0.0/8", "10.0.0.0/24", "10.0.0.128/25"]);
        assert!(some.contain("10.200.0.1".parse().unwrap()));
        assert_eq!(some.v4.len(), 1);
    }

    #[test]
    fn an_ipv4_network_written_as_ipv6_is_the_ipv4_network() {
        let some = networks(&["::ffff:10.0.0.0/104"]);
        assert!(some.contain("10.9.9.9".parse().unwrap()));
        assert!(!some.contain("11.0.0.0".parse().unwrap()));
    }

    #[test]
    fn all_of_ipv6_is_not_all_of_ipv4() {
        let some = networks(&["::/0"]);
        assert!(some.contain("2001:db8::1".parse().unwrap()));
        assert!(!some.contain("10.0.0.1".parse().unwrap()));
    }
}
