//! `X-RateLimit-*`: the three fields that everybody knows and nobody wrote down.

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate::Decision;

use super::retry::{ceil_seconds, unix};
use super::sheet::Sheet;

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

pub(super) fn write(decision: &Decision, sheet: &mut Sheet) {
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
