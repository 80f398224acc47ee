//! How many processes share the limits.

use std::time::Duration;

use parking_lot::Mutex;

/// How many processes share the limits. Without the store, each enforces its part: the limit × 0.8 ÷ this.
///
/// ```
/// use tollgate::{Instances, SharedConfig};
///
/// // Counted by default; there are always two at least.
/// let config = SharedConfig::default().instances(Instances::counted().at_least(2));
/// // A fixed number is for fleets whose size never changes.
/// let config = SharedConfig::default().instances(Instances::Fixed(8));
/// # let _ = config;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a configuration does nothing until a limiter has it"]
#[non_exhaustive]
pub enum Instances {
    /// Always this many. It must be no fewer than there are.
    Fixed(u32),
    /// As many as are registered in the store. While the store fails, the last count stays.
    ///
    /// A smaller count is believed once it was read three times: a store that comes back empty counts from one again, as each
    /// instance comes back to it. A process that has not read three counts yet assumes at least ten.
    #[non_exhaustive]
    Counted {
        /// Never fewer than this, whatever is counted.
        at_least: u32,
        /// How often each process registers, between 10 ms and an hour; five times as often until it has read three counts. A process
        /// that has not registered for three of these is no longer counted.
        every: Duration,
    },
}

impl Instances {
    /// Counted, with each process registering every five seconds.
    pub const fn counted() -> Self {
        Self::Counted {
            at_least: 1,
            every: Duration::from_secs(5),
        }
    }

    /// Assumes this many at least, whatever is counted. A fixed number stays as it is.
    pub const fn at_least(self, least: u32) -> Self {
        match self {
            Self::Counted { every, .. } => Self::Counted {
                at_least: least,
                every,
            },
            fixed @ Self::Fixed(_) => fixed,
        }
    }

    /// Registers each process this often, if they are counted.
    pub const fn every(self, every: Duration) -> Self {
        match self {
            Self::Counted { at_least, .. } => Self::Counted { at_least, every },
            fixed @ Self::Fixed(_) => fixed,
        }
    }
}

impl Default for Instances {
    fn default() -> Self {
        Self::counted()
    }
}

/// What a process assumes that has not counted yet: there may be many others, and the store is not there to ask. The first counts
/// prove little, because all processes of a fleet may be starting.
const ASSUMED: u32 = 10;

/// The largest of this many counts is believed: within this many registrations every process is back at a store that came back
/// empty, even one that missed a registration.
const REMEMBERED: usize = 3;

/// How many there are, as far as this process knows.
#[derive(Debug)]
pub(super) struct Count {
    at_least: u32,
    counts: Mutex<Counts>,
}

/// The last counts that were read, in a ring.
#[derive(Debug)]
struct Counts {
    ring: [u32; REMEMBERED],
    next: usize,
    /// How many were read, up to as many as are remembered.
    read: usize,
}

impl Count {
    pub(super) fn new(instances: Instances) -> Self {
        let (at_least, known) = match instances {
            Instances::Fixed(known) => (known, known.max(1)),
            Instances::Counted { at_least, .. } => (at_least, 0),
        };
        let counts = Counts {
            ring: [known; REMEMBERED],
            next: 0,
            read: if known > 0 { REMEMBERED } else { 0 },
        };
        Self {
            at_least,
            counts: Mutex::new(counts),
        }
    }

    /// The store counted this many. It cannot be zero, because this process is one of them.
    pub(super) fn read(&self, count: u32) {
        if count > 0 {
            let counts = &mut *self.counts.lock();
            counts.ring[counts.next] = count;
            counts.next = (counts.next + 1) % REMEMBERED;
            counts.read = REMEMBERED.min(counts.read + 1);
        }
    }

    pub(super) fn now(&self) -> u32 {
        let counts = self.counts.lock();
        let largest = counts.ring.into_iter().max().unwrap_or(0);
        let assumed = if counts.read < REMEMBERED { ASSUMED } else { 1 };
        self.at_least.max(largest).max(assumed)
    }

    /// Whether too few counts were read to rely on them.
    pub(super) fn is_assumed(&self) -> bool {
        self.counts.lock().read < REMEMBERED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(at_least: u32, read: &[u32]) -> u32 {
        let every = Duration::from_secs(5);
        let count = Count::new(Instances::Counted { at_least, every });
        read.iter().for_each(|read| count.read(*read));
        count.now()
    }

    #[test]
    fn a_process_that_has_not_counted_yet_assumes_many() {
        assert_eq!(counted(1, &[]), 10);
        assert_eq!(counted(64, &[]), 64);
        assert_eq!(counted(1, &[1]), 10);
        assert_eq!(counted(1, &[1, 12]), 12);
        assert_eq!(counted(1, &[1, 1, 1]), 1);
    }

    #[test]
    fn more_are_believed_at_once_and_fewer_when_read_three_times() {
        assert_eq!(counted(1, &[3, 3, 4]), 4);
        assert_eq!(counted(1, &[4, 3, 1]), 4);
        assert_eq!(counted(1, &[4, 3, 1, 2]), 3);
        assert_eq!(counted(1, &[4, 1, 1, 1]), 1);
    }

    #[test]
    fn zero_is_not_believed_and_the_configured_minimum_holds() {
        assert_eq!(counted(1, &[3, 3, 3, 0, 0, 0, 0]), 3);
        assert_eq!(counted(5, &[3, 3, 3]), 5);
        assert_eq!(counted(1, &[u32::MAX]), u32::MAX);
        assert_eq!(Count::new(Instances::Fixed(0)).now(), 1);
        assert_eq!(Count::new(Instances::Fixed(8)).now(), 8);
    }
}
