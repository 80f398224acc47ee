//! Calls that are denied without a limit: why, and what is logged of them.
//!
//! They get no gRPC error, because Envoy admits a request for which it gets one, and clients can cause most of these.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use http::StatusCode;
use parking_lot::Mutex;
use tollgate::{HostError, PathError};
use tollgate_tower::{identity, policy};

use super::MAX_DESCRIPTORS;
use super::call::MAX_MESSAGE_BYTES;
use crate::service::metrics::Outcome;

/// Why a call is denied without a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallRefusal {
    /// The value of an entry with this key is not UTF-8.
    NotText(&'static str),
    /// The value of an entry with this key is not an address.
    Address(&'static str),
    /// The gateway refuses a header with the value of this key.
    Identity(&'static str, identity::Outcome),
    Method,
    /// Servers can read the host in more than one way.
    Host(HostError),
    /// Servers can read the path in more than one way.
    Path(PathError),
    /// A header has more values than are compared.
    Header(policy::Refusal),
    /// The descriptor has a limit of 0.
    Blocked,
    TooLarge,
    Compressed,
    /// The message is not a `RateLimitRequest`.
    Malformed,
    TooSlow,
    /// The domain is empty, and only some are limited.
    NoDomain,
    NoDescriptors,
    TooManyDescriptors,
    NoEntries,
    NoKey,
    NegativeHits,
    /// The descriptors match more buckets than can be charged at once.
    TooManyBuckets,
}

impl CallRefusal {
    /// The reason, for the client and the log.
    pub(super) fn detail(&self) -> Cow<'static, str> {
        let text = match self {
            Self::NotText(key) => return format!("the {key} is not UTF-8").into(),
            Self::Address(key) => return format!("the {key} is not an address").into(),
            Self::Identity(key, outcome) => return format!("the {key} is {outcome}").into(),
            Self::Host(error) => return error.to_string().into(),
            Self::Path(error) => return error.to_string().into(),
            Self::Header(refusal) => return refusal.detail().into(),
            Self::Method => "the method is not a method",
            Self::Blocked => "the limit for this request is 0",
            Self::TooLarge => "the call is too large",
            Self::Compressed => "the call is compressed",
            Self::Malformed => "the call is not a RateLimitRequest",
            Self::TooSlow => "the call took too long to arrive",
            Self::NoDomain => "the domain is empty",
            Self::NoDescriptors => "there are no descriptors",
            Self::TooManyDescriptors => "there are too many descriptors",
            Self::NoEntries => "a descriptor has no entries",
            Self::NoKey => "an entry has no key",
            Self::NegativeHits => "negative hits are not supported",
            Self::TooManyBuckets => "the call matches more than 255 buckets",
        };
        text.into()
    }

    /// What to do about a call that only configuration can cause. `None` if a client sent something that no gateway would forward.
    fn advice(&self) -> Option<Cow<'static, str>> {
        let text = match self {
            Self::NotText(_) | Self::Address(_) | Self::Method | Self::Blocked => return None,
            Self::Identity(..) | Self::Host(_) | Self::Path(_) | Self::Header(_) => return None,
            Self::TooLarge => {
                let megabytes = MAX_MESSAGE_BYTES >> 20;
                return Some(
                    format!("a call may have {megabytes} MiB: lower max_request_headers_kb in Envoy, or put long headers into fewer descriptors").into(),
                );
            }
            Self::TooManyDescriptors => {
                return Some(
                    format!("a call may have {MAX_DESCRIPTORS} descriptors: put entries together in Envoy's rate_limits")
                        .into(),
                );
            }
            Self::Compressed => "remove the compression of calls from Envoy's rate_limit_service",
            Self::Malformed | Self::TooSlow => {
                "find out what calls here: it is not an Envoy that speaks envoy.service.ratelimit.v3, or its connection is broken"
            }
            Self::NoDomain => "set domain in Envoy's filter to one of service.rls.domains",
            Self::NoDescriptors => "add rate_limits to the route in Envoy",
            Self::NoEntries => "give every item of rate_limits in Envoy an action",
            Self::NoKey => "give every action in Envoy's rate_limits a descriptor_key",
            // A refund has to name its charge, which this protocol cannot do.
            Self::NegativeHits => "remove is_negative_hits from Envoy's rate_limits",
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
}

/// Least time between two lines about calls that clients caused.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// Logs calls that were not decided by a limit: advice once for each cause in the configuration, and at most one line a second about
/// the rest.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    /// The causes that were logged with advice.
    advised: Mutex<HashSet<Cow<'static, str>>>,
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    logged: Option<Instant>,
    /// Later calls, which were not logged.
    unlogged: u64,
}

impl RefusalLog {
    /// Logs a refusal. `sender` describes the sender of the request, escaped.
    pub(super) fn refused(&self, refusal: &CallRefusal, sender: impl FnOnce() -> String) {
        let reason = refusal.detail();
        match refusal.advice() {
            Some(advice) if self.is_new(reason.clone()) => {
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

    /// Logs a call without the right token, whose request Envoy admits.
    pub(super) fn unauthorized(&self) {
        if self.is_new("token".into()) {
            tracing::warn!(
                "a call of Envoy's protocol had no valid token, so its Envoy admits requests without limits: send service.token in initial_metadata of Envoy's rate_limit_service"
            );
        }
    }

    /// Logs a domain that is not limited.
    pub(super) fn foreign_domain(&self, domain: impl FnOnce() -> String) {
        if self.is_new("domain".into()) {
            let domain = domain();
            tracing::warn!(%domain, "calls of this domain are admitted without limits: add it to service.rls.domains if it is yours");
        }
    }

    /// Logs a limit of a descriptor that cannot replace those of the rules.
    pub(super) fn unusable_override(&self, why: &str) {
        if self.is_new("override".into()) {
            tracing::warn!(
                why,
                "ignoring limits of descriptors that cannot be used, and deciding by the rules': correct limit in Envoy's rate_limits, or the metadata it takes it from"
            );
        }
    }

    fn is_new(&self, cause: Cow<'static, str>) -> bool {
        self.advised.lock().insert(cause)
    }

    /// The number of calls that were not logged before this one, if this one may be.
    fn take_turn(&self) -> Option<u64> {
        let mut recent = self.recent.lock();
        let now = Instant::now();
        let is_recent = |logged| now.duration_since(logged) < LOG_EVERY;
        if recent.logged.is_some_and(is_recent) {
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
    fn causes_in_the_configuration_are_advised_on_once() {
        let log = RefusalLog::default();
        let is_new = |refusal: CallRefusal| log.is_new(refusal.detail());
        assert!(is_new(CallRefusal::NoKey));
        assert!(!is_new(CallRefusal::NoKey));
        assert!(is_new(CallRefusal::NoEntries));
    }

    #[test]
    fn a_flood_takes_one_turn_a_second_and_is_counted() {
        let log = RefusalLog::default();
        assert_eq!(log.take_turn(), Some(0));
        assert_eq!((log.take_turn(), log.take_turn()), (None, None));
        log.recent.lock().logged = Instant::now().checked_sub(LOG_EVERY);
        assert_eq!(log.take_turn(), Some(2));
        assert_eq!(log.take_turn(), None);
    }

    #[test]
    fn every_cause_in_the_configuration_has_its_own_advice() {
        use CallRefusal::*;
        let all = [
            TooLarge,
            Compressed,
            Malformed,
            TooSlow,
            NoDomain,
            NoDescriptors,
            TooManyDescriptors,
            NoEntries,
            NoKey,
            NegativeHits,
            TooManyBuckets,
        ];
        let causes: HashSet<_> = all.iter().map(CallRefusal::detail).collect();
        assert_eq!(causes.len(), all.len());
        assert!(all.iter().all(|refusal| refusal.advice().is_some()));
    }
}
