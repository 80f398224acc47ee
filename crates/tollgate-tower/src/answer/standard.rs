//! `RateLimit-Policy` and `RateLimit` of the IETF's draft: structured fields, lists of strings with parameters.

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate::{Decision, Tier};

use super::denial::name;
use super::retry::ceil_seconds;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STATE: HeaderName = HeaderName::from_static("ratelimit");
const SHADOW: HeaderName = HeaderName::from_static("x-ratelimit-shadow");

pub(super) fn add(decision: &Decision, headers: &mut HeaderMap, others_spoke: bool) {
    let mut deciding = decision.tiers().iter().filter(|tier| !tier.is_shadow());
    let (mut policy, mut state) = (String::new(), String::new());
    for tier in deciding.by_ref() {
        add_policy(tier, &mut policy);
        add_state(tier, &mut state);
    }
    append(&POLICY, policy, headers, others_spoke);
    append(&STATE, state, headers, others_spoke);
}

pub(super) fn add_shadows(decision: &Decision, headers: &mut HeaderMap) {
    let mut line = String::new();
    for tier in decision.tiers().iter().filter(|tier| tier.is_shadow()) {
        add_state(tier, &mut line);
        if !tier.verdict().allowed() {
            line.push_str(";deny");
        }
    }
    append(&SHADOW, line, headers, true);
}

// Names are made of characters that need no escapes, and figures stay below the 15 digits that an integer may have.

fn add_policy(tier: &Tier, line: &mut String) {
    let window = ceil_seconds(tier.limit().window()).max(1);
    add_item(tier, ";q=", tier.limit().capacity(), ";w=", window, line);
}

fn add_state(tier: &Tier, line: &mut String) {
    let reset = ceil_seconds(tier.reset_after());
    add_item(tier, ";r=", tier.remaining(), ";t=", reset, line);
}

/// Without the machinery of `format!`, which takes most of the time that it takes to answer.
fn add_item(tier: &Tier, a: &str, first: u64, b: &str, second: u64, line: &mut String) {
    match line.is_empty() {
        true => line.reserve(64),
        false => line.push_str(", "),
    }
    let mut digits = itoa::Buffer::new();
    line.push('"');
    line.push_str(name(tier));
    line.push('"');
    line.push_str(a);
    line.push_str(digits.format(first));
    line.push_str(b);
    line.push_str(digits.format(second));
}

/// As a line of its own, if the lines that stand there are a list like ours.
fn append(field: &HeaderName, line: String, headers: &mut HeaderMap, others_spoke: bool) {
    let is_list = |value: &HeaderValue| value.as_bytes().trim_ascii_start().starts_with(b"\"");
    if line.is_empty() || others_spoke && !headers.get_all(field).iter().all(is_list) {
        return;
    }
    if let Ok(value) = HeaderValue::try_from(line) {
        headers.append(field.clone(), value);
    }
}
