//! The positions and labels of ticks.

use jiff::Timestamp;

use super::super::text::{grouped, to_f64};
use super::bins::{Bins, round_spans};

/// Maximum number of ticks on the time axis, so that labels do not touch. Times of day are longer.
const MAX_TICKS: u64 = 12;
const MAX_CLOCK_TICKS: u64 = 8;

const DAY_US: u64 = 86_400_000_000;

/// A mark on the time axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TimeTick {
    pub(super) at_us: u64,
    pub(super) label: String,
}

/// Ticks at round times: of the clock (UTC), or since `zero_us`.
pub(super) fn time_ticks(bins: &Bins, by_the_clock: bool, zero_us: u64) -> Vec<TimeTick> {
    let (max, origin_us) = match by_the_clock {
        true => (MAX_CLOCK_TICKS, 0),
        false => (MAX_TICKS, zero_us),
    };
    let apart_us = round_spans().find(|us| bins.length_us() / us <= max);
    let apart_us = apart_us.unwrap_or(bins.length_us()).max(1);
    let before_us = bins.start_us.saturating_sub(origin_us);
    let first_us = origin_us + before_us.next_multiple_of(apart_us);
    let label = |at_us: u64| match by_the_clock {
        true => clock_label(at_us, apart_us),
        false => elapsed_label(at_us - origin_us, apart_us),
    };
    (0..=bins.length_us() / apart_us)
        .map(|i| first_us + i * apart_us)
        .filter(|at_us| *at_us <= bins.end_us())
        .map(|at_us| TimeTick {
            at_us,
            label: label(at_us),
        })
        .collect()
}

/// `10:59:58`, or `2026-01-05` for ticks that are days apart.
fn clock_label(at_us: u64, apart_us: u64) -> String {
    let at = Timestamp::from_microsecond(at_us.cast_signed()).unwrap_or_default();
    let format = match (apart_us.is_multiple_of(DAY_US), decimals(apart_us)) {
        (true, _) => "%F".to_owned(),
        (false, 0) => "%T".to_owned(),
        (false, decimals) => format!("%T%.{decimals}f"),
    };
    at.strftime(&format).to_string()
}

/// `4 s`, `0.25 s`; long times in minutes, hours or days.
fn elapsed_label(since_us: u64, apart_us: u64) -> String {
    let units = [("d", DAY_US), ("h", DAY_US / 24), ("min", 60_000_000)];
    match units
        .into_iter()
        .find(|(_, us)| apart_us.is_multiple_of(*us))
    {
        Some((unit, us)) => format!("{} {unit}", grouped(since_us / us)),
        None => format!("{:.*} s", decimals(apart_us), to_f64(since_us) / 1e6),
    }
}

/// The decimals of a second by which ticks differ.
fn decimals(apart_us: u64) -> usize {
    let is_enough = |decimals: &u32| apart_us.is_multiple_of(10_u64.pow(6 - decimals));
    (0..6).find(is_enough).unwrap_or(6) as usize
}

/// Two or three round values from 0 to `top`.
pub(super) fn value_ticks(top: u64) -> Vec<u64> {
    let powers = (0..19).map(|power| 10_u64.pow(power));
    let mut round = powers.flat_map(|ten| [ten, 2 * ten, 5 * ten]);
    let apart = round.find(|apart| top / apart <= 3).unwrap_or(top).max(1);
    (0..=top / apart).map(|i| i * apart).collect()
}

/// The label of a value: `1,500`, `25M`.
pub(super) fn value_label(value: u64) -> String {
    match value {
        0..1_000_000 => grouped(value),
        _ => format!("{}M", grouped(value / 1_000_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(bins: &Bins, by_the_clock: bool) -> Vec<String> {
        let ticks = time_ticks(bins, by_the_clock, bins.start_us);
        ticks.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn times_of_day_are_clock_times() {
        let eleven_us = 1_767_610_800_000_000;
        let bins = Bins::covering(&(eleven_us - 2_000_000..eleven_us + 1_000_000), 100);
        let labels = labels(&bins, true);
        assert_eq!(labels.first().unwrap(), "10:59:58.0");
        assert_eq!(labels.last().unwrap(), "11:00:01.0");
    }

    #[test]
    fn other_times_are_counted_from_the_start() {
        let bins = Bins::covering(&(0..10_000_000), 100);
        assert_eq!(
            labels(&bins, false),
            [
                "0 s", "1 s", "2 s", "3 s", "4 s", "5 s", "6 s", "7 s", "8 s", "9 s", "10 s"
            ]
        );
        let bins = Bins::covering(&(7_000..7_250), 100);
        assert_eq!(labels(&bins, false)[1], "0.00002 s");
        let bins = Bins::covering(&(0..7_200_000_000), 100);
        assert_eq!(labels(&bins, false)[1], "10 min");
    }

    #[test]
    fn days_are_dates() {
        assert_eq!(clock_label(20_458 * DAY_US, DAY_US), "2026-01-05");
        assert_eq!(clock_label(11_016 * DAY_US, 7 * DAY_US), "2000-02-29");
        assert_eq!(clock_label(11_016 * DAY_US, DAY_US / 24), "00:00:00");
    }

    #[test]
    fn values_have_few_round_ticks() {
        assert_eq!(value_ticks(200), [0, 100, 200]);
        assert_eq!(value_ticks(20), [0, 10, 20]);
        assert_eq!(value_ticks(900), [0, 500]);
        assert_eq!(value_ticks(1), [0, 1]);
        assert_eq!(value_ticks(0), [0]);
        assert_eq!(value_label(25_000_000), "25M");
    }
}
