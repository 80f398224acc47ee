//! What becomes of calls to the server: what they cost, and who is notified of their outcome.

use std::fmt;
use std::sync::Weak;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::deadline::Stalls;
use super::error::RedisError;
use super::meter::Meter;

/// Notified once per call, however many checks it carried.
pub(crate) trait CallObserver: Send + Sync {
    /// A reply arrived in time.
    fn answered(&self);

    /// A reply arrived after all its checks had been decided without it.
    fn answered_late(&self);

    /// A call failed, or was not answered in time.
    fn failed(&self, failure: &CallFailure);
}

/// A call that failed.
#[derive(Clone, Debug)]
pub(crate) struct CallFailure {
    /// When its first check began to wait for the server.
    pub(crate) since: std::time::Instant,
    /// The slot it was for, in a cluster.
    pub(crate) slot: Option<u16>,
    pub(crate) error: RedisError,
    /// Whether nothing was heard from the server, rather than an error that proves a failure.
    pub(crate) timed_out: bool,
}

/// Shared by all calls of a store.
#[derive(Default)]
pub(super) struct Monitor {
    pub(super) meter: Meter,
    pub(super) stalls: Stalls,
    observers: Mutex<Vec<Weak<dyn CallObserver>>>,
}

impl Monitor {
    pub(super) fn add(&self, observer: Weak<dyn CallObserver>) {
        let mut observers = self.observers.lock();
        observers.retain(|known| known.strong_count() > 0);
        observers.push(observer);
    }

    /// Notifies the observers of a call that has ended in time, one way or the other.
    pub(super) fn ended<T>(
        &self,
        result: &Result<T, RedisError>,
        since: Instant,
        slot: Option<u16>,
    ) {
        match result {
            Ok(_) => self.notify(|observer| observer.answered()),
            // A slot is being moved: the server is well, and so are all other slots.
            Err(error) if error.is_of_several_keys() => {}
            Err(error) => self.failed(error.clone(), false, since, slot),
        }
    }

    /// Notifies the observers of a call whose checks have all given up.
    pub(super) fn overdue(&self, error: RedisError, since: Instant, slot: Option<u16>) {
        self.failed(error, true, since, slot);
    }

    pub(super) fn answered_late(&self) {
        self.notify(|observer| observer.answered_late());
    }

    fn failed(&self, error: RedisError, timed_out: bool, since: Instant, slot: Option<u16>) {
        let failure = CallFailure {
            since: since.into_std(),
            slot,
            timed_out: timed_out || matches!(error, RedisError::TooLate | RedisError::NotSent),
            error,
        };
        self.notify(|observer| observer.failed(&failure));
    }

    fn notify(&self, event: impl Fn(&dyn CallObserver)) {
        let observers: smallvec::SmallVec<[_; 2]> = self
            .observers
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        observers.iter().for_each(|observer| event(&**observer));
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}
