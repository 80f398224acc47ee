//! The chart: one panel per algorithm above a shared axis of time.
//!
//! It arranges; what a panel shows is `panel`'s, and how shapes become files is `svg`'s and `png`'s.

mod axis;
mod bars;
mod bins;
mod drawing;
mod error;
mod font;
mod frame;
mod palette;
mod panel;
mod png;
mod scale;
mod svg;

use std::ops::Range;

use tollgate::Algorithm;

pub(super) use drawing::Drawing;
pub(super) use error::ChartError;
pub(super) use font::Fonts;
pub(super) use panel::Panel;

use super::limits::Limits;
use super::text::{grouped, span, span_name, to_us};
use super::traffic::Traffic;
use axis::time_ticks;
use bins::Bins;
use drawing::{Anchor, Line, Rect, Text, Weight};
use frame::{Area, Frame};
use palette::{DENIED, INK, LIMIT, MUTED, PAPER, colour_of, queued};
use scale::Scale;

const WIDTH: u16 = 1_200;
const HEIGHT: u16 = 1_100;

/// The left and right edge of text, and of the bars.
const TEXT: Range<f32> = 44.0..1_156.0;
const BARS: Range<f32> = 96.0..896.0;

/// The upper edge of the first panel's bars, from one panel to the next, and how high bars are.
const FIRST_PANEL: f32 = 206.0;
const PANEL_PITCH: f32 = 172.0;
const BAR_HEIGHT: f32 = 108.0;

/// More bars than this are too thin to see.
const MOST_BARS: u64 = 125;

/// What to draw.
pub(super) struct Chart<'a> {
    pub(super) traffic: &'a Traffic,
    pub(super) limits: &'a Limits,
    pub(super) panels: Vec<Panel<'a>>,
}

impl Chart<'_> {
    pub(super) fn draw(&self, fonts: &Fonts) -> Drawing {
        let mut drawing = Drawing {
            width: WIDTH,
            height: HEIGHT,
            background: PAPER,
            shapes: Vec::new(),
            description: self.traffic.shows.clone(),
        };
        let fine = Bins::covering(&self.view_us(), MOST_BARS);
        let bursts = are_bursts(&fine.offered(&self.traffic.arrivals));
        // A few bursts alone on the axis are easier to see as stouter bars.
        let bins = match bursts {
            true => Bins::covering(&self.view_us(), MOST_BARS / 2),
            false => fine,
        };
        let offered = bins.offered(&self.traffic.arrivals);
        let frame = Frame {
            limits: self.limits,
            bins,
            scale: Scale::of(&offered, &bins, self.limits, bursts),
            bursts,
            offered,
            ticks: time_ticks(
                &bins,
                self.traffic.by_the_clock,
                self.traffic.span_us().start,
            ),
            fonts,
        };
        self.draw_title(&mut drawing, &frame);
        draw_legend(&mut drawing, &frame);
        let mut area = Area {
            left: BARS.start,
            right: BARS.end,
            top: FIRST_PANEL,
            bottom: FIRST_PANEL + BAR_HEIGHT,
        };
        let mut last = area;
        for panel in &self.panels {
            panel.draw(&mut drawing, &frame, area);
            last = area;
            area.top += PANEL_PITCH;
            area.bottom += PANEL_PITCH;
        }
        frame.draw_time_axis(&mut drawing, last);
        self.draw_footer(&mut drawing);
        drawing
    }

    /// The part of time to draw: all arrivals, and what goes later, but not for longer than either takes.
    fn view_us(&self) -> Range<u64> {
        if let Some(view_us) = &self.traffic.view_us {
            return view_us.clone();
        }
        let arrivals_us = self.traffic.span_us();
        let length_us = arrivals_us.end - arrivals_us.start;
        let latest_us = arrivals_us.end + length_us.max(to_us(self.limits.period));
        let last_passages = self.panels.iter().filter_map(|panel| panel.passages.last());
        let end_us = last_passages
            .map(|passage| passage.left_us)
            .max()
            .unwrap_or(0);
        arrivals_us.start..end_us.clamp(arrivals_us.end, latest_us) + 1
    }

    fn draw_title(&self, drawing: &mut Drawing, frame: &Frame<'_>) {
        let most = TEXT.end - TEXT.start;
        let title = (frame.fonts).cut(&self.traffic.shows, 28.0, Weight::Medium, most);
        let title = Text::new(TEXT.start, 62.0, title, INK);
        drawing.text(title.size(28.0).weight(Weight::Medium));

        let mut subtitle = format!(
            "The same {} {} through five algorithms, {} per {}. Each bar counts {}.",
            grouped(self.traffic.total_cost()),
            self.traffic.unit(),
            grouped(self.limits.count),
            span_name(self.limits.period),
            span(frame.bins.width()),
        );
        let Scale { top, peak, .. } = frame.scale;
        if frame.scale.cuts(peak) {
            let (top, peak) = (grouped(top), grouped(peak));
            subtitle += &format!(" Bars are cut off at {top}; the highest is {peak}.");
        }
        drawing.text(Text::new(TEXT.start, 92.0, subtitle, MUTED).size(17.0));
    }

    fn draw_footer(&self, drawing: &mut Drawing) {
        let command = match self.traffic.scenario {
            Some(scenario) => format!("tollgate simulate {}", scenario.name()),
            None => "tollgate simulate --csv".to_owned(),
        };
        let y = f32::from(HEIGHT) - 28.0;
        drawing.text(Text::new(TEXT.start, y, command, MUTED).size(12.0));
        let limit = format!("limit {}", self.limits.said);
        let limit = Text::new(TEXT.end, y, limit, MUTED).size(12.0);
        drawing.text(limit.anchor(Anchor::End));
    }
}

/// Whether requests come in a few short bursts, each of which is worth a label.
fn are_bursts(offered: &[u64]) -> bool {
    let busy = offered.iter().filter(|tokens| **tokens > 0).count();
    busy <= 8 && busy * 8 <= offered.len()
}

/// What the colours and lines mean.
fn draw_legend(drawing: &mut Drawing, frame: &Frame<'_>) {
    const Y: f32 = 132.0;
    const SIDE: f32 = 12.0;
    /// From a sign to its text, and from there to the next sign.
    const SPACE: (f32, f32) = (8.0, 28.0);
    let mut x = BARS.start;
    let explain = |drawing: &mut Drawing, x: f32, text: &str| {
        drawing.text_and_end(Text::new(x + SPACE.0, Y, text, INK), frame.fonts) + SPACE.1
    };
    for (text, colours) in [
        ("let through", Algorithm::ALL.map(colour_of).to_vec()),
        (
            "let in, waiting",
            vec![queued(colour_of(Algorithm::LeakyBucket))],
        ),
        ("denied", vec![DENIED]),
    ] {
        for fill in colours {
            let (y, width, height) = (Y - SIDE + 1.0, SIDE, SIDE);
            drawing.rect(Rect {
                x,
                y,
                width,
                height,
                fill,
            });
            x += SIDE + 1.0;
        }
        x = explain(drawing, x, text);
    }
    let (y, end) = (Y - SIDE / 2.0 + 1.0, x + 32.0);
    drawing.line(Line::dashed((x, y), (end, y), LIMIT));
    x = explain(drawing, end, &frame.scale.limit_label);
    if frame.boundaries_us().next().is_some() {
        drawing.line(Line::solid((x, Y - SIDE - 1.0), (x, Y + 3.0), MUTED));
        explain(drawing, x, "fixed window starts anew");
    }
}
