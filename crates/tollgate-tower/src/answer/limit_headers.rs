//! The headers of a decision: `RateLimit-Policy` and `RateLimit` of the IETF's draft, which are lists of strings with parameters;
//! `X-RateLimit-*`, which is common and has no standard; and `Retry-After`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate::{Decision, Tier};

use super::denial::name;
use super::sheet::{Sheet, push_number};

static POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static STATE: HeaderName = HeaderName::from_static("ratelimit");
static SHADOW: HeaderName = HeaderName::from_static("x-ratelimit-shadow");

/// What stands there already is looked at only if others spoke of limits.
pub(super) fn write_standard(
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

static LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// What the three fields say.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Bound {
    limit: u64,
    remaining: u64,
    reset: u64,
}

impl Bound {
    /// `None` if no rule bound the decision.
    pub(super) fn of(decision: &Decision) -> Option<Self> {
        let tier = decision.tier()?;
        let full_at = unix(decision.at()) + tier.reset_after();
        Some(Self {
            limit: tier.limit().capacity(),
            remaining: tier.remaining(),
            reset: ceil_seconds(full_at),
        })
    }
}

pub(super) fn write_legacy(decision: &Decision, sheet: &mut Sheet) {
    if let Some(bound) = Bound::of(decision) {
        sheet.set(&LIMIT, bound.limit);
        sheet.set(&REMAINING, bound.remaining);
        sheet.set(&RESET, bound.reset);
    }
}

/// Whether what stands there already is at least as strict, or cannot be compared.
pub(super) fn is_stricter(headers: &HeaderMap, decision: &Decision) -> bool {
    let Some(remaining) = decision.remaining() else {
        return true;
    };
    let mut theirs = headers.get_all(&REMAINING).iter();
    let read = |value: &HeaderValue| value.to_str().ok()?.trim().parse::<u64>().ok();
    match (theirs.next(), theirs.next()) {
        (Some(only), None) => read(only).is_none_or(|theirs| theirs <= remaining),
        (Some(_), Some(_)) => true,
        (None, _) => headers.contains_key(&LIMIT) || headers.contains_key(&RESET),
    }
}

static RETRY_AFTER: HeaderName = HeaderName::from_static("retry-after");

/// Rounded up, as who comes earlier is denied again, and never 0, which says "at once".
pub(super) fn retry_seconds(wait: Duration) -> u64 {
    ceil_seconds(wait).max(1)
}

/// Rounded up and never 0.
pub(super) fn retry_milliseconds(wait: Duration) -> u64 {
    let below_a_second = u64::from(wait.subsec_nanos().div_ceil(1_000_000));
    let whole_seconds = wait.as_secs().saturating_mul(1_000);
    whole_seconds.saturating_add(below_a_second).max(1)
}

pub(super) fn ceil_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// Unix time; 0 before that.
pub(super) fn unix(at: SystemTime) -> Duration {
    at.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Says the wait, unless a longer one stands there.
pub(super) fn write_retry_after(
    wait: Duration,
    now: SystemTime,
    headers: &HeaderMap,
    sheet: &mut Sheet,
) {
    let ours = retry_seconds(wait);
    if let Some(theirs) = headers.get(&RETRY_AFTER) {
        let theirs = waits(theirs, now);
        if theirs.is_none_or(|theirs| theirs >= ours) {
            return;
        }
    }
    sheet.set(&RETRY_AFTER, ours);
}

/// The seconds of an existing header; `None` if it cannot be read.
fn waits(value: &HeaderValue, now: SystemTime) -> Option<u64> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(seconds);
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(ceil_seconds(unix(at).saturating_sub(unix(now))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_of_others_are_seconds_or_dates() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_700);
        for (text, expected) in [
            ("30", Some(30)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(77)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(77)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
            ("Sun, 06 Nov 1994 08:49:37", None),
            ("Sun, 06 Nov 1994 24:49:37 GMT", None),
            ("Sun, 06 Nob 1994 08:49:37 GMT", None),
        ] {
            let value = HeaderValue::from_static(text);
            assert_eq!(waits(&value, now), expected, "{text}");
        }
    }
}
