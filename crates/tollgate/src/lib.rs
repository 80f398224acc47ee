//! placeholder
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
    Check, JointCheck, JointDecision, Limiter, LimiterBuilder, LocalLimiter, StoreError,
    TooManyBuckets,
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
