//! The bars of one panel: what came in each bin, what was let in, and what went.

use super::super::run::Passage;
use super::super::text::grouped;
use super::drawing::{Anchor, Colour, Drawing, Rect, Text, Weight};
use super::frame::{Area, Frame};
use super::palette::{DENIED, INK, PAPER, queued};

/// Between bars that are wide enough to have something between them.
const GAP: f32 = 0.6;

/// However little went, it is there to see.
const LOWEST: f32 = 1.5;

/// Tokens of one bin.
struct Bar {
    start_us: u64,
    offered: u64,
    admitted: u64,
    went: u64,
}

/// Draws a bar per bin, in the colour of the algorithm.
pub(super) fn draw_bars(
    drawing: &mut Drawing,
    frame: &Frame<'_>,
    area: Area,
    passages: &[Passage],
    colour: Colour,
) {
    let mut labels = Labels {
        area,
        free_from: area.left,
    };
    for bar in bars(frame, passages) {
        let x = area.x(&frame.bins, bar.start_us);
        let pitch = area.x(&frame.bins, bar.start_us + frame.bins.width_us) - x;
        let width = if pitch > 4.0 { pitch - GAP } else { pitch };
        // Each covers the one before: what remains to be seen of the first is what was denied.
        let layers = [
            (bar.offered, DENIED),
            (bar.admitted, queued(colour)),
            (bar.went, colour),
        ];
        for (value, fill) in layers.into_iter().filter(|(value, _)| *value > 0) {
            let height = (frame.scale.height(value) * area.height()).max(LOWEST);
            let y = area.bottom - height;
            drawing.rect(Rect {
                x,
                y,
                width,
                height,
                fill,
            });
        }
        let middle = x + width / 2.0;
        let cut = frame.scale.cuts(bar.went);
        if cut {
            // A gap across a bar says that it goes on.
            let (x, y) = (x - 1.0, area.top + 8.0);
            let (width, height) = (width + 2.0, 3.0);
            drawing.rect(Rect {
                x,
                y,
                width,
                height,
                fill: PAPER,
            });
        }
        if frame.bursts && bar.offered > 0 {
            let text = format!("{} of {}", grouped(bar.admitted), grouped(bar.offered));
            labels.put(drawing, frame, Text::new(middle, 0.0, text, INK));
        } else if cut {
            labels.put(
                drawing,
                frame,
                Text::new(middle, 0.0, grouped(bar.went), colour),
            );
        }
    }
}

fn bars(frame: &Frame<'_>, passages: &[Passage]) -> impl Iterator<Item = Bar> {
    let bins = frame.bins;
    let came = frame.offered.iter().zip(bins.admitted(passages));
    (0..)
        .zip(came.zip(bins.went(passages)))
        .map(move |(bin, ((&offered, admitted), went))| Bar {
            start_us: bins.start_us + bin * bins.width_us,
            offered,
            admitted,
            went,
        })
}

/// Labels above bars, left out where one would run into the one before.
struct Labels {
    area: Area,
    free_from: f32,
}

impl Labels {
    fn put(&mut self, drawing: &mut Drawing, frame: &Frame<'_>, text: Text) {
        let mut text = text
            .size(12.0)
            .weight(Weight::Medium)
            .anchor(Anchor::Middle);
        let half = frame.fonts.width(&text.content, text.size, text.weight) / 2.0;
        text.x = text
            .x
            .min(self.area.right - half)
            .max(self.area.left + half);
        text.y = self.area.top - 6.0;
        if text.x - half >= self.free_from {
            self.free_from = text.x + half + 3.0;
            drawing.text(text);
        }
    }
}
