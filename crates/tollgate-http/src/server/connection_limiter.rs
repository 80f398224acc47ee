//! The maximum number of connections, in all and of one address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::{ServerConfig, ServerMetrics};

/// Idle connections are closed when fewer than one in this many permits are left.
const SPARE: usize = 32;

/// An owner of an IPv6 address has all addresses that begin with these bits.
const OWNED_BITS: u32 = 64;

#[derive(Debug)]
pub(super) struct ConnectionLimiter {
    max: usize,
    per_address: usize,
    open: AtomicUsize,
    by_address: Mutex<HashMap<IpAddr, usize>>,
    metrics: ServerMetrics,
}

/// Counts a connection until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    /// The address that it counts toward, if any.
    owner: Option<IpAddr>,
}

impl ConnectionLimiter {
    pub(super) fn new(config: &ServerConfig) -> Arc<Self> {
        Arc::new(Self {
            max: config.max_connections,
            per_address: config.per_address,
            open: AtomicUsize::new(0),
            by_address: Mutex::default(),
            metrics: config.metrics.clone(),
        })
    }

    /// Counts a new connection, or returns why there is no room for it. `is_exempt` addresses may have any number.
    pub(super) fn take(
        self: &Arc<Self>,
        ip: IpAddr,
        is_exempt: bool,
    ) -> Result<ConnectionPermit, &'static str> {
        if self.is_full() {
            return Err("full");
        }
        let owner = (self.per_address > 0 && !is_exempt).then(|| owner(ip));
        if let Some(owner) = owner {
            let mut by_address = self.by_address.lock();
            let count = by_address.entry(owner).or_default();
            if *count >= self.per_address {
                return Err("address");
            }
            *count += 1;
        }
        self.open.fetch_add(1, Relaxed);
        self.metrics.open.inc();
        Ok(ConnectionPermit {
            limiter: Arc::clone(self),
            owner,
        })
    }

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
        match self.open().saturating_sub(comfortable) {
            0 => 0,
            // More than necessary, so that not every new connection has to close one.
            over => over + spare,
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limiter.open.fetch_sub(1, Relaxed);
        self.limiter.metrics.open.dec();
        let Some(owner) = self.owner else { return };
        let mut by_address = self.limiter.by_address.lock();
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

    fn limiter(max: usize, per_address: usize) -> Arc<ConnectionLimiter> {
        ConnectionLimiter::new(&ServerConfig {
            max_connections: max,
            per_address,
            ..ServerConfig::default()
        })
    }

    #[test]
    fn one_address_cannot_take_all_connections() {
        let limiter = limiter(100, 2);
        let (one, other) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let first = limiter.take(one, false).unwrap();
        let second = limiter.take(one, false).unwrap();
        assert_eq!(limiter.take(one, false).unwrap_err(), "address");
        assert!(limiter.take(one, true).is_ok(), "exempt, so not counted");
        assert!(limiter.take(other, false).is_ok());
        drop(first);
        assert!(limiter.take(one, false).is_ok());
        drop(second);
        assert_eq!(limiter.open(), 0);
        assert!(limiter.by_address.lock().is_empty());
    }

    #[test]
    fn addresses_of_one_owner_count_together() {
        let limiter = limiter(100, 1);
        let _held = limiter.take("2001:db8::1".parse().unwrap(), false).unwrap();
        let same = limiter.take("2001:db8::ffff:2".parse().unwrap(), false);
        assert_eq!(same.unwrap_err(), "address");
        assert!(
            limiter
                .take("2001:db8:0:1::1".parse().unwrap(), false)
                .is_ok()
        );
        let _v4 = limiter.take([192, 0, 2, 1].into(), false).unwrap();
        let mapped = limiter.take("::ffff:192.0.2.1".parse().unwrap(), false);
        assert_eq!(mapped.unwrap_err(), "address");
    }

    #[test]
    fn idle_connections_are_closed_before_the_listener_is_full() {
        let limiter = limiter(64, 0);
        let ip = [192, 0, 2, 1].into();
        let mut held: Vec<ConnectionPermit> =
            (0..62).map(|_| limiter.take(ip, false).unwrap()).collect();
        assert_eq!(limiter.surplus(), 0);
        held.push(limiter.take(ip, false).unwrap());
        assert_eq!(limiter.surplus(), 3);
        held.push(limiter.take(ip, false).unwrap());
        assert_eq!(limiter.take(ip, false).unwrap_err(), "full");
    }
}
