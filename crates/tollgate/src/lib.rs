//! # Tollgate: an exact rate limiter
//!
//! Five algorithms, several limits per request that are charged all or none, and a decision that says why. Limits are kept in this
//! process, or shared by many over Redis.
//!
//! ## A key and a limit
//!
//! The shortest way: one bucket per key. [`LocalLimiter`] needs no runtime; [`Limiter`] is the same behind `async`.
//!
//! ```
//! use tollgate::LocalLimiter;
//!
//! let limiter = LocalLimiter::new();
//! let limit = "10/s burst 50".parse()?;
//! let decision = limiter.check("client-7", &limit, 1);
//! match decision.into_result() {
//!     Ok(decision) => println!("go; {:?} left", decision.remaining()),
//!     Err(denied) => println!("429; come back in {:?}", denied.retry_after()),
//! }
//! # Ok::<(), tollgate::LimitError>(())
//! ```
//!
//! A [`Limit`] is written the way people say it: `10/s burst 50`, `600 per 1m sliding_counter`, `3000/s queue 5000`. A [`Decision`] has
//! what is left, when the bucket is full again, and a wait that is true to the microsecond. A denied request charges nothing.
//!
//! ## Rules
//!
//! Rules say which limits apply to which requests, and what they count by. All that apply must have room, and are charged together
//! or not at all.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tollgate::{Dimension, Limiter, Match, Mode, Request, Rule};
//!
//! let limiter = Limiter::in_memory().with_rules([
//!     // Each client, and more for those of a plan:
//!     Rule::new("client", "10/s burst 50".parse()?)?.per([Dimension::Client]),
//!     Rule::new("client", "100/s burst 500".parse()?)?.per([Dimension::Client]).plan("pro"),
//!     // Each client on each endpoint that charges money:
//!     Rule::new("charges", "600 per 1m sliding_counter".parse()?)?
//!         .when(Match::new().methods(["POST"])?.path("/v1/charges/{*rest}".parse()?))
//!         .per([Dimension::Client, Dimension::Route]),
//!     // Everybody together, but for health checks:
//!     Rule::new("everyone", "50000/s burst 100000".parse()?)?
//!         .except(Match::new().path("/health".parse()?)),
//!     // Tried out first: it counts, and denies nobody.
//!     Rule::new("stricter", "5/s burst 10".parse()?)?.per([Dimension::Ip]).mode(Mode::Shadow),
//! ])?;
//!
//! let request = Request::new().client("merchant_123").plan("pro");
//! let decision = limiter.decide(&request).await;
//! for tier in decision.tiers() {
//!     println!("{}: {} of {} left", tier.rule(), tier.remaining(), tier.limit());
//! }
//! # assert_eq!(decision.tiers().len(), 3);
//! # Ok(())
//! # }
//! ```
//!
//! Read on at [`Rule`] (conditions, exceptions, plans, costs), [`RuleSet`] (all rules together) and [`Request`]. Rules can change under
//! traffic ([`Limiter::set_rules`]), and [usage carries over](Rule::plan).
//!
//! ## Over Redis
//!
//! The same limits for any number of processes, with the feature `redis` (and `tls` for servers that speak TLS). While Redis is down,
//! each process enforces its share.
//!
//! ```
//! # #[cfg(feature = "redis")]
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tollgate::Limiter;
//! use tollgate::store::{RedisConfig, RedisStore};
//!
//! // Or redis+sentinel://…, redis+cluster://…, rediss://… for TLS.
//! let store = RedisStore::open("redis://127.0.0.1:6379", RedisConfig::default())?;
//! let limiter = Limiter::new(store);
//! # let _ = limiter;
//! # Ok(())
//! # }
//! ```
//!
//! Read on at [`Limiter::new`], and in `SharedConfig` about what happens when Redis fails.
//!
//! ## More than a decision
//!
//! A [`Check`] asks everything else about a key or a request, with a [`Limiter`] and a [`LocalLimiter`] alike:
//!
//! | to | use |
//! |---|---|
//! | look without charging | `limiter.request(&request).peek()` |
//! | charge another amount | `limiter.key("client-7", &limit).cost(5).decide()` |
//! | wait for admission | `limiter.request(&request).until_ready(max_wait)` (feature `tokio`) |
//! | give back | `check.refund(decision)` |
//! | give back when the request is gone | `check.into_owned().refund(&limiter, decision)` |
//! | see what a client has used | `limiter.request(&request).inspect()` |
//! | forget it | `limiter.request(&request).reset()` |
//! | charge several requests, or none | `limiter.all_of(&matched)?.decide()` |
//!
//! ## Testing
//!
//! Limits go by a [`Clock`]: turn a [`ManualClock`] in tests, or let [`Clock::from_fn`] read tokio's paused time.
//!
//! ## Features
//!
//! None is on by default.
//!
//! - `tokio`: [`until_ready`](Check::<Limiter>::until_ready).
//! - `redis`: the store in Redis or Valkey; it needs tokio. `tls`: the same over TLS.
//! - `metrics`: [`register_metrics`](Limiter::register_metrics), for a registry of `prometheus-client`.
//!
//! The crate `tollgate-tower` puts a limiter in front of axum, tonic and hyper.

#![cfg_attr(docsrs, feature(doc_cfg))]
// The documentation is built with all features.
#![cfg_attr(
    not(all(feature = "metrics", feature = "redis")),
    allow(rustdoc::broken_intra_doc_links)
)]

mod algorithm;
mod bucket;
mod clock;
mod decision;
mod dimension;
mod host;
mod limit;
mod limiter;
mod name;
mod path;
mod rate;
mod request;
mod rule;
pub mod store;
mod usage;

pub use bucket::Bucket;
pub use clock::{Clock, ManualClock};
pub use decision::{Decision, Denied, Source, Tier, Verdict};
pub use dimension::{Dimension, Part};
pub use host::{HostError, parse_host};
pub use limit::{Algorithm, Limit};
#[cfg(feature = "redis")]
pub use limiter::{BreakerConfig, Instances, SharedConfig, SharedStats};
pub use limiter::{
    Check, JointCheck, JointDecision, Limiter, LimiterBuilder, LocalLimiter, OwnedCheck,
    StoreError, TooManyBuckets,
};
pub use name::{Name, NameError};
pub use path::{
    EncodedSlash, ForwardedPath, Path, PathClass, PathClasses, PathError, PathRules, Pattern,
    PatternError,
};
pub use rate::{LimitError, Rate};
pub use request::Request;
pub use rule::{
    Applicability, Cost, Explanation, Match, MatchError, MatchedRules, Mismatch, Mode, OnFailure,
    Rule, RuleSet, RuleSetError, RuleSetWarning,
};
pub use usage::{BucketKind, Usage};
