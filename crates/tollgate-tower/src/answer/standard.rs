//! `RateLimit-Policy` and `RateLimit` of the IETF's draft: structured fields, lists of strings with parameters.

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate::{Decision, Tier};

use super::denial::name;
use super::retry::ceil_seconds;
use super::sheet::{Sheet, push_number};

static POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static STATE: HeaderName = HeaderName::from_static("ratelimit");
static SHADOW: HeaderName = HeaderName::from_static("x-ratelimit-shadow");

/// What stands there already is looked at only if others spoke of limits.
pub(super) fn write(
    decision: &Decision,
    headers: &HeaderMap,
    others_spoke: bool,
    sheet: &mut Sheet,
) {
    let deciding = || decision.tiers().iter().filter(|tier| !tier.is_shadow());
    if !others_spoke || are_lists(&POLICY, headers) {
        sheet.add(&POLICY, |text| write_list(deciding(), text, add_policy));
    }
    if !others_spoke || are_lists(&STATE, headers) {
        sheet.add(&STATE, |text| write_list(deciding(), text, add_state));
    }
}

pub(super) fn write_shadows(decision: &Decision, headers: &HeaderMap, sheet: &mut Sheet) {
    let shadows = decision.tiers().iter().filter(|tier| tier.is_shadow());
    if are_lists(&SHADOW, headers) {
        sheet.add(&SHADOW, |text| {
            write_list(shadows, text, |tier, text| {
                add_state(tier, text);
                if !tier.verdict().allowed() {
                    text.push_str(";deny");
                }
            });
        });
    }
}

fn write_list<'a>(
    tiers: impl Iterator<Item = &'a Tier>,
    text: &mut String,
    add: impl Fn(&Tier, &mut String),
) {
    for (nth, tier) in tiers.enumerate() {
        if nth > 0 {
            text.push_str(", ");
        }
        add(tier, text);
    }
}

// Names are made of characters that need no escapes, and figures stay below the 15 digits that an integer may have.

fn add_policy(tier: &Tier, line: &mut String) {
    let window = ceil_seconds(tier.limit().window()).max(1);
    add_item(tier, "\";q=", tier.limit().capacity(), ";w=", window, line);
}

fn add_state(tier: &Tier, line: &mut String) {
    let reset = ceil_seconds(tier.reset_after());
    add_item(tier, "\";r=", tier.remaining(), ";t=", reset, line);
}

/// Without the machinery of `format!`, which takes most of the time that it takes to answer. What stands behind the name begins with the quote that ends it.
#[inline(always)]
fn add_item(tier: &Tier, a: &str, first: u64, b: &str, second: u64, line: &mut String) {
    line.push('"');
    line.push_str(name(tier));
    line.push_str(a);
    push_number(first, line);
    line.push_str(b);
    push_number(second, line);
}

/// Whether the lines that stand there are a list like ours, so that one more can stand beside them.
fn are_lists(name: &HeaderName, headers: &HeaderMap) -> bool {
    let is_list = |value: &HeaderValue| value.as_bytes().trim_ascii_start().starts_with(b"\"");
    headers.get_all(name).iter().all(is_list)
}
