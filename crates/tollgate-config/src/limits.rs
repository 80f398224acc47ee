//! Limits as a map with an algorithm, or as a short text.

use std::time::Duration;

use tollgate::{Algorithm, Limit, LimitError, Rate};

use super::values::parsed;
use crate::document::Problems;
use crate::document::reading::{Fields, Place, choice, duration, listed, number, shown};

pub(super) const LIMIT: &[&str] = &["algorithm", "rate", "burst", "queue", "limit", "window"];

/// A limit: `{ algorithm: token_bucket, rate: 10/s, burst: 50 }` or `"10/s burst 50"`.
pub(super) fn limit(place: &Place<'_>, problems: &mut Problems) -> Option<Limit> {
    match place.is_map() {
        true => from_map(place, problems),
        false => {
            parsed("a limit such as \"10/s burst 50\", or a map with algorithm")(place, problems)
        }
    }
}

/// What belongs to an algorithm beside its name.
fn fields_of(algorithm: Algorithm) -> &'static [&'static str] {
    match algorithm {
        Algorithm::TokenBucket => &["rate", "burst"],
        Algorithm::LeakyBucket => &["rate", "queue"],
        _ => &["limit", "window"],
    }
}

fn from_map(place: &Place<'_>, problems: &mut Problems) -> Option<Limit> {
    let foreign = [
        (
            "period",
            "the period is part of the rate, as in rate: 10/s, or is the window",
        ),
        (
            "requests",
            "write rate: 10/s for buckets, or limit and window for windows",
        ),
        (
            "per",
            "`per` belongs to the rule, beside `limit`; a period is part of the rate, as in 10/s",
        ),
        (
            "capacity",
            "did you mean \"burst\" (token_bucket) or \"queue\" (leaky_bucket)?",
        ),
    ];
    let fields = Fields::of_with(place, LIMIT, &foreign, problems)?;
    let before = problems.errors();
    let algorithm = algorithm(&fields, problems)?;
    let own = fields_of(algorithm);
    for name in LIMIT.iter().filter(|name| **name != "algorithm") {
        if fields.has(name) && !own.contains(name) {
            let message = format!("{algorithm} has no {name}; it has {}", listed(own, "and"));
            problems.error(fields.spot_of(name), message);
        }
    }
    let made = match algorithm {
        Algorithm::TokenBucket => bucket(&fields, "burst", problems, Limit::token_bucket),
        Algorithm::LeakyBucket => bucket(&fields, "queue", problems, Limit::leaky_bucket),
        Algorithm::FixedWindow => windowed(&fields, problems, Limit::fixed_window),
        Algorithm::SlidingLog => windowed(&fields, problems, Limit::sliding_log),
        _ => windowed(&fields, problems, Limit::sliding_counter),
    };
    match made? {
        _ if problems.errors() > before => None,
        Ok(limit) => Some(limit),
        Err(error) => {
            place.error(problems, error.to_string());
            None
        }
    }
}

/// The algorithm that was named, or that of a bucket if its fields say so.
fn algorithm(fields: &Fields<'_>, problems: &mut Problems) -> Option<Algorithm> {
    if fields.has("algorithm") {
        let all = Algorithm::ALL.map(|algorithm| (algorithm.name(), algorithm));
        return fields.optional("algorithm", problems, choice(&all));
    }
    if fields.has("limit") || fields.has("window") {
        fields
            .place()
            .error(problems, "the field \"algorithm\" is missing")
            .help("a limit with a window is fixed_window, sliding_log or sliding_counter");
        return None;
    }
    Some(match fields.has("queue") && !fields.has("burst") {
        true => Algorithm::LeakyBucket,
        false => Algorithm::TokenBucket,
    })
}

type Made = Option<Result<Limit, LimitError>>;

fn bucket(
    fields: &Fields<'_>,
    size: &str,
    problems: &mut Problems,
    make: fn(Rate, u64) -> Result<Limit, LimitError>,
) -> Made {
    let rate = fields.required("rate", "rate: 10/s", problems, |place, problems| {
        let rate = rate(place, problems)?;
        Some((rate, place.peek()?.text.clone()))
    });
    let said = fields.optional(size, problems, number(1..=4_000_000_000));
    let (rate, written) = rate?;
    let size = match said {
        Some(said) => said,
        None if fields.has(size) => return None,
        // A bucket that names no size holds what one period brings, as in the short form.
        None => match written.parse::<Limit>() {
            Ok(limit) => limit.capacity(),
            Err(error) => return Some(Err(error)),
        },
    };
    Some(make(rate, size))
}

fn rate(place: &Place<'_>, problems: &mut Problems) -> Option<Rate> {
    let expected = "a rate such as 10/s or 600/min";
    let scalar = place.scalar(expected, problems)?;
    let is_bare = scalar.text.bytes().all(|b| b.is_ascii_digit());
    if is_bare && !scalar.is_from_environment() {
        place
            .error(
                problems,
                format!("{} is not {expected}: it says no time", shown(scalar)),
            )
            .help(format!(
                "{0}/s for each second, {0}/min for each minute",
                scalar.text
            ));
        return None;
    }
    parsed(expected)(place, problems)
}

fn windowed(
    fields: &Fields<'_>,
    problems: &mut Problems,
    make: fn(u64, Duration) -> Result<Limit, LimitError>,
) -> Made {
    let limit = fields.required("limit", "limit: 600", problems, number(1..=4_000_000_000));
    let window = Duration::from_millis(1)..=Duration::from_secs(400 * 86_400);
    let window = fields.required("window", "window: 1m", problems, duration(window));
    Some(make(limit?, window?))
}
