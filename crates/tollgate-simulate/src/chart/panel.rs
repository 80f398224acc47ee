//! One algorithm's part of a chart: its name above the bars, and its figures beside them.

use tollgate::{Algorithm, Limit};

use super::super::figures::Figures;
use super::super::limits::Limits;
use super::super::run::Passage;
use super::super::text::{grouped, percent, span_name, wait};
use super::bars::draw_bars;
use super::drawing::{Drawing, Text, Weight};
use super::frame::{Area, Frame};
use super::palette::{ALARM, INK, MUTED, colour_of, heading};

/// Between the upper edge of the bars and the heading: room for labels.
const HEADROOM: f32 = 26.0;

/// What one algorithm let through.
pub(crate) struct Panel<'a> {
    pub(crate) limit: &'a Limit,
    pub(crate) figures: &'a Figures,
    pub(crate) passages: &'a [Passage],
}

impl Panel<'_> {
    pub(super) fn draw(&self, drawing: &mut Drawing, frame: &Frame<'_>, area: Area) {
        let algorithm = self.limit.algorithm();
        self.draw_heading(drawing, frame, area);
        frame.draw_grid(drawing, area);
        draw_bars(drawing, frame, area, self.passages, colour_of(algorithm));
        if algorithm == Algorithm::FixedWindow {
            frame.draw_boundaries(drawing, area);
        }
        frame.draw_lines(drawing, area);
        self.draw_figures(drawing, frame, area);
    }

    fn draw_heading(&self, drawing: &mut Drawing, frame: &Frame<'_>, area: Area) {
        let algorithm = self.limit.algorithm();
        let y = area.top - HEADROOM;
        let name = Text::new(area.left, y, heading(algorithm), colour_of(algorithm));
        let end = drawing.text_and_end(name.size(17.0).weight(Weight::Medium), frame.fonts);
        drawing.text(Text::new(end + 12.0, y, self.allows(frame.limits), MUTED));
    }

    /// What the limit allows, in words.
    fn allows(&self, limits: &Limits) -> String {
        let (count, period) = (grouped(limits.count), span_name(limits.period));
        let capacity = grouped(self.limit.capacity());
        match self.limit.algorithm() {
            Algorithm::TokenBucket => format!("{count} per {period}, bursts of {capacity}"),
            Algorithm::LeakyBucket => format!("drains {count} per {period}, queue of {capacity}"),
            Algorithm::FixedWindow => format!("{count} in each {period} of the clock"),
            Algorithm::SlidingLog => format!("{count} in any {period}, every request remembered"),
            _ => format!("{count} in about any {period}, from two counts"),
        }
    }

    fn draw_figures(&self, drawing: &mut Drawing, frame: &Frame<'_>, area: Area) {
        let figures = self.figures;
        let (x, y) = (area.right + 36.0, area.top + 8.0);
        let admitted = Text::new(x, y, grouped(figures.admitted.tokens), INK);
        let end = drawing.text_and_end(admitted.size(24.0).weight(Weight::Medium), frame.fonts);
        drawing.text(Text::new(end + 7.0, y, "admitted", MUTED));

        let (denied, offered) = (figures.denied.tokens, figures.offered.tokens);
        let denied = format!("{} denied, {}", grouped(denied), percent(denied, offered));
        drawing.text(Text::new(x, y + 23.0, denied, MUTED));

        let window = span_name(frame.limits.period);
        let worst = format!("{} in the worst {window}", grouped(figures.worst_window));
        let above = figures.worst_window > frame.limits.count;
        let worst = Text::new(x, y + 53.0, worst, if above { ALARM } else { INK });
        drawing.text(worst.weight(Weight::Medium));

        if !figures.delay.max.is_zero() {
            let delay = format!("held back by up to {}", wait(figures.delay.max));
            drawing.text(Text::new(x, y + 74.0, delay, MUTED));
        }
    }
}
