//! Decisions in Envoy's protocol.

use std::time::Duration;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use tollgate::{Decision, JointDecision, Limit, Tier};
use tollgate_tower::answer::{Answers, Denial, Dialect, PROBLEM_JSON, failure};

use super::generated::envoy::config::core::v3::HeaderValue;
use super::generated::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use super::generated::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use super::generated::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::refusal::CallRefusal;
use crate::service::answer::header_text;
use crate::service::metrics::Outcome;

/// Why a call is denied. One that would have to wait is denied too.
pub(super) fn denial(decision: &Decision) -> Option<Denial<'_>> {
    Denial::of(decision).or_else(|| Denial::of_delay(decision, Duration::ZERO))
}

/// The response to a call that was decided by limits.
pub(super) fn decided(joint: &JointDecision, answers: &Answers) -> (RateLimitResponse, Outcome) {
    let denial = denial(&joint.whole);
    let mut headers = HeaderMap::new();
    let mut raw_body = Vec::new();
    let mut outcome = Outcome::Allowed;
    match &denial {
        None => answers.add(&joint.whole, &mut headers),
        Some(denial) => {
            let (parts, body) = answers.denied(denial, Dialect::Http).into_parts();
            (headers, raw_body) = (parts.headers, body.to_vec());
            outcome = Outcome::of_status(parts.status.as_u16());
        }
    }
    let response = RateLimitResponse {
        overall_code: code(denial.is_none()).into(),
        statuses: joint.each.iter().map(status).collect(),
        response_headers_to_add: headers.iter().map(header_text).map(header).collect(),
        request_headers_to_add: Vec::new(),
        raw_body,
        dynamic_metadata: Some(metadata(&joint.whole, denial.as_ref())),
    };
    (response, outcome)
}

/// The response to a call that is denied without a limit.
pub(super) fn refused(request: &RateLimitRequest, refusal: &CallRefusal) -> RateLimitResponse {
    let detail = refusal.detail();
    let body = failure(refusal.status(), &detail, Dialect::Http).into_body();
    RateLimitResponse {
        response_headers_to_add: vec![header((CONTENT_TYPE.to_string(), PROBLEM_JSON.to_owned()))],
        raw_body: body.to_vec(),
        dynamic_metadata: Some(fields([
            ("allowed", Kind::BoolValue(false)),
            ("refused", text(detail)),
        ])),
        ..for_all(request, Code::OverLimit)
    }
}

/// A response with the same code for all descriptors.
pub(super) fn for_all(request: &RateLimitRequest, code: Code) -> RateLimitResponse {
    let status = DescriptorStatus {
        code: code.into(),
        ..DescriptorStatus::default()
    };
    RateLimitResponse {
        overall_code: code.into(),
        statuses: vec![status; request.descriptors.len()],
        ..RateLimitResponse::default()
    }
}

fn status(decision: &Decision) -> DescriptorStatus {
    let tier = decision.tier();
    DescriptorStatus {
        code: code(denial(decision).is_none()).into(),
        current_limit: tier.map(current_limit),
        limit_remaining: tier.map_or(0, |tier| small(tier.remaining())),
        duration_until_reset: tier.and_then(|tier| tier.reset_after().try_into().ok()),
    }
}

fn code(is_admitted: bool) -> Code {
    if is_admitted {
        Code::Ok
    } else {
        Code::OverLimit
    }
}

fn current_limit(tier: &Tier) -> RateLimit {
    let (requests_per_unit, unit) = per_unit(tier.limit());
    RateLimit {
        requests_per_unit,
        unit: unit.into(),
        name: tier.rule().to_string(),
    }
}

/// A limit in the shortest of Envoy's units in which it is a whole number, or else its capacity without a unit.
fn per_unit(limit: &Limit) -> (u32, Unit) {
    let (count, period) = match limit.rate() {
        Some(rate) => (rate.count(), rate.period()),
        None => (limit.capacity(), limit.window()),
    };
    let units = [
        (1, Unit::Second),
        (60, Unit::Minute),
        (3_600, Unit::Hour),
        (24 * 3_600, Unit::Day),
        (30 * 24 * 3_600, Unit::Month),
        (365 * 24 * 3_600, Unit::Year),
    ];
    let whole = |(seconds, unit): (u64, Unit)| {
        let product = u128::from(count) * Duration::from_secs(seconds).as_micros();
        let period = period.as_micros();
        (product > 0 && product.is_multiple_of(period)).then(|| (product / period, unit))
    };
    match units.into_iter().find_map(whole) {
        Some((count, unit)) => (u32::try_from(count).unwrap_or(u32::MAX), unit),
        None => (small(limit.capacity()), Unit::Unknown),
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn header((key, value): (String, String)) -> HeaderValue {
    HeaderValue { key, value }
}

/// The rules that decided, for Envoy's logs and other filters.
fn metadata(decision: &Decision, denial: Option<&Denial<'_>>) -> Struct {
    let rule = decision.tier().map_or("", |tier| tier.rule().as_str());
    let shadows = decision.tiers().iter().filter(|tier| tier.is_shadow());
    let would_deny = shadows.filter(|tier| !tier.verdict().allowed());
    let shadow_denied = would_deny.map(|tier| tier.rule().as_str());
    let violated: Vec<&str> = denial.map_or_else(Vec::new, |denial| denial.violated().collect());
    fields([
        ("allowed", Kind::BoolValue(denial.is_none())),
        ("rule", text(rule)),
        ("violated", list(violated.into_iter())),
        ("shadow_denied", list(shadow_denied)),
        ("source", text(decision.source().as_str())),
        ("generation", text(decision.generation().to_string())),
    ])
}

fn text(text: impl Into<String>) -> Kind {
    Kind::StringValue(text.into())
}

fn list<'a>(words: impl Iterator<Item = &'a str>) -> Kind {
    let value = |word| Value {
        kind: Some(text(word)),
    };
    let values = words.map(value).collect();
    Kind::ListValue(ListValue { values })
}

fn fields<const N: usize>(fields: [(&str, Kind); N]) -> Struct {
    let field = |(name, kind): (&str, Kind)| (name.to_owned(), Value { kind: Some(kind) });
    let fields = fields.into_iter().map(field).collect();
    Struct { fields }
}
