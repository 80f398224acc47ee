//! How a store is set up.

use std::time::Duration;

use super::tls::RedisTls;
use crate::clock::Clock;

/// How a [`RedisStore`](super::RedisStore) is set up.
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::{RedisConfig, RedisStore};
///
/// let config = RedisConfig::default().prefix("payments").deadline(Duration::from_millis(20));
/// let store = RedisStore::open("redis://127.0.0.1:6379", config)?;
/// # let _ = store;
/// # Ok::<(), tollgate::store::RedisError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a configuration does nothing until a store has it"]
#[non_exhaustive]
pub struct RedisConfig {
    /// What every key begins with; `tollgate` by default. Letters, digits, `-`, `_`, `.` and `:`.
    pub prefix: String,
    /// Whose time counts.
    pub clock: RedisClock,
    /// How long a check waits for Redis, 50 ms by default, an hour at most. A [request](crate::Request::deadline) may have a shorter
    /// one. A check that is still unsent then is never sent. One that was sent may still be charged; if it was denied meanwhile, it
    /// gets the charge back when the reply arrives.
    pub deadline: Duration,
    /// How long connecting may take, 1 s by default, an hour at most. Connecting continues when checks stop waiting for it.
    pub connect_timeout: Duration,
    /// Whose certificates to believe, and which to show, at an address that asks for TLS (feature `tls`).
    pub tls: RedisTls,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            prefix: "tollgate".to_owned(),
            clock: RedisClock::Server,
            // A stall of 10 to 40 ms is common on a busy machine (bench/README.md, `make steady`).
            deadline: Duration::from_millis(50),
            connect_timeout: Duration::from_secs(1),
            tls: RedisTls::default(),
        }
    }
}

impl RedisConfig {
    /// Sets the [`prefix`](Self::prefix).
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the [`clock`](Self::clock).
    pub fn clock(mut self, clock: RedisClock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the [`deadline`](Self::deadline).
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets [`connect_timeout`](Self::connect_timeout).
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// Sets [`tls`](Self::tls).
    pub fn tls(mut self, tls: RedisTls) -> Self {
        self.tls = tls;
        self
    }
}

/// Whose time counts. Whatever it is, time never goes back on a bucket.
///
/// ```
/// use tollgate::Clock;
/// use tollgate::store::{RedisClock, RedisConfig};
///
/// // Saves Redis a call of TIME per script, where all clocks are synchronised.
/// let config = RedisConfig::default().clock(RedisClock::caller(Clock::system()));
/// # let _ = config;
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum RedisClock {
    /// The server's.
    #[default]
    Server,
    /// This process's, as long as it is not ahead of the server's, and behind it by no more than `tolerance`; else the
    /// server's. What is charged by a clock that is behind drains as much earlier: over any time, as much may pass as the limit
    /// allows in that time and `tolerance` together, and no more.
    Caller {
        /// Where this process's time comes from.
        clock: Clock,
        /// How far it may be behind; [`RedisClock::TOLERANCE`] where [`RedisClock::caller`] chose it.
        tolerance: Duration,
    },
    /// This one, whatever the server's says: for tests and simulations.
    Simulated(Clock),
}

impl RedisClock {
    /// How far a caller's clock may be behind the server's, unless told otherwise: 100 ms.
    pub const TOLERANCE: Duration = Duration::from_millis(100);

    /// A caller's clock, usually [`Clock::system`], that may be behind the server's by [`RedisClock::TOLERANCE`].
    #[must_use]
    pub const fn caller(clock: Clock) -> Self {
        Self::Caller {
            clock,
            tolerance: Self::TOLERANCE,
        }
    }
}
