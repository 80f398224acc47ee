//! Calls that are denied without asking a limit: why, and what the log reports of them.
//!
//! Never an error of gRPC, since Envoy admits a request for which it gets one, and clients can cause most of these.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use http::StatusCode;
use parking_lot::Mutex;
use tollgate::{HostError, PathError};
use tollgate_tower::policy;

use super::MAX_DESCRIPTORS;
use super::call::{MAX_MESSAGE_BYTES, Unreadable};
use crate::service::metrics::Outcome;

/// Why a call is denied without asking a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The value of an entry that rules mean by its key is not UTF-8.
    NotText(&'static str),
    /// The value of an entry is not an address.
    Address(&'static str),
    /// The method is not a token, so no server takes it.
    Method,
    /// Servers can read the host in more than one way.
    Host(HostError),
    /// Servers can read the path in more than one way.
    Path(PathError),
    /// A header can be read in more ways than are compared.
    Header(policy::Refusal),
    /// The descriptor brings a limit of 0.
    Blocked,
    /// There is no message that can be read.
    Unreadable(Unreadable),
    /// The domain is empty, and only some are limited.
    NoDomain,
    /// There are no descriptors.
    NoDescriptors,
    /// There are more than [`MAX_DESCRIPTORS`].
    TooManyDescriptors,
    /// A descriptor has no entries.
    NoEntries,
    /// An entry has no key.
    NoKey,
    /// Hits are to be given back.
    NegativeHits,
    /// The descriptors meet more buckets than can be taken from at once.
    TooManyBuckets,
}

impl Refusal {
    /// What the client is told, and the log.
    pub(super) fn detail(&self) -> Cow<'static, str> {
        let text = match self {
            Self::NotText(key) => return format!("the {key} is not UTF-8").into(),
            Self::Address(key) => return format!("the {key} is not an address").into(),
            Self::Host(error) => return error.to_string().into(),
            Self::Path(error) => return error.to_string().into(),
            Self::Header(refusal) => return refusal.detail().into(),
            Self::Method => "the method is not a method",
            Self::Blocked => "the limit for this request is 0",
            Self::Unreadable(Unreadable::TooLarge) => "the call is too large",
            Self::Unreadable(Unreadable::Compressed) => "the call is compressed",
            Self::Unreadable(Unreadable::Malformed) => "the call is not a RateLimitRequest",
            Self::Unreadable(Unreadable::TooSlow) => "the call took too long to arrive",
            Self::NoDomain => "the domain is empty",
            Self::NoDescriptors => "there are no descriptors",
            Self::TooManyDescriptors => "there are too many descriptors",
            Self::NoEntries => "a descriptor has no entries",
            Self::NoKey => "an entry has no key",
            Self::NegativeHits => "hits are not given back",
            Self::TooManyBuckets => "the call meets more than 255 buckets",
        };
        text.into()
    }

    /// What to do about it. `None` if a client sent something that no gateway would forward.
    fn advice(&self) -> Option<Cow<'static, str>> {
        let text = match self {
            Self::NotText(_)
            | Self::Address(_)
            | Self::Method
            | Self::Host(_)
            | Self::Path(_)
            | Self::Header(_)
            | Self::Blocked => return None,
            Self::Unreadable(Unreadable::TooLarge) => {
                let megabytes = MAX_MESSAGE_BYTES >> 20;
                return Some(
                    format!("a call may have {megabytes} MiB: lower max_request_headers_kb in Envoy, or put long headers into fewer descriptors").into(),
                );
            }
            Self::Unreadable(Unreadable::Compressed) => {
                "remove the compression of calls from Envoy's rate_limit_service"
            }
            Self::Unreadable(Unreadable::Malformed | Unreadable::TooSlow) => {
                "find out what calls here: it is not an Envoy that speaks envoy.service.ratelimit.v3, or its connection is broken"
            }
            Self::NoDomain => "set domain in Envoy's filter to one of service.rls.domains",
            Self::NoDescriptors => "add rate_limits to the route in Envoy",
            Self::TooManyDescriptors => {
                return Some(
                    format!("a call may have {MAX_DESCRIPTORS} descriptors: put entries together in Envoy's rate_limits")
                        .into(),
                );
            }
            Self::NoEntries => "give every item of rate_limits in Envoy an action",
            Self::NoKey => "give every action in Envoy's rate_limits a descriptor_key",
            Self::NegativeHits => {
                "remove is_negative_hits from Envoy's rate_limits: a refund would have to name its charge"
            }
            Self::TooManyBuckets => {
                "use fewer descriptors in Envoy's rate_limits, or fewer rules that count by the same entries"
            }
        };
        Some(text.into())
    }

    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Blocked => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        Outcome::of_status(self.status().as_u16())
    }

    /// A number for each kind that has an advice of its own.
    fn kind(&self) -> u32 {
        match self {
            Self::NotText(_)
            | Self::Address(_)
            | Self::Method
            | Self::Host(_)
            | Self::Path(_)
            | Self::Header(_)
            | Self::Blocked => 0,
            Self::Unreadable(Unreadable::TooLarge) => 1,
            Self::Unreadable(Unreadable::Compressed) => 2,
            Self::Unreadable(Unreadable::Malformed) => 3,
            Self::Unreadable(Unreadable::TooSlow) => 4,
            Self::NoDomain => 5,
            Self::NoDescriptors => 6,
            Self::TooManyDescriptors => 7,
            Self::NoEntries => 8,
            Self::NoKey => 9,
            Self::NegativeHits => 10,
            Self::TooManyBuckets => 11,
        }
    }
}

