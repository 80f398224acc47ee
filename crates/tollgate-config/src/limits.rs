//! Limits as a map with an algorithm, or as a short text.

use std::time::Duration;

use tollgate::{Algorithm, Limit, LimitError, Rate};

use super::values::{DAY, MILLISECOND};
use crate::document::reading::{
    Fields, Input, choice, duration, listed, map_with_hints, number, parsed, whole_number,
};

/// A limit: `{ algorithm: token_bucket, rate: 10/s, burst: 50 }` or `"10/s burst 50"`.
pub(super) fn limit(input: &Input<'_>) -> Option<Limit> {
    match input.is_map() {
        true => map_with_hints(HINTS, from_map)(input),
        false => parsed("a limit such as \"10/s burst 50\", or a map with algorithm")(input),
    }
}

const HINTS: &str = "\
period: the period is part of the rate, as in rate: 10/s, or is the window
requests: write rate: 10/s for buckets, or limit and window for windows
per: `per` belongs to the rule, beside `limit`; a period is part of the rate, as in 10/s
capacity: did you mean \"burst\" (token_bucket) or \"queue\" (leaky_bucket)?
";

fn from_map(fields: &Fields<'_>) -> Option<Limit> {
    let all = ["rate", "burst", "queue", "limit", "window"].map(|name| (name, fields.has(name)));
    let algorithm = algorithm(fields)?;
    let own: [&'static str; 2] = match algorithm {
        Algorithm::TokenBucket => ["rate", "burst"],
        Algorithm::LeakyBucket => ["rate", "queue"],
        _ => ["limit", "window"],
    };
    for (name, is_there) in all {
        if is_there && !own.contains(&name) {
            let message = format!("{algorithm} has no {name}; it has {}", listed(&own, "and"));
            fields.error_at(name, message);
        }
    }
    let limit = match algorithm {
        Algorithm::TokenBucket => bucket(fields, "burst", Limit::token_bucket),
        Algorithm::LeakyBucket => bucket(fields, "queue", Limit::leaky_bucket),
        Algorithm::FixedWindow => window(fields, Limit::fixed_window),
        Algorithm::SlidingLog => window(fields, Limit::sliding_log),
        _ => window(fields, Limit::sliding_counter),
    };
    match limit? {
        _ if !fields.are_right() => None,
        Ok(limit) => Some(limit),
        Err(error) => fields.input().reject(error.to_string(), ""),
    }
}

/// The algorithm that is named, or that of a bucket if the fields are those of a bucket.
fn algorithm(fields: &Fields<'_>) -> Option<Algorithm> {
    if fields.has("algorithm") {
        let all = Algorithm::ALL.map(|algorithm| (algorithm.name(), algorithm));
        return fields.read("algorithm", choice(&all));
    }
    if fields.has("limit") || fields.has("window") {
        let help = "a limit with a window is fixed_window, sliding_log or sliding_counter";
        return (fields.input()).reject("the field \"algorithm\" is missing", help);
    }
    Some(match fields.has("queue") && !fields.has("burst") {
        true => Algorithm::LeakyBucket,
        false => Algorithm::TokenBucket,
    })
}

fn bucket(
    fields: &Fields<'_>,
    size: &'static str,
    make: fn(Rate, u64) -> Result<Limit, LimitError>,
) -> Option<Result<Limit, LimitError>> {
    let rate = fields.required("rate", "rate: 10/s", |input| {
        Some((rate(input)?, &input.as_scalar()?.text))
    });
    let capacity = fields.read(size, number(1..=4_000_000_000));
    let (rate, text) = rate?;
    match capacity {
        Some(capacity) => Some(make(rate, capacity)),
        None if fields.has(size) => None,
        // Without a size, a bucket holds what one period brings, as in the short form.
        None => {
            let limit = text.parse::<Limit>();
            Some(limit.and_then(|limit| make(rate, limit.capacity())))
        }
    }
}

fn rate(input: &Input<'_>) -> Option<Rate> {
    let expected = "a rate such as 10/s or 600/min";
    match whole_number(input.visible_text()) {
        Some(number) => {
            let help = format!("add the time: {number}/s or {number}/min");
            input.reject_value(expected, &help)
        }
        None => parsed(expected)(input),
    }
}

fn window(
    fields: &Fields<'_>,
    make: fn(u64, Duration) -> Result<Limit, LimitError>,
) -> Option<Result<Limit, LimitError>> {
    let limit = fields.required("limit", "limit: 600", number(1..=4_000_000_000));
    let window = fields.required("window", "window: 1m", duration(MILLISECOND..=DAY * 400));
    Some(make(limit?, window?))
}
