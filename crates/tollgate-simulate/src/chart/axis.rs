//! The axes of a chart: equal pieces of time and what happened in each, the height of bars and of the limit, which is the same in
//! all panels, and the positions and labels of ticks.

use std::ops::Range;
use std::time::Duration;

use jiff::Timestamp;

use super::super::run::{Admission, Limits};
use super::super::scenario::Arrival;
use super::super::text::{decimal, grouped, span_name, to_f64, to_us};

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

/// A range of time in equal pieces that start at round times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bins {
    pub(super) start_us: u64,
    pub(super) width_us: u64,
    pub(super) count: u64,
}

impl Bins {
    /// Pieces of a round length that cover this range: at most `max`.
    pub(super) fn covering(range_us: &Range<u64>, max: u64) -> Self {
        let length_us = range_us.end.saturating_sub(range_us.start).max(1);
        // One more may be needed, because pieces start at round times.
        let width_us = round_spans().find(|us| length_us.div_ceil(*us) < max);
        let width_us = width_us.unwrap_or(length_us.div_ceil(max));
        let start_us = range_us.start - range_us.start % width_us;
        Self {
            start_us,
            width_us,
            count: (range_us.end.max(start_us + 1) - start_us).div_ceil(width_us),
        }
    }

    pub(super) fn width(&self) -> Duration {
        Duration::from_micros(self.width_us)
    }

    pub(super) fn length_us(&self) -> u64 {
        self.width_us * self.count
    }

    pub(super) fn end_us(&self) -> u64 {
        self.start_us + self.length_us()
    }

    /// Tokens that arrived in each piece.
    pub(super) fn offered(&self, arrivals: &[Arrival]) -> Vec<u64> {
        self.sum(arrivals.iter().map(|a| (a.at_us, a.cost)))
    }

    /// Tokens that arrived in each piece and were admitted.
    pub(super) fn admitted(&self, admissions: &[Admission]) -> Vec<u64> {
        self.sum(admissions.iter().map(|a| (a.arrived_us, a.cost)))
    }

    /// Tokens that were forwarded in each piece.
    pub(super) fn forwarded(&self, admissions: &[Admission]) -> Vec<u64> {
        self.sum(admissions.iter().map(|a| (a.forwarded_us, a.cost)))
    }

    fn sum(&self, costs: impl Iterator<Item = (u64, u64)>) -> Vec<u64> {
        let mut sums: Vec<u64> = (0..self.count).map(|_| 0).collect();
        for (at_us, cost) in costs {
            let since_us = at_us.checked_sub(self.start_us);
            let bin = since_us.and_then(|us| usize::try_from(us / self.width_us).ok());
            if let Some(sum) = bin.and_then(|bin| sums.get_mut(bin)) {
                *sum += cost;
            }
        }
        sums
    }
}

/// Round spans from a microsecond to years, in microseconds.
pub(super) fn round_spans() -> impl Iterator<Item = u64> {
    const SECOND: u64 = 1_000_000;
    const DAY: u64 = 86_400 * SECOND;
    let round = |powers: Range<u32>| {
        let powers = powers.map(|power| 10_u64.pow(power));
        powers.flat_map(|ten| [ten, 2 * ten, 5 * ten])
    };
    let clock = [
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    ];
    let seconds = clock.map(|seconds| seconds * SECOND);
    let days = round(0..5).map(|days| days * DAY);
    round(0..6).chain(seconds).chain(days)
}

/// Bars are cut off at this many times the limit, so that admitted requests remain visible beside them.
const CUT_AT: u64 = 6;

/// A limit of more than this many times the highest bar is left out, so that the bars remain visible.
const FAR_ABOVE: u64 = 8;

/// The vertical scale.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    /// The value at the upper edge.
    pub(super) top: u64,
    /// The position of the dashed line, from 0 to 1, if it is drawn.
    pub(super) limit_height: Option<f32>,
    /// The meaning of the line.
    pub(super) limit_label: String,
    /// The highest bar.
    pub(super) peak: u64,
}

impl Scale {
    /// Compares a few bursts with what a window allows, and steady traffic with what the rate allows per bar.
    pub(super) fn of(offered: &[u64], bins: &Bins, limits: &Limits, bursts: bool) -> Self {
        let peak = offered.iter().copied().max().unwrap_or(0);
        let window_us = match bursts {
            true => bins.width_us,
            false => to_us(limits.period),
        };
        let exact = to_f64(limits.count) * to_f64(bins.width_us) / to_f64(window_us);
        // The same as a whole number, to compare it with whole numbers.
        let product = u128::from(limits.count) * u128::from(bins.width_us);
        let limit = u64::try_from(product.div_ceil(u128::from(window_us))).unwrap_or(u64::MAX);

        let (count, period) = (grouped(limits.count), span_name(limits.period));
        let mut limit_label = format!("limit: {count} per {period}");
        if window_us != bins.width_us && !bursts {
            let per_bar = match limit < 1_000 {
                true => decimal(exact),
                false => grouped(limit),
            };
            limit_label += &format!(", {per_bar} per bar");
        }
        let highest = peak.saturating_mul(FAR_ABOVE).max(1);
        let (top, limit_height) = if limit > highest {
            limit_label += " (far above)";
            (peak.max(1), None)
        } else {
            let top = peak.clamp(limit, limit.saturating_mul(CUT_AT));
            (top, Some(fraction(exact / to_f64(top))))
        };
        Self {
            top,
            limit_height,
            limit_label,
            peak,
        }
    }

