//! Usage in Redis or Valkey, shared by any number of processes.
//!
//! One string per subject (a client, an address, everybody) holds the records of all its buckets. A script reads what a
//! request needs, decides, and writes, in one atomic step: `take.lua`, with its contract at its head. Requests that
//! arrive while others are on their way gather and go together ([`flight`]).

mod connection;
mod error;
mod flight;
mod key;
mod script;

use std::sync::Arc;
use std::time::Duration;

pub use error::RedisError;

use super::{Charge, Refund, Store, Taken};
use crate::bucket::Bucket;
use crate::clock::Clock;
use connection::Connection;
use flight::{Flights, Parcel};
use key::Namespace;
use script::Scripts;

/// How a [`RedisStore`] is set up.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    /// What every key begins with; `tollgate` by default. Letters, digits, `-`, `_`, `.` and `:`.
    pub prefix: String,
    /// Whose time counts.
    pub clock: RedisClock,
    /// How long a check may take, 10 ms by default. One that is still unsent then is never sent; one that was sent may
    /// still be charged.
    pub deadline: Duration,
    /// How long connecting may take, 1 s by default.
    pub connect_timeout: Duration,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            prefix: "tollgate".to_owned(),
            clock: RedisClock::Server,
            deadline: Duration::from_millis(10),
            connect_timeout: Duration::from_secs(1),
        }
    }
}

/// Whose time counts. Whatever it is, time never goes back on a bucket.
#[derive(Clone, Debug, Default)]
pub enum RedisClock {
    /// The server's.
    #[default]
    Server,
    /// This process's, as long as it is within `tolerance` of the server's; else the server's.
    Caller {
        /// Where this process's time comes from.
        clock: Clock,
        /// How far it may be off.
        tolerance: Duration,
    },
    /// This one, whatever the server's says: for tests and simulations.
    Simulated(Clock),
}

/// Keeps usage in Redis or Valkey.
///
/// Needs a tokio runtime. Clones share one connection.
#[derive(Clone, Debug)]
pub struct RedisStore {
    namespace: Arc<Namespace>,
    flights: Arc<Flights>,
}

impl RedisStore {
    /// A store at this address: `redis://[user:password@]host[:port][/db]`, `unix:///path?db=n`, or
    /// `redis+sentinel://[user:password@]host[:port],host[:port]/service[/db]` for the primary that sentinels name, whichever it
    /// is. Connects at the first request.
    ///
    /// # Errors
    /// When the address or the prefix cannot be right.
    pub fn open(url: &str, config: RedisConfig) -> Result<Self, RedisError> {
        Self::with_scripts(url, config, Scripts::new())
    }

    /// A store with a bug: what the scripts say in one place, replaced. For tests that want to see it found.
    #[doc(hidden)]
    pub fn open_with_bug(
        url: &str,
        config: RedisConfig,
        (from, to): (&str, &str),
    ) -> Result<Self, RedisError> {
        if !Scripts::new().contain(from) {
            return Err(RedisError::Config(format!("no script says {from:?}")));
        }
        Self::with_scripts(url, config, Scripts::with_bug(from, to))
    }

    fn with_scripts(url: &str, config: RedisConfig, scripts: Scripts) -> Result<Self, RedisError> {
        let connection = Connection::new(url, config.connect_timeout)?;
        let (clock, deadline) = (config.clock, config.deadline);
        Ok(Self {
            namespace: Arc::new(Namespace::new(&config.prefix)?),
            flights: Arc::new(Flights::new(connection, scripts, clock, deadline)),
        })
    }

    async fn visit(&self, charges: &[Charge<'_>], charging: bool) -> Result<Taken, RedisError> {
        let parcel = Parcel::new(charges, &self.namespace)?;
        Flights::send(&self.flights, parcel, charging).await
    }
}

impl Store for RedisStore {
    type Error = RedisError;

    async fn take(&self, charges: &[Charge<'_>]) -> Result<Taken, RedisError> {
        self.visit(charges, true).await
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Taken, RedisError> {
        self.visit(charges, false).await
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<(), RedisError> {
        for refund in refunds {
            self.flights.refund(refund, &self.namespace).await?;
        }
        Ok(())
    }

    async fn reset(&self, buckets: &[Bucket<'_>]) -> Result<(), RedisError> {
        for bucket in buckets {
            self.flights.reset(bucket, &self.namespace).await?;
        }
        Ok(())
    }
}
