//! The maximum number of connections, in all and of one address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::ServerConfig;
use super::metrics::ServerMetrics;

/// When fewer than one in this many permits are left, idle connections are closed.
const SPARE: usize = 32;

/// An owner of an IPv6 address has all addresses that begin with these bits.
const OWNED_BITS: u32 = 64;

/// The connections of a listener.
#[derive(Debug)]
pub(super) struct ConnectionLimits {
    max: usize,
    per_address: usize,
    open: AtomicUsize,
    by_address: Mutex<HashMap<IpAddr, usize>>,
    metrics: ServerMetrics,
}

/// Why there is no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    All,
    Address,
}

/// Counts a connection until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    limits: Arc<ConnectionLimits>,
    /// The address that it counts toward, if any.
    owner: Option<IpAddr>,
}

impl ConnectionLimits {
    /// As many as a listener is configured for.
    pub(super) fn of(config: &ServerConfig) -> Arc<Self> {
        Self::new(
            config.max_connections,
            config.per_address,
            config.metrics.clone(),
        )
    }

    /// 0 per address means no limit.
    fn new(max: usize, per_address: usize, metrics: ServerMetrics) -> Arc<Self> {
        Arc::new(Self {
            max,
            per_address,
            open: AtomicUsize::new(0),
            by_address: Mutex::new(HashMap::new()),
            metrics,
        })
    }

    /// Counts a new connection. `is_exempt` addresses may have any number.
    pub(super) fn take(
        self: &Arc<Self>,
        ip: IpAddr,
        is_exempt: bool,
    ) -> Result<ConnectionPermit, Full> {
        if self.is_full() {
            return Err(Full::All);
        }
        let owner = (self.per_address > 0 && !is_exempt).then(|| owner(ip));
        if let Some(owner) = owner {
            let mut by_address = self.by_address.lock();
            let count = by_address.entry(owner).or_default();
            if *count >= self.per_address {
                return Err(Full::Address);
            }
            *count += 1;
        }
        self.open.fetch_add(1, Relaxed);
        self.metrics.open.inc();
        Ok(ConnectionPermit {
            limits: Arc::clone(self),
            owner,
        })
    }

    /// Whether the maximum is reached.
    pub(super) fn is_full(&self) -> bool {
        self.open() >= self.max
    }

    pub(super) fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// How many connections to close, so that there is room for new ones.
    pub(super) fn surplus(&self) -> usize {
        let spare = (self.max / SPARE).max(1);
        let comfortable = self.max.saturating_sub(spare);
        match self.open().checked_sub(comfortable) {
            // As many again, so that not every new connection has to close one.
            Some(over) if over > 0 => over + spare,
            _ => 0,
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limits.open.fetch_sub(1, Relaxed);
        self.limits.metrics.open.dec();
        let Some(owner) = self.owner else { return };
        let mut by_address = self.limits.by_address.lock();
        if let Some(count) = by_address.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&owner);
            }
        }
    }
}

fn owner(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => {
            let network = u128::MAX << (Ipv6Addr::BITS - OWNED_BITS);
            Ipv6Addr::from_bits(v6.to_bits() & network).into()
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(max: usize, per_address: usize) -> Arc<ConnectionLimits> {
        ConnectionLimits::new(max, per_address, ServerMetrics::default())
    }

    #[test]
    fn one_address_cannot_take_all_connections() {
        let limits = limits(100, 2);
        let (one, other) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let first = limits.take(one, false).unwrap();
        let second = limits.take(one, false).unwrap();
        assert_eq!(limits.take(one, false).unwrap_err(), Full::Address);
        assert!(limits.take(one, true).is_ok(), "exempt, so not counted");
        assert!(limits.take(other, false).is_ok());
        drop(first);
        assert!(limits.take(one, false).is_ok());
        drop(second);
        assert_eq!(limits.open(), 0);
        assert!(limits.by_address.lock().is_empty());
    }

    #[test]
    fn addresses_of_one_owner_count_together() {
        let limits = limits(100, 1);
        let _held = limits.take("2001:db8::1".parse().unwrap(), false).unwrap();
        let same = limits.take("2001:db8::ffff:2".parse().unwrap(), false);
        assert_eq!(same.unwrap_err(), Full::Address);
        assert!(
            limits
                .take("2001:db8:0:1::1".parse().unwrap(), false)
                .is_ok()
        );
        let _v4 = limits.take([192, 0, 2, 1].into(), false).unwrap();
        let mapped = limits.take("::ffff:192.0.2.1".parse().unwrap(), false);
        assert_eq!(mapped.unwrap_err(), Full::Address);
    }

    #[test]
    fn some_are_asked_to_go_before_all_places_is_full() {
        let limits = limits(64, 0);
        let ip = [192, 0, 2, 1].into();
        let mut held: Vec<ConnectionPermit> =
            (0..62).map(|_| limits.take(ip, false).unwrap()).collect();
        assert_eq!(limits.surplus(), 0);
        held.push(limits.take(ip, false).unwrap());
        assert_eq!(limits.surplus(), 3);
        held.push(limits.take(ip, false).unwrap());
        assert_eq!(limits.take(ip, false).unwrap_err(), Full::All);
    }
}
