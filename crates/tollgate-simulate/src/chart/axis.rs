//! Where to put ticks, and what to write at them.

use super::super::text::grouped;
use super::bins::{Bins, round_spans};

/// Ticks along the time axis: not so many that labels touch. Times of day are longer.
const MOST_TICKS: u64 = 12;
const MOST_CLOCK_TICKS: u64 = 8;

/// A mark on the time axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TimeTick {
    pub(super) at_us: u64,
    pub(super) label: String,
}

/// Marks at round times, told by the clock (UTC) or from `zero_us`.
pub(super) fn time_ticks(bins: &Bins, by_the_clock: bool, zero_us: u64) -> Vec<TimeTick> {
    let most = if by_the_clock {
        MOST_CLOCK_TICKS
    } else {
        MOST_TICKS
    };
    let apart_us = round_spans().find(|us| bins.length_us() / us <= most);
    let apart_us = apart_us.unwrap_or(bins.length_us()).max(1);
    let origin_us = if by_the_clock { 0 } else { zero_us };
    let before_us = bins.start_us.saturating_sub(origin_us);
    let first_us = origin_us + before_us.next_multiple_of(apart_us);
    let label = |at_us: u64| match by_the_clock {
        true => clock_label(at_us, apart_us),
        false => seconds_label(at_us - origin_us, apart_us),
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

/// `10:59:58`, with as many decimals as the ticks are apart; from a day on, the day of the year as well.
fn clock_label(at_us: u64, apart_us: u64) -> String {
    let seconds = at_us / 1_000_000;
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    if apart_us.is_multiple_of(86_400_000_000) {
        return date_label(seconds / 86_400);
    }
    let decimals = decimals(at_us % 1_000_000, apart_us);
    format!("{hour:02}:{minute:02}:{second:02}{decimals}")
}

/// `4 s`, `0.25 s`; long times in minutes, hours or days.
fn seconds_label(since_us: u64, apart_us: u64) -> String {
    for (unit, us) in [
        ("d", 86_400_000_000),
        ("h", 3_600_000_000),
        ("min", 60_000_000),
    ] {
        if apart_us.is_multiple_of(us) {
            return format!("{} {unit}", grouped(since_us / us));
        }
    }
    let (whole, decimals) = (
        since_us / 1_000_000,
        decimals(since_us % 1_000_000, apart_us),
    );
    format!("{whole}{decimals} s")
}

/// The part below a second, with as many digits as the ticks need to differ.
fn decimals(us: u64, apart_us: u64) -> String {
    let digits = (0..6)
        .find(|digits| apart_us.is_multiple_of(10_u64.pow(6 - digits)))
        .unwrap_or(6);
    match digits {
        0 => String::new(),
        _ => format!(
            ".{:0width$}",
            us / 10_u64.pow(6 - digits),
            width = digits as usize
        ),
    }
}

/// `2026-01-05` of the days since the epoch (Howard Hinnant's civil_from_days).
fn date_label(days: u64) -> String {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

/// Two or three round values from 0 up to `top`.
pub(super) fn value_ticks(top: u64) -> Vec<u64> {
    let round = (0..19)
        .map(|power| 10_u64.pow(power))
        .flat_map(|ten| [ten, 2 * ten, 5 * ten]);
    let apart = round
        .into_iter()
        .find(|apart| top / apart <= 3)
        .unwrap_or(top)
        .max(1);
    (0..=top / apart).map(|i| i * apart).collect()
}

/// A value at its tick: `1,500`, `2.5M`.
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
    fn times_of_day_are_told_by_the_clock() {
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
    }

    #[test]
    fn days_are_told_as_dates() {
        assert_eq!(date_label(20_458), "2026-01-05");
        assert_eq!(date_label(11_016), "2000-02-29");
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