const UNAUTHORISED: u32 = 12;
const FOREIGN_DOMAIN: u32 = 13;
const OVERRIDE: u32 = 14;

/// Least time between two lines about calls that clients caused.
const EVERY: Duration = Duration::from_secs(1);

/// What was logged of calls that were not decided on by a limit: once what to do about each kind that configuration causes, and at most a
/// line a second of what clients sent.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    /// Kinds whose advice has been logged, as bits.
    advised: AtomicU32,
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    logged: Option<Instant>,
    /// Calls since then that were not.
    unlogged: u64,
}

impl RefusalLog {
    /// Logs a refusal, if it is to be. `sender` is what is known of who sent the request, escaped.
    pub(super) fn refused(&self, refusal: &Refusal, sender: impl FnOnce() -> String) {
        let reason = refusal.detail();
        match refusal.advice() {
            Some(advice) if self.is_new(refusal.kind()) => {
                let sender = sender();
                tracing::warn!(%reason, %sender, "denying calls of Envoy's protocol that cannot be counted: {advice}");
            }
            _ => {
                if let Some(unlogged) = self.take_turn() {
                    let sender = sender();
                    tracing::warn!(%reason, %sender, unlogged, "denied a call of Envoy's protocol");
                }
            }
        }
    }

    /// A caller without the right token, whose requests Envoy admits.
    pub(super) fn unauthorised(&self) {
        if self.is_new(UNAUTHORISED) {
            tracing::warn!(
                "a caller of Envoy's protocol was rejected, so its Envoy decides without limits: send service.token in initial_metadata of Envoy's rate_limit_service"
            );
        }
    }

    /// A domain that is not among those that are limited.
    pub(super) fn foreign_domain(&self, domain: impl FnOnce() -> String) {
        if self.is_new(FOREIGN_DOMAIN) {
            let domain = domain();
            tracing::warn!(%domain, "calls of this domain are admitted without limits: add it to service.rls.domains if it is yours");
        }
    }

    /// A limit of a descriptor that cannot take the place of the rules'.
    pub(super) fn unusable_override(&self, why: &str) {
        if self.is_new(OVERRIDE) {
            tracing::warn!(
                why,
                "ignoring limits of descriptors that cannot be used, and deciding by the rules': correct limit in Envoy's rate_limits, or the metadata it takes it from"
            );
        }
    }

    fn is_new(&self, kind: u32) -> bool {
        let bit = 1 << kind;
        self.advised.load(Ordering::Relaxed) & bit == 0
            && self.advised.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// How many calls were not logged before this one, which may be.
    fn take_turn(&self) -> Option<u64> {
        let mut recent = self.recent.lock();
        let now = Instant::now();
        if recent
            .logged
            .is_some_and(|logged| now.duration_since(logged) < EVERY)
        {
            recent.unlogged += 1;
            return None;
        }
        recent.logged = Some(now);
        Some(std::mem::take(&mut recent.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_configuration_causes_are_advised_on_once() {
        let log = RefusalLog::default();
        assert!(log.is_new(Refusal::NoKey.kind()));
        assert!(!log.is_new(Refusal::NoKey.kind()));
        assert!(log.is_new(Refusal::NoEntries.kind()));
        assert!(log.is_new(UNAUTHORISED));
    }

    #[test]
    fn a_flood_takes_one_turn_a_second_and_is_counted() {
        let log = RefusalLog::default();
        assert_eq!(log.take_turn(), Some(0));
        assert_eq!((log.take_turn(), log.take_turn()), (None, None));
        log.recent.lock().logged = Instant::now().checked_sub(EVERY);
        assert_eq!(log.take_turn(), Some(2));
        assert_eq!(log.take_turn(), None);
    }

    #[test]
    fn every_refusal_that_configuration_causes_has_a_kind_of_its_own() {
        use Refusal::*;
        let all = [
            Unreadable(super::Unreadable::TooLarge),
            Unreadable(super::Unreadable::Compressed),
            Unreadable(super::Unreadable::Malformed),
            Unreadable(super::Unreadable::TooSlow),
            NoDomain,
            NoDescriptors,
            TooManyDescriptors,
            NoEntries,
            NoKey,
            NegativeHits,
            TooManyBuckets,
        ];
        let mut kinds: Vec<u32> = all.iter().map(Refusal::kind).collect();
        kinds.extend([UNAUTHORISED, FOREIGN_DOMAIN, OVERRIDE]);
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), all.len() + 3);
        assert!(!kinds.contains(&0) && kinds.iter().all(|kind| *kind < u32::BITS));
        assert!(all.iter().all(|refusal| refusal.advice().is_some()));
    }
}
