//! The requests of a simulation. Only here scenarios and CSV files differ.

use std::ops::Range;

use super::scenario::Scenario;

/// The time and cost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// In microseconds since the Unix epoch.
    pub(super) at_us: u64,
    /// In tokens, at least 1.
    pub(super) cost: u64,
}

/// All requests of a simulation.
#[derive(Debug)]
pub(super) struct Traffic {
    /// Its name in the output and in file names.
    pub(super) name: String,
    /// One sentence on what it shows.
    pub(super) title: String,
    /// `None` for a CSV file.
    pub(super) scenario: Option<Scenario>,
    /// Sorted by time. At least one.
    pub(super) arrivals: Vec<Arrival>,
    /// `None` if the arrivals are not random.
    pub(super) seed: Option<u64>,
    /// The part of time to draw; `None` for all of it.
    pub(super) view_us: Option<Range<u64>>,
    /// Whether to show times of day (10:59:58) or times since the start (2 s).
    pub(super) by_the_clock: bool,
}

impl Traffic {
    pub(super) fn of(scenario: Scenario, seed: Option<u64>) -> Self {
        let seed = scenario.seed(seed);
        let arrivals_us = scenario.arrivals_us(seed).into_iter();
        Self {
            name: scenario.name(),
            title: scenario.title().to_owned(),
            scenario: Some(scenario),
            arrivals: (arrivals_us.map(|at_us| Arrival { at_us, cost: 1 })).collect(),
            seed,
            view_us: scenario.view_us(),
            by_the_clock: scenario == Scenario::Boundary,
        }
    }

    pub(super) fn total_cost(&self) -> u64 {
        self.arrivals.iter().map(|arrival| arrival.cost).sum()
    }

    /// What is counted: requests, unless some cost more than others.
    pub(super) fn unit(&self) -> &'static str {
        match self.arrivals.iter().all(|arrival| arrival.cost == 1) {
            true => "requests",
            false => "tokens",
        }
    }

    pub(super) fn span_us(&self) -> Range<u64> {
        let at_us = |arrival: Option<&Arrival>| arrival.map_or(0, |arrival| arrival.at_us);
        at_us(self.arrivals.first())..at_us(self.arrivals.last())
    }
}
