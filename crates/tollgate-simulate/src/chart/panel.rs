//! One algorithm's part of a chart: its heading, its bars, and its figures beside them.

use tollgate::Algorithm;

use super::super::figures::Outcome;
use super::super::limits::Limits;
use super::super::text::{delay, grouped, percent, span_name};
use super::drawing::{Anchor, Drawing, Text};
use super::frame::{ALARM, Area, DENIED, Frame, INK, MUTED, PAPER, colour_of, queued};

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
    let end = drawing.text(name.size(17.0).medium());
    drawing.text(Text::new(end + 12.0, y, allows, MUTED));
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
            drawing.text(label);
        }
    }
}

fn draw_figures(drawing: &mut Drawing, limits: &Limits, area: Area, outcome: &Outcome) {
    let figures = &outcome.figures;
    let (x, y) = (area.right + 36.0, area.top + 8.0);
    let admitted = Text::new(x, y, grouped(figures.admitted), INK);
    let end = drawing.text(admitted.size(24.0).medium());
    drawing.text(Text::new(end + 7.0, y, "admitted", MUTED));

    let share = percent(figures.denied, figures.offered);
    let denied = format!("{} denied, {share}", grouped(figures.denied));
    drawing.text(Text::new(x, y + 23.0, denied, MUTED));

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
    drawing.text(worst.medium());

    if let Some(max_delay) = figures.max_delay.filter(|max_delay| !max_delay.is_zero()) {
        let delayed = format!("delayed by up to {}", delay(max_delay));
        drawing.text(Text::new(x, y + 74.0, delayed, MUTED));
    }
}