    /// The height of a bar, from 0 to 1.
    pub(super) fn height(&self, value: u64) -> f32 {
        share(value.min(self.top), self.top)
    }

    pub(super) fn cuts(&self, value: u64) -> bool {
        value > self.top
    }
}

pub(super) fn share(part: u64, whole: u64) -> f32 {
    fraction(to_f64(part) / to_f64(whole.max(1)))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a position in a picture, where a thousandth of a pixel does not matter"
)]
fn fraction(exact: f64) -> f32 {
    exact as f32
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

    const MAX: u64 = 125;

    #[test]
    fn pieces_are_round_and_cover_everything() {
        for (start_us, end_us, width_us) in [
            (0, 5_000_000, 50_000),
            (999, 10_501_000, 100_000),
            (1_767_610_800_000_000, 1_767_697_200_000_000, 900_000_000),
            (7, 7, 1),
            (0, 1 << 52, 36_525 * 86_400_000_000 / 100),
        ] {
            let bins = Bins::covering(&(start_us..end_us), MAX);
            assert!(
                bins.start_us <= start_us && bins.end_us() >= end_us,
                "{bins:?}"
            );
            assert!((1..=MAX).contains(&bins.count), "{bins:?}");
            assert!(bins.width_us <= width_us * 10 && bins.start_us.is_multiple_of(bins.width_us));
        }
        assert_eq!(Bins::covering(&(0..5_000_000), MAX).width_us, 50_000);
        assert_eq!(Bins::covering(&(0..62_000_000), MAX).width_us, 500_000);
    }

    #[test]
    fn tokens_are_counted_at_arrival_and_at_forwarding() {
        let bins = Bins {
            start_us: 100,
            width_us: 10,
            count: 3,
        };
        let admissions = [
            Admission {
                arrived_us: 100,
                forwarded_us: 119,
                cost: 2,
            },
            Admission {
                arrived_us: 109,
                forwarded_us: 120,
                cost: 3,
            },
            Admission {
                arrived_us: 99,
                forwarded_us: 130,
                cost: 7,
            },
        ];
        assert_eq!(bins.admitted(&admissions), [5, 0, 0]);
        assert_eq!(bins.forwarded(&admissions), [0, 2, 3]);
    }

    fn scale(offered: &[u64], bin_us: u64, limit: &str, bursts: bool) -> Scale {
        let bins = Bins {
            start_us: 0,
            width_us: bin_us,
            count: offered.len() as u64,
        };
        let limits = Limits::derived_from(limit.parse().unwrap()).unwrap();
        Scale::of(offered, &bins, &limits, bursts)
    }

    fn near(a: f32, b: f32) -> bool {
        (a - b).abs() < 1e-6
    }

    fn limit_is_at(scale: &Scale, height: f32) -> bool {
        scale.limit_height.is_some_and(|at| near(at, height))
    }

    #[test]
    fn steady_traffic_is_compared_with_the_rate_and_cut_off() {
        let scale = scale(&[10_000; 50], 50_000, "3000/s", false);
        assert_eq!(scale.top, 900);
        assert!(limit_is_at(&scale, 1.0 / 6.0));
        assert_eq!(scale.limit_label, "limit: 3,000 per second, 150 per bar");
        assert!(scale.cuts(10_000) && !scale.cuts(900));
        assert!(near(scale.height(450), 0.5));
    }

    #[test]
    fn a_rate_below_one_per_bar_is_drawn_exactly() {
        let scale = scale(&[1; 50], 50_000, "10/s", false);
        assert_eq!(scale.top, 1);
        assert!(limit_is_at(&scale, 0.5));
        assert_eq!(scale.limit_label, "limit: 10 per second, 0.5 per bar");
    }

    #[test]
    fn a_few_bursts_are_compared_with_the_window() {
        let mut offered = [0; 100];
        (offered[20], offered[60]) = (200, 200);
        let scale = scale(&offered, 50_000, "200/min", true);
        assert_eq!(scale.top, 200);
        assert!(limit_is_at(&scale, 1.0));
        assert_eq!(scale.limit_label, "limit: 200 per minute");
    }

    #[test]
    fn a_limit_far_above_leaves_the_bars_visible() {
        let scale = scale(&[5; 50], 1_000_000, "7/ms", false);
        assert_eq!((scale.top, scale.limit_height), (5, None));
        assert_eq!(
            scale.limit_label,
            "limit: 7 per millisecond, 7,000 per bar (far above)"
        );
    }
}
