//! Everything that was measured, and the goals.

use crate::figures::{Ratio, Share};
use crate::outage::Outage;
use crate::phase::Phase;

/// A figure of the last line and its goal.
#[derive(Clone, Debug)]
pub(crate) struct Goal {
    pub(crate) name: &'static str,
    /// `-` if it was not measured.
    pub(crate) value: String,
    pub(crate) goal: &'static str,
    /// `None` if it was not measured.
    pub(crate) is_met: Option<bool>,
}

/// What was measured so far.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) phases: Vec<Phase>,
    pub(crate) saturated: Option<Share>,
    pub(crate) paced: Option<Share>,
    pub(crate) redis_pauses: Option<Share>,
    pub(crate) own_stalls: Option<Share>,
    /// Of all phases before the outage.
    pub(crate) openings: Option<u64>,
    pub(crate) outage: Option<Outage>,
    pub(crate) four_gateways: Option<Ratio>,
    pub(crate) envoy: Option<Ratio>,
}

impl Outcome {
    /// Figures and goals in the order of the last line.
    pub(crate) fn goals(&self) -> [Goal; 9] {
        let open_ms = self.outage.map(Outage::open_ms);
        let back_ms = self.outage.map(Outage::back_ms);
        let share = |name, goal, value: Option<Share>, ten_thousandths| {
            let is_met = value.map(|share| share.is_at_least(ten_thousandths));
            Goal::new(name, goal, value, is_met)
        };
        let time = |name, value: Option<u128>| {
            Goal::new(name, "≤ 1000", value, value.map(|ms| ms <= 1_000))
        };
        let ratio = |name, value: Option<Ratio>| {
            Goal::new(name, "≤ 1.00", value, value.map(Ratio::is_at_most_one))
        };
        let openings = self.openings;
        [
            share("saturated", "≥ 0.999", self.saturated, 9_990),
            share("paced", "≥ 0.9999", self.paced, 9_999),
            share("redis_pauses", "≥ 0.95", self.redis_pauses, 9_500),
            share("own_stalls", "≥ 0.98", self.own_stalls, 9_800),
            Goal::new("openings", "0", openings, openings.map(|count| count == 0)),
            time("outage_open_ms", open_ms),
            time("back_ms", back_ms),
            ratio("four_gateways", self.four_gateways),
            ratio("envoy", self.envoy),
        ]
    }

    /// The last line: what to compare from run to run.
    pub(crate) fn summary(&self) -> String {
        let figures = self.goals();
        let figures = figures.map(|goal| format!("{}={}", goal.name, goal.value));
        format!("steady: {}", figures.join(" "))
    }

    /// Whether all goals that were measured are met, and the referee agrees with every phase.
    pub(crate) fn is_success(&self) -> bool {
        let is_missed = |goal: &Goal| goal.is_met == Some(false);
        let is_fair = |phase: &Phase| phase.verdict.is_within_bound();
        !self.goals().iter().any(is_missed) && self.phases.iter().all(is_fair)
    }
}

impl Goal {
    fn new(
        name: &'static str,
        goal: &'static str,
        value: Option<impl ToString>,
        is_met: Option<bool>,
    ) -> Self {
        let value = value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        Self {
            name,
            value,
            goal,
            is_met,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_has_a_dash_for_what_was_not_measured() {
        let outcome = Outcome {
            saturated: Some(Share {
                by_store: 9_985,
                decisions: 10_000,
            }),
            openings: Some(0),
            ..Outcome::default()
        };
        assert_eq!(
            outcome.summary(),
            "steady: saturated=0.9985 paced=- redis_pauses=- own_stalls=- openings=0 \
             outage_open_ms=- back_ms=- four_gateways=- envoy=-"
        );
        assert!(!outcome.is_success(), "0.9985 is less than 0.999");
        assert!(Outcome::default().is_success());
    }
}
