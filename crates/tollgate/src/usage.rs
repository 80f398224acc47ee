//! What was used: the answer to whoever looks at a subject.

use std::fmt;
use std::time::Duration;

use crate::decision::Tier;
use crate::dimension::Dimension;
use crate::limit::Limit;
use crate::name::Name;

/// What was used of one bucket, and when it is full again.
///
/// Holds no text of callers, so that it can be logged.
#[derive(Clone, Debug, PartialEq)]
pub struct Usage {
    rule: Option<Name>,
    bucket: WhichBucket,
    subject: Option<Dimension>,
    /// What its rule says of it, if it is known which rule that is.
    tier: Option<Tier>,
    reset_after: Duration,
}

/// Which bucket of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhichBucket {
    /// The one that the request itself meets.
    Asked,
    /// Another one of the same subject: another route of the same client, say. The store knows its values only by this hash.
    Other(u32),
}

impl fmt::Display for WhichBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.pad("asked"),
            Self::Other(id) => write!(f, "other {id:08x}"),
        }
    }
}

impl Usage {
    pub(crate) fn of_tier(bucket: WhichBucket, subject: Option<Dimension>, tier: Tier) -> Self {
        Self {
            rule: Some(tier.rule()),
            bucket,
            subject,
            reset_after: tier.reset_after(),
            tier: Some(tier),
        }
    }

    /// Of a bucket whose figures nobody here can say.
    #[cfg(feature = "redis")]
    pub(crate) fn of_stranger(
        rule: Option<Name>,
        id: u32,
        subject: Option<Dimension>,
        reset_after: Duration,
    ) -> Self {
        Self {
            rule,
            bucket: WhichBucket::Other(id),
            subject,
            tier: None,
            reset_after,
        }
    }

    /// Whether anything is used.
    pub(crate) fn is_used(&self) -> bool {
        !self.reset_after.is_zero()
    }

    /// The rule that counts here. `None` if this limiter has no such rule: it is off, was removed, or is another program's.
    #[must_use]
    pub fn rule(&self) -> Option<Name> {
        self.rule
    }

    /// Which of the rule's buckets.
    #[must_use]
    pub fn bucket(&self) -> WhichBucket {
        self.bucket
    }

    /// Whose it is, as what the rule counts by first: the client's, the route's. `None` if it is everybody's.
    #[must_use]
    pub fn subject(&self) -> Option<Dimension> {
        self.subject
    }

    /// What the rule allows. `None`, as [`used`](Self::used) and [`remaining`](Self::remaining), if the rule is not known, or which
    /// of its plans counts here.
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

    /// How long until it is full again; of a rule that is not known, until it is surely so.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.reset_after
    }

    /// Whether the rule only watches.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.tier.as_ref().is_some_and(Tier::is_shadow)
    }

    /// Whether the store was out of room and this bucket stands for many keys.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.tier.as_ref().is_some_and(Tier::is_shared)
    }
}
