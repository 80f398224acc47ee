//! The built-in scenarios: which requests arrive when, and the limit they meet.
//!
//! They know nothing of algorithms or of results. Only in [`Traffic`], scenarios and CSV files differ.

use std::ops::Range;

use clap::ValueEnum;
use tollgate::{Limit, LimitError};

const SECOND_US: u64 = 1_000_000;
const MINUTE_US: u64 = 60 * SECOND_US;

/// 2026-01-05 11:00:00 UTC, a Monday: every window up to an hour starts here.
const ELEVEN_US: u64 = 1_767_610_800 * SECOND_US;

/// Arrivals that show something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Two bursts of 200, two seconds before a full minute and right at it, against 200/min: what a fixed window
    /// admits across its boundary.
    Boundary,
    /// Bursts of 20 with growing pauses between them, against 10/s burst 10: idle time earns at most the capacity.
    BurstIdle,
    /// 50 requests a second, then ten times as many for 20 s, then 50 again, against 100/s burst 200: which algorithms
    /// keep serving, and how evenly.
    Surge,
    /// 50,000 drivers reconnect and send 300,000 buffered location updates within three seconds, against 3,000/s queue
    /// 5,000: only the leaky bucket forwards them evenly.
    Drivers,
}

impl Scenario {
    /// The name on the command line.
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The limit that it meets unless another is given.
    pub(super) fn limit(self) -> Result<Limit, LimitError> {
        match self {
            Self::Boundary => "200/min burst 200".parse(),
            Self::BurstIdle => "10/s burst 10".parse(),
            Self::Surge => "100/s burst 200".parse(),
            Self::Drivers => "3000/s queue 5000".parse(),
        }
    }

    /// The seed of its arrivals, if they are random.
    pub(super) fn seed(self, other: Option<u64>) -> Option<u64> {
        matches!(self, Self::Surge | Self::Drivers).then_some(other.unwrap_or(1))
    }

    pub(super) fn arrivals_us(self, seed: Option<u64>) -> Vec<u64> {
        let random = Random(seed.unwrap_or_default());
        match self {
            Self::Boundary => boundary(),
            Self::BurstIdle => burst_idle(),
            Self::Surge => surge(random),
            Self::Drivers => drivers(random),
        }
    }

    /// What it shows, as a title.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Boundary => {
                "Two bursts of 200, two seconds apart, on either side of a full minute"
            }
            Self::BurstIdle => {
                "Bursts of 20 after ever longer pauses: idle time earns at most the capacity"
            }
            Self::Surge => "50 requests a second, then 500 for twenty seconds, then 50 again",
            Self::Drivers => {
                "50,000 drivers reconnect and send 300,000 buffered updates within three seconds"
            }
        }
    }

    /// The part of time to draw, if there are long gaps.
    pub(super) fn view_us(self) -> Option<Range<u64>> {
        match self {
            Self::Boundary => Some(ELEVEN_US - 3 * SECOND_US..ELEVEN_US + 2 * SECOND_US),
            Self::BurstIdle => Some(ELEVEN_US - 2 * SECOND_US / 5..ELEVEN_US + 48 * SECOND_US / 5),
            Self::Surge => Some(ELEVEN_US..ELEVEN_US + MINUTE_US + 2 * SECOND_US),
            Self::Drivers => None,
        }
    }
}

fn boundary() -> Vec<u64> {
    // 50,000 a second: 200 requests within 4 ms.
    let burst = |start_us: u64| (0..200).map(move |i| start_us + 20 * i);
    let first = burst(ELEVEN_US - 2 * SECOND_US);
    first.chain(burst(ELEVEN_US)).collect()
}

fn burst_idle() -> Vec<u64> {
    let pauses_us = [0, 600_000, 1_000_000, 1_800_000, 5_000_000];
    let starts_us = pauses_us.into_iter().scan(ELEVEN_US, |now_us, pause_us| {
        *now_us += pause_us;
        Some(*now_us)
    });
    let burst = |start_us| std::iter::repeat_n(start_us, 20);
    starts_us.flat_map(burst).collect()
}

fn surge(mut random: Random) -> Vec<u64> {
    let mut at_us = Vec::with_capacity(13_000);
    for second in 0..60 {
        let about = if (20..40).contains(&second) { 500 } else { 50 };
        // Up to a sixth more or less, because traffic is never quite even.
        let count = about - about / 6 + random.below(about / 3 + 1);
        let start_us = ELEVEN_US + second * SECOND_US;
        at_us.extend((0..count).map(|_| start_us + random.below(SECOND_US)));
    }
    at_us.sort_unstable();
    at_us
}

fn drivers(mut random: Random) -> Vec<u64> {
    const DRIVERS: u64 = 50_000;
    const UPDATES_EACH: u64 = 6;
    const APART_US: u64 = 8_000;
    let mut at_us = Vec::with_capacity(300_000);
    for _ in 0..DRIVERS {
        // The earlier of two draws: most reconnect at once, the last ones later.
        let within_us = 29 * SECOND_US / 10;
        let back_us = ELEVEN_US + random.below(within_us).min(random.below(within_us));
        at_us.extend((0..UPDATES_EACH).map(|i| back_us + i * APART_US));
    }
    at_us.sort_unstable();
    at_us
}

/// Pseudo-random numbers from a seed, the same on every machine: `SplitMix64` (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    /// A number below `end`; 0 if `end` is 0.
    fn below(&mut self, end: u64) -> u64 {
        // The upper half of the product is evenly spread, without a division.
        let product = u128::from(self.next()) * u128::from(end);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals_us(scenario: Scenario) -> Vec<u64> {
        scenario.arrivals_us(scenario.seed(None))
    }

    #[test]
    fn every_scenario_is_sorted_and_has_a_limit_and_a_name() {
        for scenario in Scenario::value_variants() {
            assert!(arrivals_us(*scenario).is_sorted(), "{scenario:?}");
            assert!(scenario.limit().is_ok());
            assert_eq!(Scenario::from_str(&scenario.name(), false), Ok(*scenario));
        }
    }

    #[test]
    fn the_boundary_is_between_the_two_bursts() {
        let arrivals = arrivals_us(Scenario::Boundary);
        let first = arrivals[0] / MINUTE_US;
        assert_eq!(arrivals.len(), 400);
        let before = arrivals.iter().filter(|at_us| *at_us / MINUTE_US == first);
        assert_eq!(before.count(), 200);
    }

    #[test]
    fn all_drivers_are_back_within_three_seconds() {
        let arrivals = arrivals_us(Scenario::Drivers);
        assert_eq!(arrivals.len(), 300_000);
        assert!(arrivals[299_999] - arrivals[0] < 3 * SECOND_US);
    }

    #[test]
    fn the_seed_determines_the_arrivals() {
        let with = |seed| Scenario::Surge.arrivals_us(Some(seed));
        assert_eq!(with(7), with(7));
        assert_ne!(with(7), with(8));
    }

    #[test]
    fn a_seed_gives_the_published_numbers() {
        let mut random = Random(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next()).collect();
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(first, published);
    }

    #[test]
    fn numbers_stay_below_the_end() {
        let mut random = Random(1);
        assert!((0..1_000).all(|_| random.below(10) < 10));
        assert_eq!(random.below(0), 0);
    }
}
