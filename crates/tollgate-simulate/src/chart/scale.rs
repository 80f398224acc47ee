//! The height of bars, and the limit that they are compared with. The same in all panels.

use super::super::limits::Limits;
use super::super::text::{decimal, grouped, span_name, to_f64, to_us};
use super::bins::Bins;

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
