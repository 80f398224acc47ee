//! A set of networks that is asked per request: whether an address is inside. Knows nothing of what that means.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

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
