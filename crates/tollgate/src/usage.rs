//! What was used of a bucket.

use std::fmt;
use std::time::Duration;

use crate::decision::Tier;
use crate::dimension::Dimension;
use crate::limit::Limit;
use crate::name::Name;

/// What was used of one bucket, and when it is full again: the result of [`inspect`](crate::Limiter::request) and
/// [`reset`](crate::Limiter::request).
///
/// It holds no text from clients, so it can be logged.
///
/// ```
/// use tollgate::LocalLimiter;
///
/// let (limiter, limit) = (LocalLimiter::new(), "1/min burst 5".parse()?);
/// limiter.check("client-7", &limit, 2).into_result()?;
/// let usage = &limiter.key("client-7", &limit).inspect()[0];
/// assert_eq!((usage.used(), usage.remaining()), (Some(2), Some(3)));
/// assert!(usage.reset_after().as_secs() >= 119);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "looking at usage changes nothing"]
pub struct Usage {
    rule: Option<Name>,
    bucket: BucketKind,
    subject: Option<Dimension>,
    /// As the rule sees it, if it is known which rule that is.
    tier: Option<Tier>,
    reset_after: Duration,
}

/// Which of a rule's buckets a [`Usage`] is about.
///
/// ```
/// use tollgate::{BucketKind, LocalLimiter};
///
/// let (limiter, limit) = (LocalLimiter::new(), "1/min".parse()?);
/// assert_eq!(limiter.key("client-7", &limit).inspect()[0].bucket(), BucketKind::Matched);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BucketKind {
    /// The bucket of the request itself.
    Matched,
    /// Another bucket of the same subject, such as another route of the same client. The store knows its values only by this hash.
    Other(u32),
}

impl fmt::Display for BucketKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Matched => f.pad("matched"),
            Self::Other(id) => write!(f, "other {id:08x}"),
        }
    }
}

impl Usage {
    pub(crate) fn of_tier(bucket: BucketKind, subject: Option<Dimension>, tier: Tier) -> Self {
        Self {
            rule: Some(tier.rule()),
            bucket,
            subject,
            reset_after: tier.reset_after(),
            tier: Some(tier),
        }
    }

    /// Of a bucket whose limit is not known.
    #[cfg(feature = "redis")]
    pub(crate) fn without_limit(
        rule: Option<Name>,
        id: u32,
        subject: Option<Dimension>,
        reset_after: Duration,
    ) -> Self {
        Self {
            rule,
            bucket: BucketKind::Other(id),
            subject,
            tier: None,
            reset_after,
        }
    }

    /// Whether anything is used.
    pub(crate) fn is_used(&self) -> bool {
        !self.reset_after.is_zero()
    }

    /// The rule that counts here; empty for a key. `None` if this limiter has no such rule: it is off, was removed, or belongs to
    /// another program.
    #[must_use]
    pub fn rule(&self) -> Option<Name> {
        self.rule
    }

    /// Which of the rule's buckets.
    #[must_use]
    pub fn bucket(&self) -> BucketKind {
        self.bucket
    }

    /// What the rule counts by first, such as the client or the route. `None` if the bucket is for all requests.
    #[must_use]
    pub fn subject(&self) -> Option<Dimension> {
        self.subject
    }

    /// The limit. `None`, like [`used`](Self::used) and [`remaining`](Self::remaining), if the rule is not known, or which of its
    /// plans counts here.
    #[must_use]
    pub fn limit(&self) -> Option<&Limit> {
        self.tier.as_ref().map(Tier::limit)
    }

    /// What is not left of the limit. A token that is only partly back still counts as used.
    #[must_use]
    pub fn used(&self) -> Option<u64> {
        let tier = self.tier.as_ref()?;
        Some(tier.limit().capacity().saturating_sub(tier.remaining()))
    }

    /// Whole tokens left.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.tier.as_ref().map(Tier::remaining)
    }

    /// How long until the bucket is full again; if its limit is not known, until it surely is.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.reset_after
    }

    /// Whether the rule only watches.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.tier.as_ref().is_some_and(Tier::is_shadow)
    }

    /// Whether the store was full and this bucket stands for many keys.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.tier.as_ref().is_some_and(Tier::is_shared)
    }
}
