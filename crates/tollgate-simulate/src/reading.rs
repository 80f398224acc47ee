//! How to read the figures: one or two sentences per scenario, with the figures of this very run in them.
//!
//! The limit may be the user's own, so nothing is claimed here that was not counted.

use tollgate::Algorithm;

use super::figures::{Figures, Results, burst_span};
use super::limits::Limits;
use super::scenario::Scenario;
use super::text::{decimal, grouped, percent, span, span_name, to_f64, wait};

/// The sentences under the table.
pub(super) fn reading(
    scenario: Option<Scenario>,
    limits: &Limits,
    results: &Results,
) -> Vec<String> {
    let window = span_name(limits.period);
    let limit = grouped(limits.count);
    let of = |algorithm| figures_of(results, algorithm);
    let (token, leaky) = (of(Algorithm::TokenBucket), of(Algorithm::LeakyBucket));
    let (fixed, log) = (of(Algorithm::FixedWindow), of(Algorithm::SlidingLog));
    match scenario {
        Some(Scenario::Boundary) => vec![
            format!(
                "The fixed window counts anew at each boundary: {} went in the worst {window}, {} times its limit of \
                 {limit}.",
                grouped(fixed.worst_window),
                decimal(to_f64(fixed.worst_window) / to_f64(limits.count)),
            ),
            format!(
                "The sliding log let {} through in the worst {window}. The leaky bucket let {} in and held them back \
                 by up to {}.",
                grouped(log.worst_window),
                grouped(leaky.admitted.tokens),
                wait(leaky.delay.max),
            ),
        ],
        Some(Scenario::BurstIdle) => {
            let brought = |seconds: f64| {
                let per_second = to_f64(limits.count) / limits.period.as_secs_f64();
                decimal(seconds * per_second)
            };
            vec![
                format!(
                    "However long the pause, the token bucket holds at most {}: 1.8 s would bring {}, and 5 s {}.",
                    grouped(limits.said.capacity()),
                    brought(1.8),
                    brought(5.0),
                ),
                format!(
                    "It let {} of {} through; the leaky bucket let {} in, and at most {} out in any {window}.",
                    grouped(token.admitted.tokens),
                    grouped(token.offered.tokens),
                    grouped(leaky.admitted.tokens),
                    grouped(leaky.worst_window),
                ),
            ]
        }
        Some(Scenario::Surge) => vec![
            format!(
                "The token bucket denied {} of everything, the sliding log {}.",
                percent(token.denied.tokens, token.offered.tokens),
                percent(log.denied.tokens, log.offered.tokens),
            ),
            format!(
                "They differ in how evenly they let through: up to {} in one {window} for the token bucket with its \
                 burst, {} for the fixed window, {} for the leaky bucket, which held requests back by up to {}.",
                grouped(token.worst_window),
                grouped(fixed.worst_window),
                grouped(leaky.worst_window),
                wait(leaky.delay.max),
            ),
        ],
        Some(Scenario::Drivers) => vec![
            format!(
                "Behind the leaky bucket at most {} went in any {window}, evenly, but up to {} later.",
                grouped(leaky.worst_window),
                wait(leaky.delay.max),
            ),
            format!(
                "The token bucket let {} through in one {window} and the fixed window {}. The sliding log kept to {}, \
                 of which up to {} went within {}.",
                grouped(token.worst_window),
                grouped(fixed.worst_window),
                grouped(log.worst_window),
                grouped(log.largest_burst),
                span(burst_span(limits.period)),
            ),
        ],
        None => vec![format!(
            "\"Worst {window}\" is the most that went in any {window}, wherever it starts, against a limit of {limit}.",
        )],
    }
}

fn figures_of(results: &Results, wanted: Algorithm) -> Figures {
    let found = results
        .iter()
        .find(|(limit, _)| limit.algorithm() == wanted);
    found.map(|(_, figures)| *figures).unwrap_or_default()
}
