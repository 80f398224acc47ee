//! Bounds on the requests that wait for their turn in queues.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bounds how many requests wait for their turn in queues: in all, and of one address. A clone counts the same requests.
///
/// A waiting request occupies a connection. Without a bound, one client with a long queue could occupy all connections of a proxy
/// that asks on behalf of many.
#[derive(Clone, Debug)]
pub struct WaitLimits {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    max_waiting: usize,
    per_address: usize,
    waiting: Mutex<Count>,
}

#[derive(Debug, Default)]
struct Count {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl WaitLimits {
    /// At most `max_waiting` requests in all, and `per_address` of one address; 0 for any number of the latter.
    #[must_use]
    pub fn new(max_waiting: usize, per_address: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                max_waiting,
                per_address,
                waiting: Mutex::default(),
            }),
        }
    }

    /// Counts a request that begins to wait; `None` if too many do.
    pub(crate) fn enter(&self, address: Option<IpAddr>) -> Option<Waiting> {
        let Shared {
            max_waiting,
            per_address,
            ..
        } = *self.shared;
        let mut count = self.shared.count();
        if count.all >= max_waiting {
            return None;
        }
        if let Some(address) = address {
            let of_address = count.by_address.entry(address).or_default();
            // One that is not there yet cannot be at the bound, so no empty entry is left behind.
            if per_address > 0 && *of_address >= per_address {
                return None;
            }
            *of_address += 1;
        }
        count.all += 1;
        Some(Waiting {
            shared: Arc::clone(&self.shared),
            address,
        })
    }
}

impl Shared {
    fn count(&self) -> MutexGuard<'_, Count> {
        // Nobody panics while counting.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that waits, until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    shared: Arc<Shared>,
    address: Option<IpAddr>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut count = self.shared.count();
        count.all -= 1;
        let Some(address) = self.address else { return };
        if let Some(of_address) = count.by_address.get_mut(&address) {
            *of_address -= 1;
            if *of_address == 0 {
                count.by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_requests_are_bounded_in_all_and_by_address() {
        let limits = WaitLimits::new(3, 2);
        let (one, other) = (Some([192, 0, 2, 1].into()), Some([192, 0, 2, 2].into()));
        let first = limits.enter(one).unwrap();
        let second = limits.clone().enter(one).unwrap();
        assert!(limits.enter(one).is_none(), "two of this address wait");
        let third = limits.enter(other).unwrap();
        assert!(limits.enter(None).is_none(), "three wait in all");
        drop(first);
        assert!(limits.enter(one).is_some());
        drop((second, third));
        let count = limits.shared.count();
        assert_eq!((count.all, count.by_address.len()), (0, 0));
    }
}
