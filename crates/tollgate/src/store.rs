//! Where usage is kept: the contract, and the stores that keep it.
//!
//! A store takes from *all* buckets of a request in one atomic step, or from none. It knows limits and buckets,
//! and nothing of rules, requests or what happens when it fails.

mod memory;
#[cfg(feature = "redis")]
mod redis;

use std::future::Future;

use smallvec::SmallVec;

pub use crate::algorithm::Fit;
pub use memory::{MemoryConfig, MemoryStats, MemoryStore};
#[cfg(feature = "redis")]
pub(crate) use redis::{Address, CallFailure, CallObserver, LateReplies, Record};
#[cfg(feature = "redis")]
pub use redis::{
    RedisClock, RedisConfig, RedisError, RedisIdentity, RedisStore, RedisTls, ServerWarning,
    Spread, StoreCalls,
};

use crate::bucket::Bucket;
use crate::limit::Limit;

/// What a request asks of one bucket.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// Where to take from.
    pub bucket: Bucket<'a>,
    /// What it holds.
    pub limit: &'a Limit,
    /// How much to take. 0 takes nothing and always fits.
    pub cost: u64,
    /// A shadow is charged by itself, when the request passes and it fits; it never decides. All charges on one
    /// bucket are shadows, or none is, and they have the same limit.
    pub shadow: bool,
}

/// What one bucket said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the cost fits there.
    pub fit: Fit,
    /// Whole tokens left, after the charge if there was one.
    pub remaining: u64,
    /// When the bucket is as good as new, in microseconds since the Unix epoch.
    pub full_at_us: u64,
    /// The time the store looked at this bucket.
    pub at_us: u64,
    /// Whether the cost was taken.
    pub charged: bool,
    /// Whether the store was out of room and the bucket stands for many keys.
    pub shared: bool,
}

impl Outcome {
    /// Before anything was said.
    pub(crate) const NONE: Self = Self {
        fit: Fit::Now,
        remaining: 0,
        full_at_us: 0,
        at_us: 0,
        charged: false,
        shared: false,
    };
}

/// So that a store can write an outcome to where it is wanted.
impl AsMut<Outcome> for Outcome {
    fn as_mut(&mut self) -> &mut Outcome {
        self
    }
}

/// What is given back to one bucket.
#[derive(Clone, Copy, Debug)]
pub struct Refund<'a> {
    /// Where it was taken from.
    pub bucket: Bucket<'a>,
    /// The limit under which it was taken.
    pub limit: &'a Limit,
    /// How much was taken.
    pub cost: u64,
    /// When: [`Outcome::at_us`].
    pub charged_at_us: u64,
}

/// What a store answers to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Whether every bucket that decides had room. If not, nothing was charged anywhere.
    pub admitted: bool,
    /// The store's time of the decision, in microseconds since the Unix epoch: the latest of all its buckets.
    pub at_us: u64,
    /// One outcome per charge, in their order.
    pub outcomes: SmallVec<[Outcome; 4]>,
}

/// The contract. Every store passes the same suite (`tests/it/contract.rs`).
pub trait Store: Send + Sync {
    /// What goes wrong; [`Infallible`](std::convert::Infallible) where nothing can.
    type Error: std::fmt::Debug;

    /// Takes from all buckets, or from none; 255 at most.
    fn take(
        &self,
        charges: &[Charge<'_>],
    ) -> impl Future<Output = Result<Taken, Self::Error>> + Send;

    /// Says what [`take`](Self::take) would, and takes nothing.
    fn peek(
        &self,
        charges: &[Charge<'_>],
    ) -> impl Future<Output = Result<Taken, Self::Error>> + Send;

    /// Gives back what a [`take`](Self::take) took, as far as it still counts. Never gives back what others used, as
    /// long as each charge is given back at most once and under the limit it was taken under.
    fn refund(
        &self,
        refunds: &[Refund<'_>],
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Forgets what these buckets used.
    fn reset(&self, buckets: &[Bucket<'_>])
    -> impl Future<Output = Result<(), Self::Error>> + Send;
}
