//! How many connections there may be, in all and from one address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::ListenConfig;
use super::metrics::ListenMetrics;

/// When fewer than a thirty-second of the places are left, those that use theirs least are asked to go.
const SPARE: usize = 32;

/// So many bits of an IPv6 address say whose it is: who has one has all that begin alike.
const OWNED_BITS: u32 = 64;

/// The places of a door.
#[derive(Debug)]
pub(crate) struct Places {
    most: usize,
    most_per_address: usize,
    taken: AtomicUsize,
    by_address: Mutex<HashMap<IpAddr, usize>>,
    metrics: ListenMetrics,
}

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    All,
    Address,
}

/// A place, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    /// Whose it is, if that is counted.
    owner: Option<IpAddr>,
}

impl Places {
    /// As many as a listener is configured for.
    pub(crate) fn of(config: &ListenConfig) -> Arc<Self> {
        Self::new(
            config.most_connections,
            config.most_per_address,
            config.metrics.clone(),
        )
    }

    /// 0 for an address: as many as there are.
    fn new(most: usize, most_per_address: usize, metrics: ListenMetrics) -> Arc<Self> {
        Arc::new(Self {
            most,
            most_per_address,
            taken: AtomicUsize::new(0),
            by_address: Mutex::new(HashMap::new()),
            metrics,
        })
    }

    /// A place for somebody who connects; `is_known` for those who may take as many as they like.
    pub(crate) fn take(self: &Arc<Self>, ip: IpAddr, is_known: bool) -> Result<Place, Full> {
        if self.are_taken() {
            return Err(Full::All);
        }
        let owner = (self.most_per_address > 0 && !is_known).then(|| owner(ip));
        if let Some(owner) = owner {
            let mut by_address = self.by_address.lock();
            let count = by_address.entry(owner).or_default();
            if *count >= self.most_per_address {
                return Err(Full::Address);
            }
            *count += 1;
        }
        self.taken.fetch_add(1, Relaxed);
        self.metrics.open.inc();
        Ok(Place {
            places: Arc::clone(self),
            owner,
        })
    }

    /// Whether all of them are.
    pub(crate) fn are_taken(&self) -> bool {
        self.taken() >= self.most
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Relaxed)
    }

    /// How many should go, so that there is room for those who come.
    pub(crate) fn too_many(&self) -> usize {
        let spare = (self.most / SPARE).max(1);
        let comfortable = self.most.saturating_sub(spare);
        match self.taken().checked_sub(comfortable) {
            // As many again, so that it does not have to be asked for each who comes.
            Some(over) if over > 0 => over + spare,
            _ => 0,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken.fetch_sub(1, Relaxed);
        self.places.metrics.open.dec();
        let Some(owner) = self.owner else { return };
        let mut by_address = self.places.by_address.lock();
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

    fn places(most: usize, per_address: usize) -> Arc<Places> {
        Places::new(most, per_address, ListenMetrics::default())
    }

    #[test]
    fn one_address_cannot_take_all_places_and_a_place_is_free_again_when_it_is_left() {
        let places = places(100, 2);
        let (one, other) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let first = places.take(one, false).unwrap();
        let second = places.take(one, false).unwrap();
        assert_eq!(places.take(one, false).unwrap_err(), Full::Address);
        assert!(places.take(one, true).is_ok(), "known, so not counted");
        assert!(places.take(other, false).is_ok());
        drop(first);
        assert!(places.take(one, false).is_ok());
        drop(second);
        assert_eq!(places.taken(), 0);
        assert!(places.by_address.lock().is_empty());
    }

    #[test]
    fn addresses_of_one_owner_are_one() {
        let places = places(100, 1);
        let _held = places.take("2001:db8::1".parse().unwrap(), false).unwrap();
        let same = places.take("2001:db8::ffff:2".parse().unwrap(), false);
        assert_eq!(same.unwrap_err(), Full::Address);
        assert!(
            places
                .take("2001:db8:0:1::1".parse().unwrap(), false)
                .is_ok()
        );
        let _v4 = places.take([192, 0, 2, 1].into(), false).unwrap();
        let mapped = places.take("::ffff:192.0.2.1".parse().unwrap(), false);
        assert_eq!(mapped.unwrap_err(), Full::Address);
    }

    #[test]
    fn some_are_asked_to_go_before_all_places_are_taken() {
        let places = places(64, 0);
        let ip = [192, 0, 2, 1].into();
        let mut held: Vec<Place> = (0..62).map(|_| places.take(ip, false).unwrap()).collect();
        assert_eq!(places.too_many(), 0);
        held.push(places.take(ip, false).unwrap());
        assert_eq!(places.too_many(), 3);
        held.push(places.take(ip, false).unwrap());
        assert_eq!(places.take(ip, false).unwrap_err(), Full::All);
    }
}
