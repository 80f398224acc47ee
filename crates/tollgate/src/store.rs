//! Where usage is kept: in memory, or in Redis.
//!
//! A store charges *all* buckets of a request in one atomic step, or none. A [`Limiter`](crate::Limiter) is made over one of them:
//!
//! - [`MemoryStore`] keeps usage in this process;
//! - [`RedisStore`] (feature `redis`) keeps it in Redis or Valkey, shared by any number of processes.
//!
//! There are no others, and none can be added from outside: [`Store`] is sealed.

mod memory;
#[cfg(feature = "redis")]
mod redis;

use std::future::Future;

use smallvec::SmallVec;

pub use memory::{MemoryConfig, MemoryStats, MemoryStore};
#[cfg(feature = "redis")]
pub(crate) use redis::{Address, CallFailure, CallObserver, LateReplies, ProbeReply, Record};
#[cfg(feature = "redis")]
pub use redis::{
    RedisClock, RedisConfig, RedisError, RedisIdentity, RedisStore, RedisTls, ServerWarning,
    Spread, StoreCalls,
};
pub(crate) use sealed::AnyStore;

pub(crate) use crate::algorithm::Fit;
use crate::bucket::Bucket;
use crate::limit::Limit;

/// A store that a [`Limiter`](crate::Limiter) can be made over: [`MemoryStore`] or [`RedisStore`].
///
/// It is sealed. Limits are exact only if a store decides over all buckets of a request in one atomic step, by the same arithmetic to
/// the microsecond, and both stores pass one suite of tests that proves it.
///
/// ```
/// use tollgate::Limiter;
/// use tollgate::store::{MemoryStore, Store};
///
/// fn limiter(store: impl Store) -> Limiter {
///     Limiter::new(store)
/// }
/// let limiter = limiter(MemoryStore::new());
/// # let _ = limiter;
/// ```
pub trait Store: sealed::Sealed {}

impl Store for MemoryStore {}
#[cfg(feature = "redis")]
impl Store for RedisStore {}

mod sealed {
    use super::MemoryStore;
    #[cfg(feature = "redis")]
    use super::RedisStore;

    pub trait Sealed {
        fn into_any(self) -> AnyStore;
    }

    #[derive(Debug)]
    pub enum AnyStore {
        Memory(Box<MemoryStore>),
        #[cfg(feature = "redis")]
        Redis(RedisStore),
    }

    impl Sealed for MemoryStore {
        fn into_any(self) -> AnyStore {
            AnyStore::Memory(Box::new(self))
        }
    }

    #[cfg(feature = "redis")]
    impl Sealed for RedisStore {
        fn into_any(self) -> AnyStore {
            AnyStore::Redis(self)
        }
    }
}

/// The stores' own operations, for Tollgate's tests of them: not part of the public API, and may change with every release.
#[doc(hidden)]
pub mod contract {
    pub use super::{Charge, Outcome, Refund, StoreOperations, Taken};
    pub use crate::algorithm::Fit;
}

/// What a request asks of one bucket.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// Which bucket.
    pub bucket: Bucket<'a>,
    /// Its limit.
    pub limit: &'a Limit,
    /// How much to charge. 0 charges nothing and always fits.
    pub cost: u64,
    /// A shadow is charged by itself, if the request passes and it fits; it never decides. All charges on one bucket are shadows,
    /// or none is, and they have the same limit.
    pub shadow: bool,
}

/// What became of one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the cost fits.
    pub fit: Fit,
    /// Whole tokens left, after the charge if there was one.
    pub remaining: u64,
    /// When the bucket is full again, in microseconds since the Unix epoch.
    pub full_at_us: u64,
    /// When the store looked at this bucket.
    pub at_us: u64,
    /// Whether the cost was charged.
    pub charged: bool,
    /// Whether the store was full and the bucket stands for many keys.
    pub shared: bool,
}

impl Outcome {
    /// Before a store has looked.
    pub(crate) const NONE: Self = Self {
        fit: Fit::Now,
        remaining: 0,
        full_at_us: 0,
        at_us: 0,
        charged: false,
        shared: false,
    };
}

/// Lets a store write an outcome to where it is wanted.
impl AsMut<Outcome> for Outcome {
    fn as_mut(&mut self) -> &mut Outcome {
        self
    }
}

/// What is given back to one bucket.
#[derive(Clone, Copy, Debug)]
pub struct Refund<'a> {
    /// Which bucket.
    pub bucket: Bucket<'a>,
    /// The limit under which it was charged.
    pub limit: &'a Limit,
    /// How much was charged.
    pub cost: u64,
    /// When: [`Outcome::at_us`].
    pub charged_at_us: u64,
}

/// A store's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Whether every bucket that decides had room. If not, nothing was charged anywhere.
    pub admitted: bool,
    /// The store's time of the decision, in microseconds since the Unix epoch: the latest of all its buckets.
    pub at_us: u64,
    /// One outcome per charge, in their order.
    pub outcomes: SmallVec<[Outcome; 4]>,
}

/// What a store does. Both pass the same suite (`tests/it/contract.rs`).
pub trait StoreOperations: Send + Sync {
    /// Why it fails; [`Infallible`](std::convert::Infallible) if it cannot.
    type Error: std::fmt::Debug;

    /// Charges all buckets, or none; 255 at most.
    fn take(
        &self,
        charges: &[Charge<'_>],
    ) -> impl Future<Output = Result<Taken, Self::Error>> + Send;

    /// Returns what [`take`](Self::take) would, and charges nothing.
    fn peek(
        &self,
        charges: &[Charge<'_>],
    ) -> impl Future<Output = Result<Taken, Self::Error>> + Send;

    /// Gives back what a [`take`](Self::take) charged, as far as it still counts. Never gives back what others used, as long as each
    /// charge is given back at most once and under the limit it was charged under.
    fn refund(
        &self,
        refunds: &[Refund<'_>],
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Forgets what was used of these buckets.
    fn reset(&self, buckets: &[Bucket<'_>])
    -> impl Future<Output = Result<(), Self::Error>> + Send;
}
