//! One algorithm's part of a chart: its heading, its bars, and its figures beside them; and the frame that all share.

use tollgate::Algorithm;

use super::super::figures::Outcome;
use super::super::run::Limits;
use super::super::text::{delay, grouped, percent, span_name, to_us};
use super::axis::{Bins, Scale, TimeTick, share, value_label, value_ticks};
use super::drawing::{Anchor, Colour, Drawing, Text};

/// From the heading to the upper edge of the bars: room for labels.
const HEADROOM: f32 = 26.0;

/// Between wide bars.
const GAP: f32 = 0.6;

/// Minimum height of a bar, so that it can be seen.
const MIN_HEIGHT: f32 = 1.5;

pub(super) fn draw(drawing: &mut Drawing, frame: &Frame<'_>, area: Area, outcome: &Outcome) {
    draw_heading(drawing, frame.limits, area, outcome);
    frame.draw_grid(drawing, area);
    draw_bars(drawing, frame, area, outcome);
    if outcome.limit.algorithm() == Algorithm::FixedWindow {
        frame.draw_boundaries(drawing, area);
    }
    frame.draw_lines(drawing, area);
    draw_figures(drawing, frame.limits, area, outcome);
}

fn draw_heading(drawing: &mut Drawing, limits: &Limits, area: Area, outcome: &Outcome) {
    let algorithm = outcome.limit.algorithm();
    let (count, period) = (grouped(limits.count), span_name(limits.period));
    let capacity = grouped(outcome.limit.capacity());
    let (name, allows) = match algorithm {
        Algorithm::TokenBucket => (
            "Token bucket",
            format!("{count} per {period}, bursts of {capacity}"),
        ),
        Algorithm::LeakyBucket => (
            "Leaky bucket",
            format!("drains {count} per {period}, queue of {capacity}"),
        ),
        Algorithm::FixedWindow => (
            "Fixed window",
            format!("{count} in each {period} of the clock"),
        ),
        Algorithm::SlidingLog => (
            "Sliding log",
            format!("{count} in any {period}, every request remembered"),
        ),
        _ => (
            "Sliding counter",
            format!("{count} in about any {period}, from two counts"),
        ),
    };
    let y = area.top - HEADROOM;
    let name = Text::new(area.left, y, name, colour_of(algorithm));
    let end = drawing.text(&name.size(17.0).medium());
    drawing.text(&Text::new(end + 12.0, y, allows, MUTED));
}

/// Draws a bar per bin: what was offered, admitted and forwarded.
fn draw_bars(drawing: &mut Drawing, frame: &Frame<'_>, area: Area, outcome: &Outcome) {
    let colour = colour_of(outcome.limit.algorithm());
    let bins = &frame.bins;
    let admitted = bins.admitted(&outcome.admissions).into_iter();
    let forwarded = bins.forwarded(&outcome.admissions).into_iter();
    let bars = frame.offered.iter().zip(admitted.zip(forwarded));
    let mut free_from = area.left;
    for (nth, (&offered, (admitted, forwarded))) in (0..).zip(bars) {
        let start_us = bins.start_us + nth * bins.width_us;
        let x = area.x(bins, start_us);
        let pitch = area.x(bins, start_us + bins.width_us) - x;
        let width = if pitch > 4.0 { pitch - GAP } else { pitch };
        // Each covers the one before: what remains visible of the first is what was denied.
        let layers = [
            (offered, DENIED),
            (admitted, queued(colour)),
            (forwarded, colour),
        ];
        for (value, fill) in layers.into_iter().filter(|(value, _)| *value > 0) {
            let height = (frame.scale.height(value) * area.height()).max(MIN_HEIGHT);
            drawing.rect((x, area.bottom - height), (width, height), fill);
        }
        let is_cut = frame.scale.cuts(forwarded);
        if is_cut {
            // A gap across the bar shows that it continues.
            drawing.rect((x - 1.0, area.top + 8.0), (width + 2.0, 3.0), PAPER);
        }
        let (label, colour) = match frame.bursts && offered > 0 {
            true => (
                format!("{} of {}", grouped(admitted), grouped(offered)),
                INK,
            ),
            false if is_cut => (grouped(forwarded), colour),
            false => continue,
        };
        let mut label = Text::new(x + width / 2.0, area.top - 6.0, label, colour);
        label = label.size(12.0).medium().anchor(Anchor::Middle);
        let half = drawing.fonts.width(&label) / 2.0;
        label.x = label.x.min(area.right - half).max(area.left + half);
        // A label that would overlap the one before is left out.
        if label.x - half >= free_from {
            free_from = label.x + half + 3.0;
            drawing.text(&label);
        }
    }
}

fn draw_figures(drawing: &mut Drawing, limits: &Limits, area: Area, outcome: &Outcome) {
    let figures = &outcome.figures;
    let (x, y) = (area.right + 36.0, area.top + 8.0);
    let admitted = Text::new(x, y, grouped(figures.admitted), INK);
    let end = drawing.text(&admitted.size(24.0).medium());
    drawing.text(&Text::new(end + 7.0, y, "admitted", MUTED));

    let share = percent(figures.denied, figures.offered);
    let denied = format!("{} denied, {share}", grouped(figures.denied));
    drawing.text(&Text::new(x, y + 23.0, denied, MUTED));

    let (worst, window) = (grouped(figures.worst_window), span_name(limits.period));
    let colour = match figures.worst_window > limits.count {
        true => ALARM,
        false => INK,
    };
    let worst = Text::new(
        x,
        y + 53.0,
        format!("{worst} in the worst {window}"),
        colour,
    );
    drawing.text(&worst.medium());

    if let Some(max_delay) = figures.max_delay.filter(|max_delay| !max_delay.is_zero()) {
        let delayed = format!("delayed by up to {}", delay(max_delay));
        drawing.text(&Text::new(x, y + 74.0, delayed, MUTED));
    }
}

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
            drawing.text(&text.size(12.0).anchor(Anchor::End));
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
            drawing.text(&text.size(13.0).anchor(Anchor::Middle));
        }
    }
}
