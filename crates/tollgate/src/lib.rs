//! # Tollgate: a rate limiter that is exact
//!
//! Five algorithms, several tiers per request that are charged all or none, and a decision that says why.
//!
//! ```
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = tollgate::Limiter::in_memory();
//! let limit = "10/s burst 50".parse()?;
//! let decision = limiter.check("client-7", &limit, 1).await;
//! assert!(decision.allowed());
//! # Ok(())
//! # }
//! # std::pin::pin!(example()).poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
//! ```
//!
//! Read on at [`Limit`] (what is allowed), [`Rule`] (for whom), [`Limiter`] (the way in) and [`Decision`] (the way
//! out). The modules build on each other in this order: `limit` → `algorithm` → [`store`] → `rule` → `limiter`.

mod algorithm;
mod bucket;
mod clock;
mod decision;
mod dimension;
mod host;
mod limit;
mod limiter;
mod name;
mod nearest;
mod path;
mod rate;
mod request;
mod rule;
pub mod store;
mod usage;

/// Words for people, for Tollgate's own programs; not part of what is promised.
#[doc(hidden)]
pub mod words {
    pub use crate::nearest::nearest;
    pub use crate::rate::grouped;
}

pub use bucket::Bucket;
pub use clock::{Clock, ManualClock};
pub use decision::{Decision, Denied, Source, Tier, Verdict};
pub use dimension::{Dimension, Part};
pub use host::{HostError, parse_host};
pub use limit::{Algorithm, Limit};
#[cfg(feature = "redis")]
pub use limiter::{BreakerConfig, Instances, SharedConfig, SharedStats};
pub use limiter::{Joint, Limiter, LocalLimiter, StoreError};
pub use name::{Name, NameError};
pub use path::{
    EncodedSlash, ForwardedPath, Path, PathClass, PathClasses, PathError, PathRules, Pattern,
    PatternError,
};
pub use rate::{LimitError, Rate};
pub use request::Request;
pub use rule::{
    Cost, Explanation, Match, MatchError, Met, Mismatch, Mode, OnFailure, Rule, RuleSet,
    RuleSetError, Standing,
};
pub use usage::{Usage, WhichBucket};
