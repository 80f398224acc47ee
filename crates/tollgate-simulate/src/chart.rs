//! The chart: one panel per algorithm above a shared time axis.

mod axis;
mod drawing;
mod font;
mod panel;

use std::ops::Range;

use tollgate::Algorithm;

use super::figures::Comparison;
use super::scenario::Traffic;
use super::text::{grouped, span, span_name, to_us};
use axis::{Bins, Scale, time_ticks};
use drawing::{Anchor, Text};
use panel::{Area, DENIED, Frame, INK, LIMIT, MUTED, PAPER, colour_of, queued};

pub(super) use drawing::Drawing;

const WIDTH: u16 = 1_200;
const HEIGHT: u16 = 1_100;

/// The left and right edge of text.
const TEXT: Range<f32> = 44.0..1_156.0;

/// The bars of the first panel, and the distance to the next panel.
const FIRST_PANEL: Area = Area {
    left: 96.0,
    right: 896.0,
    top: 206.0,
    bottom: 314.0,
};
const PANEL_PITCH: f32 = 172.0;

/// Maximum number of bars; more would be too thin to see.
const MAX_BARS: u64 = 125;

/// Draws the chart of a comparison.
///
/// # Errors
/// When there is no memory for it, or the program was built with broken fonts.
pub(super) fn draw(comparison: &Comparison) -> Result<Drawing, String> {
    let (size, title) = ((WIDTH, HEIGHT), &comparison.traffic.title);
    let mut drawing = Drawing::new(size, PAPER, title)?;
    let frame = frame(comparison);
    draw_title(&mut drawing, &frame, &comparison.traffic);
    draw_legend(&mut drawing, &frame);
    let mut area = FIRST_PANEL;
    let mut last = area;
    for outcome in &comparison.outcomes {
        panel::draw(&mut drawing, &frame, area, outcome);
        last = area;
        area.top += PANEL_PITCH;
        area.bottom += PANEL_PITCH;
    }
    frame.draw_time_axis(&mut drawing, last);
    draw_footer(&mut drawing, comparison);
    Ok(drawing)
}

fn frame(comparison: &Comparison) -> Frame<'_> {
    let (traffic, limits) = (&comparison.traffic, &comparison.limits);
    let (view_us, arrivals) = (view_us(comparison), &traffic.arrivals);
    let mut bins = Bins::covering(&view_us, MAX_BARS);
    let bursts = are_bursts(&bins.offered(arrivals));
    if bursts {
        // A few bursts are easier to see as wide bars.
        bins = Bins::covering(&view_us, MAX_BARS / 2);
    }
    let offered = bins.offered(arrivals);
    let zero_us = traffic.span_us().start;
    Frame {
        limits,
        bins,
        scale: Scale::of(&offered, &bins, limits, bursts),
        bursts,
        offered,
        ticks: time_ticks(&bins, traffic.by_the_clock, zero_us),
    }
}

/// The part of time to draw: all arrivals, and what is forwarded later, but not for longer than either takes.
fn view_us(comparison: &Comparison) -> Range<u64> {
    let traffic = &comparison.traffic;
    if let Some(view_us) = &traffic.view_us {
        return view_us.clone();
    }
    let arrivals_us = traffic.span_us();
    let length_us = arrivals_us.end - arrivals_us.start;
    let latest_us = arrivals_us.end + length_us.max(to_us(comparison.limits.period));
    let outcomes = comparison.outcomes.iter();
    let last = outcomes.filter_map(|outcome| Some(outcome.admissions.last()?.forwarded_us));
    let end_us = last.max().unwrap_or(0);
    arrivals_us.start..end_us.clamp(arrivals_us.end, latest_us) + 1
}

fn draw_title(drawing: &mut Drawing, frame: &Frame<'_>, traffic: &Traffic) {
    let title = Text::new(TEXT.start, 62.0, &traffic.title, INK);
    let title = title.size(28.0).medium();
    drawing.text(&drawing.fonts.cut(title, TEXT.end - TEXT.start));

    let mut subtitle = format!(
        "The same {} {} through five algorithms, {} per {}. Each bar counts {}.",
        grouped(traffic.total_cost()),
        traffic.unit(),
        grouped(frame.limits.count),
        span_name(frame.limits.period),
        span(frame.bins.width()),
    );
    let Scale { top, peak, .. } = frame.scale;
    if frame.scale.cuts(peak) {
        let (top, peak) = (grouped(top), grouped(peak));
        subtitle += &format!(" Bars are cut off at {top}; the highest is {peak}.");
    }
    drawing.text(&Text::new(TEXT.start, 92.0, subtitle, MUTED).size(17.0));
}

fn draw_footer(drawing: &mut Drawing, comparison: &Comparison) {
    let command = match comparison.traffic.scenario {
        Some(scenario) => format!("tollgate simulate {}", scenario.name()),
        None => "tollgate simulate --csv".to_owned(),
    };
    let y = f32::from(HEIGHT) - 28.0;
    drawing.text(&Text::new(TEXT.start, y, command, MUTED).size(12.0));
    let limit = format!("limit {}", comparison.limits.original);
    let limit = Text::new(TEXT.end, y, limit, MUTED).size(12.0);
    drawing.text(&limit.anchor(Anchor::End));
}

/// Whether requests arrive in a few short bursts, each of which gets a label.
fn are_bursts(offered: &[u64]) -> bool {
    let busy = offered.iter().filter(|tokens| **tokens > 0).count();
    busy <= 8 && busy * 8 <= offered.len()
}

/// The meaning of colours and lines.
fn draw_legend(drawing: &mut Drawing, frame: &Frame<'_>) {
    const Y: f32 = 132.0;
    const SIDE: f32 = 12.0;
    /// From a sign to its text, and from there to the next sign.
    const SPACE: (f32, f32) = (8.0, 28.0);
    let explain = |drawing: &mut Drawing, x: f32, text: &str| {
        drawing.text(&Text::new(x + SPACE.0, Y, text, INK)) + SPACE.1
    };
    let mut x = FIRST_PANEL.left;
    for (text, colours) in [
        ("forwarded", Algorithm::ALL.map(colour_of).to_vec()),
        ("queued", vec![queued(colour_of(Algorithm::LeakyBucket))]),
        ("denied", vec![DENIED]),
    ] {
        for fill in colours {
            drawing.rect((x, Y - SIDE + 1.0), (SIDE, SIDE), fill);
            x += SIDE + 1.0;
        }
        x = explain(drawing, x, text);
    }
    let (y, end) = (Y - SIDE / 2.0 + 1.0, x + 32.0);
    drawing.dashes((x, y), (end, y), LIMIT);
    x = explain(drawing, end, &frame.scale.limit_label);
    if frame.boundaries_us().next().is_some() {
        drawing.line((x, Y - SIDE - 1.0), (x, Y + 3.0), MUTED);
        explain(drawing, x, "fixed window starts again");
    }
}
