//! What the figures mean: one or two sentences per scenario, with the figures of this run.
//!
//! The limit may be the user's own, so nothing is claimed here that was not counted.

use super::figures::{Comparison, Figures, burst_span};
use super::scenario::Scenario;
use super::text::{decimal, delay, grouped, percent, span, span_name, to_f64};

/// The sentences below the table.
pub(super) fn sentences(comparison: &Comparison) -> Vec<String> {
    let limits = &comparison.limits;
    let (window, limit) = (span_name(limits.period), grouped(limits.count));
    let figures = comparison
        .outcomes
        .each_ref()
        .map(|outcome| &outcome.figures);
    let [token, leaky, fixed, log, _] = figures;
    let max_delay = delay(leaky.max_delay.unwrap_or_default());
    let worst = |figures: &Figures| grouped(figures.worst_window);
    let admitted = |figures: &Figures| grouped(figures.admitted);
    match comparison.traffic.scenario {
        Some(Scenario::Boundary) => vec![
            format!(
                "The fixed window starts again at each boundary: it admitted {} in the worst {window}, {} times its limit of {limit}.",
                worst(fixed),
                decimal(to_f64(fixed.worst_window) / to_f64(limits.count)),
            ),
            format!(
                "The sliding log admitted {} in the worst {window}. The leaky bucket admitted {} and delayed them by up to {max_delay}.",
                worst(log),
                admitted(leaky),
            ),
        ],
        Some(Scenario::BurstIdle) => {
            let earned = |seconds: f64| {
                let per_second = to_f64(limits.count) / limits.period.as_secs_f64();
                decimal(seconds * per_second)
            };
            vec![
                format!(
                    "However long the pause, the token bucket holds at most {}: 1.8 s would earn {}, and 5 s {}.",
                    grouped(limits.original.capacity()),
                    earned(1.8),
                    earned(5.0),
                ),
                format!(
                    "It admitted {} of {}. The leaky bucket admitted {}, and forwarded at most {} in any {window}.",
                    admitted(token),
                    grouped(token.offered),
                    admitted(leaky),
                    worst(leaky),
                ),
            ]
        }
        Some(Scenario::Surge) => vec![
            format!(
                "The token bucket denied {} of all requests, the sliding log {}.",
                percent(token.denied, token.offered),
                percent(log.denied, log.offered),
            ),
            format!(
                "They differ in how evenly they forward: up to {} in one {window} for the token bucket with its burst, {} for the \
                 fixed window, {} for the leaky bucket, which delayed requests by up to {max_delay}.",
                worst(token),
                worst(fixed),
                worst(leaky),
            ),
        ],
        Some(Scenario::Drivers) => vec![
            format!(
                "The leaky bucket forwarded at most {} in any {window}, evenly, but up to {max_delay} later.",
                worst(leaky),
            ),
            format!(
                "The token bucket forwarded {} in one {window}, and the fixed window {}. The sliding log kept to {}, of which up to \
                 {} were within {}.",
                worst(token),
                worst(fixed),
                worst(log),
                grouped(log.largest_burst),
                span(burst_span(limits.period)),
            ),
        ],
        None => vec![format!(
            "\"Worst {window}\" is the most that was forwarded in any {window}, wherever it starts, against a limit of {limit}."
        )],
    }
}
