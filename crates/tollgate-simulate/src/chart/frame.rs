//! What all panels of a chart share: time, scale and grid.

use super::super::limits::Limits;
use super::super::text::to_us;
use super::axis::{TimeTick, value_label, value_ticks};
use super::bins::Bins;
use super::drawing::{Anchor, Drawing, Line, Text};
use super::font::Fonts;
use super::palette::{BASELINE, GRID, INK, LIMIT, MUTED};
use super::scale::{Scale, share};

/// More boundaries than this would be a fence.
const MOST_BOUNDARIES: u64 = 12;

/// What all panels share.
pub(super) struct Frame<'a> {
    pub(super) limits: &'a Limits,
    pub(super) bins: Bins,
    pub(super) scale: Scale,
    /// Whether requests come in a few bursts, each of which is worth a label.
    pub(super) bursts: bool,
    /// Tokens that came in each bin.
    pub(super) offered: Vec<u64>,
    pub(super) ticks: Vec<TimeTick>,
    pub(super) fonts: &'a Fonts,
}

/// Where the bars of a panel are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) left: f32,
    pub(super) right: f32,
    pub(super) top: f32,
    pub(super) bottom: f32,
}

impl Area {
    pub(super) fn height(&self) -> f32 {
        self.bottom - self.top
    }

    /// At a share of the height, from 0 at the bottom to 1.
    pub(super) fn y(&self, share: f32) -> f32 {
        self.bottom - self.height() * share
    }

    pub(super) fn x(&self, bins: &Bins, at_us: u64) -> f32 {
        let along = share(at_us.saturating_sub(bins.start_us), bins.length_us());
        self.left + (self.right - self.left) * along
    }
}

impl Frame<'_> {
    /// Where the fixed window starts anew; nowhere if that is everywhere.
    pub(super) fn boundaries_us(&self) -> impl Iterator<Item = u64> + use<> {
        let window_us = to_us(self.limits.period);
        let first_us = self.bins.start_us.next_multiple_of(window_us);
        let count = (self.bins.end_us().saturating_sub(first_us)).div_ceil(window_us);
        let shown = if count <= MOST_BOUNDARIES { count } else { 0 };
        (0..shown).map(move |i| first_us + i * window_us)
    }

    /// Behind the bars.
    pub(super) fn draw_grid(&self, drawing: &mut Drawing, area: Area) {
        for tick in &self.ticks {
            let x = area.x(&self.bins, tick.at_us);
            drawing.line(Line::solid((x, area.top), (x, area.bottom), GRID));
        }
        for value in value_ticks(self.scale.top) {
            let y = area.y(self.scale.height(value));
            drawing.line(Line::solid((area.left, y), (area.right, y), GRID));
            let text = Text::new(area.left - 10.0, y + 4.0, value_label(value), MUTED);
            drawing.text(text.size(12.0).anchor(Anchor::End));
        }
    }

    /// In front of the bars: the ground they stand on, and the limit.
    pub(super) fn draw_lines(&self, drawing: &mut Drawing, area: Area) {
        let across = |y| ((area.left, y), (area.right, y));
        let (from, to) = across(area.bottom);
        drawing.line(Line::solid(from, to, BASELINE));
        if let Some(height) = self.scale.limit_height {
            let (from, to) = across(area.y(height));
            drawing.line(Line::dashed(from, to, LIMIT));
        }
    }

    pub(super) fn draw_boundaries(&self, drawing: &mut Drawing, area: Area) {
        for at_us in self.boundaries_us() {
            // Just before the bar that starts there.
            let x = area.x(&self.bins, at_us) - 1.5;
            drawing.line(Line::solid((x, area.top), (x, area.bottom + 8.0), MUTED));
        }
    }

    /// Under the last panel.
    pub(super) fn draw_time_axis(&self, drawing: &mut Drawing, area: Area) {
        for tick in &self.ticks {
            let x = area.x(&self.bins, tick.at_us);
            drawing.line(Line::solid((x, area.bottom), (x, area.bottom + 5.0), INK));
            let text = Text::new(x, area.bottom + 22.0, &tick.label, INK);
            drawing.text(text.size(13.0).anchor(Anchor::Middle));
        }
    }
}
