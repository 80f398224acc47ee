//! A decision in JSON.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use tollgate::{Decision, Tier, Verdict};
use tollgate_tower::answer::{Denial, HeaderFamilies, Reason};
use tollgate_tower::policy::Refusal;

use crate::time::ceil_millis;

/// The answer to one check.
#[derive(Debug, Default, Serialize)]
pub(super) struct Answer {
    pub(super) allowed: bool,
    /// The status to answer the request with: 200 if it is admitted.
    pub(super) status: u16,
    reason: Option<&'static str>,
    detail: Option<String>,
    /// The name under which the client is counted.
    client: Option<String>,
    /// The rule that bound the decision, and its figures.
    rule: Option<&'static str>,
    limit: Option<u64>,
    remaining: Option<u64>,
    reset_ms: Option<u64>,
    /// When to retry, in whole seconds and in milliseconds.
    retry_after: Option<u64>,
    retry_after_ms: Option<u64>,
    /// How long the request must wait before it is forwarded.
    delay_ms: u64,
    tiers: Vec<TierAnswer>,
    source: Option<&'static str>,
    generation: u64,
    /// Headers to add to the response.
    headers: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct TierAnswer {
    rule: &'static str,
    limit: u64,
    remaining: u64,
    reset_ms: u64,
    shadow: bool,
    verdict: &'static str,
}

impl Answer {
    pub(super) fn new(decision: &Decision, families: HeaderFamilies, client: Option<&str>) -> Self {
        let denial = Denial::of(decision);
        let mut headers = HeaderMap::new();
        families.add(decision, &mut headers);
        Self {
            allowed: decision.allowed(),
            status: denial.map_or(200, |denial| denial.status().as_u16()),
            reason: denial.map(|denial| reason(denial.reason())),
            detail: denial.map(|denial| denial.detail()),
            client: client.map(str::to_owned),
            rule: decision.tier().map(|tier| tier.rule().as_str()),
            limit: decision.limit(),
            remaining: decision.remaining(),
            reset_ms: decision.reset_after().map(ceil_millis),
            retry_after: denial.and_then(|denial| denial.retry_after_seconds()),
            retry_after_ms: denial.and_then(|denial| denial.retry_after_ms()),
            delay_ms: ceil_millis(decision.delay()),
            tiers: decision.tiers().iter().map(TierAnswer::new).collect(),
            source: Some(decision.source().as_str()),
            generation: decision.generation(),
            headers: headers.iter().map(header_text).collect(),
        }
    }

    /// The answer to a request that servers can read in more than one way.
    pub(super) fn refused(refusal: &Refusal, generation: u64) -> Self {
        Self {
            status: 400,
            reason: Some(refusal.as_str()),
            detail: Some(refusal.to_string()),
            generation,
            ..Self::default()
        }
    }
}

impl TierAnswer {
    fn new(tier: &Tier) -> Self {
        Self {
            rule: tier.rule().as_str(),
            limit: tier.limit().capacity(),
            remaining: tier.remaining(),
            reset_ms: ceil_millis(tier.reset_after()),
            shadow: tier.is_shadow(),
            verdict: match tier.verdict() {
                Verdict::Allow => "allow",
                Verdict::AllowAfter(_) => "delay",
                Verdict::Deny { .. } => "deny",
                Verdict::NeverFits => "never_fits",
            },
        }
    }
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::NeverFits => "never_fits",
        Reason::QueueTooLong => "queue_too_long",
        Reason::Closed => "closed",
        _ => "quota_exceeded",
    }
}

/// A header as text, which all of ours are.
pub(super) fn header_text((name, value): (&HeaderName, &HeaderValue)) -> (String, String) {
    let value = value.to_str().unwrap_or_default();
    (name.to_string(), value.to_owned())
}
