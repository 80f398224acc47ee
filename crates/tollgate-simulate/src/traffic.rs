//! What comes in: requests at known times, and what is to be said about them.
//!
//! The rest of the simulation works on this alone; only here a scenario and a CSV differ.

use std::ops::Range;

use super::scenario::Scenario;

/// When a request comes, and what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// In microseconds since the Unix epoch.
    pub(super) at_us: u64,
    /// In tokens, at least 1.
    pub(super) cost: u64,
}

impl Arrival {
    /// A request of cost 1.
    pub(super) fn at_us(at_us: u64) -> Self {
        Self { at_us, cost: 1 }
    }
}

/// The arrivals of one simulation, in the order of time.
#[derive(Debug)]
pub(super) struct Traffic {
    /// What it is called in the output and in file names.
    pub(super) name: String,
    /// One sentence on what it shows.
    pub(super) shows: String,
    /// The scenario it is from; `None` for a CSV.
    pub(super) scenario: Option<Scenario>,
    /// At least one.
    pub(super) arrivals: Vec<Arrival>,
    /// What the arrivals were drawn from, where chance was asked.
    pub(super) seed: Option<u64>,
    /// The part of time worth drawing; all of it if not said.
    pub(super) view_us: Option<Range<u64>>,
    /// Whether times are told by the clock (10:59:58) or from the start (2 s).
    pub(super) by_the_clock: bool,
}

impl Traffic {
    /// The traffic of a built-in scenario.
    pub(super) fn of(scenario: Scenario, seed: Option<u64>) -> Self {
        let seed = scenario.seed(seed);
        let arrivals = scenario.arrivals_us(seed).into_iter();
        Self {
            name: scenario.name().to_owned(),
            shows: scenario.shows().to_owned(),
            scenario: Some(scenario),
            arrivals: arrivals.map(Arrival::at_us).collect(),
            seed,
            view_us: scenario.view_us(),
            by_the_clock: scenario == Scenario::Boundary,
        }
    }

    /// What all requests cost together.
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

    /// From the first arrival to the last.
    pub(super) fn span_us(&self) -> Range<u64> {
        let first_us = self.arrivals.first().map_or(0, |arrival| arrival.at_us);
        let last_us = self
            .arrivals
            .last()
            .map_or(first_us, |arrival| arrival.at_us);
        first_us..last_us
    }
}
