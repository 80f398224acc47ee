//! What all panels of a chart share: time, scale, grid and colours.

use tollgate::Algorithm;

use super::super::limits::Limits;
use super::super::text::to_us;
use super::axis::{TimeTick, value_label, value_ticks};
use super::bins::Bins;
use super::drawing::{Anchor, Colour, Drawing, Text};
use super::scale::{Scale, share};

pub(super) const PAPER: Colour = Colour(0xff, 0xff, 0xff);
pub(super) const INK: Colour = Colour(0x1c, 0x25, 0x30);
pub(super) const MUTED: Colour = Colour(0x66, 0x70, 0x7c);
const GRID: Colour = Colour(0xee, 0xf0, 0xf3);
const BASELINE: Colour = Colour(0xb8, 0xbf, 0xc8);
pub(super) const DENIED: Colour = Colour(0xda, 0xde, 0xe4);
pub(super) const LIMIT: Colour = Colour(0x3d, 0x48, 0x55);
pub(super) const ALARM: Colour = Colour(0xc6, 0x1a, 0x2b);

/// The colour of an algorithm. Most people with a colour vision deficiency can tell them apart.
pub(super) fn colour_of(algorithm: Algorithm) -> Colour {
    match algorithm {
        Algorithm::TokenBucket => Colour(0x2b, 0x6c, 0xd9),
        Algorithm::LeakyBucket => Colour(0x0c, 0x96, 0x86),
        Algorithm::FixedWindow => Colour(0xe6, 0x6a, 0x0c),
        Algorithm::SlidingLog => Colour(0x75, 0x4b, 0xc9),
        Algorithm::SlidingCounter => Colour(0xc0, 0x3b, 0x86),
        _ => INK,
    }
}

/// The colour of queued requests, for the colour of forwarded ones.
pub(super) fn queued(forwarded: Colour) -> Colour {
    forwarded.tint(3)
}

/// Maximum number of window boundaries that are drawn.
const MAX_BOUNDARIES: u64 = 12;

/// What all panels share.
pub(super) struct Frame<'a> {
    pub(super) limits: &'a Limits,
    pub(super) bins: Bins,
    pub(super) scale: Scale,
    /// Whether requests arrive in a few bursts, which get labels.
    pub(super) bursts: bool,
    /// Tokens that arrived in each bin.
    pub(super) offered: Vec<u64>,
    pub(super) ticks: Vec<TimeTick>,
}

/// The area of the bars of a panel.
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

    /// The position of a share of the height, from 0 at the bottom to 1.
    fn y(&self, share: f32) -> f32 {
        self.bottom - self.height() * share
    }

    pub(super) fn x(&self, bins: &Bins, at_us: u64) -> f32 {
        let along = share(at_us.saturating_sub(bins.start_us), bins.length_us());
        self.left + (self.right - self.left) * along
    }
}

impl Frame<'_> {
    /// The times at which the fixed window starts again; none if there are too many.
    pub(super) fn boundaries_us(&self) -> impl Iterator<Item = u64> + use<> {
        let window_us = to_us(self.limits.period);
        let first_us = self.bins.start_us.next_multiple_of(window_us);
        let count = (self.bins.end_us().saturating_sub(first_us)).div_ceil(window_us);
        let shown = if count <= MAX_BOUNDARIES { count } else { 0 };
        (0..shown).map(move |i| first_us + i * window_us)
    }

    /// Drawn behind the bars.
    pub(super) fn draw_grid(&self, drawing: &mut Drawing, area: Area) {
        for tick in &self.ticks {
            let x = area.x(&self.bins, tick.at_us);
            drawing.line((x, area.top), (x, area.bottom), GRID);
        }
        for value in value_ticks(self.scale.top) {
            let y = area.y(self.scale.height(value));
            drawing.line((area.left, y), (area.right, y), GRID);
            let text = Text::new(area.left - 10.0, y + 4.0, value_label(value), MUTED);
            drawing.text(text.size(12.0).anchor(Anchor::End));
        }
    }

    /// Drawn in front of the bars: the baseline and the limit.
    pub(super) fn draw_lines(&self, drawing: &mut Drawing, area: Area) {
        let (left, right, bottom) = (area.left, area.right, area.bottom);
        drawing.line((left, bottom), (right, bottom), BASELINE);
        if let Some(height) = self.scale.limit_height {
            let y = area.y(height);
            drawing.dashes((left, y), (right, y), LIMIT);
        }
    }

    pub(super) fn draw_boundaries(&self, drawing: &mut Drawing, area: Area) {
        for at_us in self.boundaries_us() {
            // Just before the bar that starts there.
            let x = area.x(&self.bins, at_us) - 1.5;
            drawing.line((x, area.top), (x, area.bottom + 8.0), MUTED);
        }
    }

    /// Drawn below the last panel.
    pub(super) fn draw_time_axis(&self, drawing: &mut Drawing, area: Area) {
        for tick in &self.ticks {
            let x = area.x(&self.bins, tick.at_us);
            drawing.line((x, area.bottom), (x, area.bottom + 5.0), INK);
            let text = Text::new(x, area.bottom + 22.0, &tick.label, INK);
            drawing.text(text.size(13.0).anchor(Anchor::Middle));
        }
    }
}
