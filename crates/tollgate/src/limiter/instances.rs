//! How many processes share the limits.

use std::time::Duration;

use parking_lot::Mutex;

/// How many processes share the limits. While the store fails, each goes on with its part: the limit × 0.8 ÷ this.
///
/// ```
/// use tollgate::{Instances, SharedConfig};
///
/// let config = SharedConfig { instances: Instances::counted(), ..SharedConfig::default() };
/// # let _ = config;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Instances {
    /// So many, whatever happens. What is said here must be no fewer than there are.
    Fixed(u32),
    /// As many as tell the store that they live. While the store fails, the last count stays.
    ///
    /// A smaller count is believed once it was heard three times: a store that comes back empty counts from one again, as each
    /// instance comes back to it. One that has never heard a count takes itself for one of ten.
    Counted {
        /// Never fewer than this, whatever is counted; more than ten also for one that has never heard a count.
        at_least: u32,
        /// How often each says that it lives, between 10 ms and an hour. Who is not heard of for three of these is not counted any more.
        every: Duration,
    },
}

impl Instances {
    /// Counted, each saying every five seconds that it lives.
    #[must_use]
    pub const fn counted() -> Self {
        Self::Counted {
            at_least: 1,
            every: Duration::from_secs(5),
        }
    }
}

/// One: counting takes a task in this process and a key in the store, which nobody gets who did not ask.
impl Default for Instances {
    fn default() -> Self {
        Self::Fixed(1)
    }
}

/// What one that has never heard a count takes for it: the others may be many, and the store is not there to say.
const UNHEARD: u32 = 10;

/// So many counts are remembered, and the largest counts: in so many beats, everybody is back at a store that came back empty,
/// even who missed one.
const REMEMBERED: usize = 3;

/// How many there are, as far as is known here.
#[derive(Debug)]
pub(super) struct Count {
    at_least: u32,
    /// The last ones heard, in a ring; 0 is none.
    heard: Mutex<([u32; REMEMBERED], usize)>,
}

impl Count {
    pub(super) fn new(instances: Instances) -> Self {
        let (at_least, known) = match instances {
            Instances::Fixed(known) => (known, known.max(1)),
            Instances::Counted { at_least, .. } => (at_least, 0),
        };
        Self {
            at_least,
            heard: Mutex::new(([known; REMEMBERED], 0)),
        }
    }

    /// The store counted so many. Nobody counts none: who asks is one.
    pub(super) fn hear(&self, count: u32) {
        if count > 0 {
            let (heard, next) = &mut *self.heard.lock();
            heard[*next % REMEMBERED] = count;
            *next = (*next + 1) % REMEMBERED;
        }
    }

    pub(super) fn now(&self) -> u32 {
        let (heard, _) = *self.heard.lock();
        let most = heard.into_iter().max().unwrap_or(0);
        self.at_least.max(if most == 0 { UNHEARD } else { most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(at_least: u32, heard: &[u32]) -> u32 {
        let every = Duration::from_secs(5);
        let count = Count::new(Instances::Counted { at_least, every });
        heard.iter().for_each(|heard| count.hear(*heard));
        count.now()
    }

    #[test]
    fn who_never_heard_a_count_is_careful() {
        assert_eq!(counted(1, &[]), 10);
        assert_eq!(counted(64, &[]), 64);
        assert_eq!(counted(1, &[1]), 1);
    }

    #[test]
    fn more_are_believed_at_once_and_fewer_when_heard_three_times() {
        assert_eq!(counted(1, &[3, 4]), 4);
        assert_eq!(counted(1, &[4, 3, 1]), 4);
        assert_eq!(counted(1, &[4, 3, 1, 2]), 3);
        assert_eq!(counted(1, &[4, 1, 1, 1]), 1);
    }

    #[test]
    fn what_cannot_be_is_not_believed_and_never_fewer_than_said() {
        assert_eq!(counted(1, &[3, 0, 0, 0, 0]), 3);
        assert_eq!(counted(5, &[3]), 5);
        assert_eq!(counted(1, &[u32::MAX]), u32::MAX);
        assert_eq!(Count::new(Instances::Fixed(0)).now(), 1);
        assert_eq!(Count::new(Instances::Fixed(8)).now(), 8);
    }
}
