//! A picture as a list of simple shapes, which every output format draws alike.
//!
//! It knows nothing of algorithms or figures. Coordinates are in pixels from the top left.

use super::font::Fonts;

/// A picture.
#[derive(Debug)]
pub(crate) struct Drawing {
    pub(super) width: u16,
    pub(super) height: u16,
    pub(super) background: Colour,
    /// Later shapes cover earlier ones.
    pub(super) shapes: Vec<Shape>,
    /// What the picture shows, for those who cannot see it.
    pub(super) description: String,
}

/// An opaque colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colour(pub(super) u8, pub(super) u8, pub(super) u8);

/// One shape.
#[derive(Debug)]
pub(super) enum Shape {
    Rect(Rect),
    Line(Line),
    Text(Text),
}

/// A filled rectangle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rect {
    pub(super) x: f32,
    pub(super) y: f32,
    pub(super) width: f32,
    pub(super) height: f32,
    pub(super) fill: Colour,
}

/// A straight line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) from: (f32, f32),
    pub(super) to: (f32, f32),
    pub(super) colour: Colour,
    pub(super) width: f32,
    pub(super) dashed: bool,
}

/// How long a dash is, and the gap after it.
pub(super) const DASH: [f32; 2] = [5.0, 4.0];

/// A line of text.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) x: f32,
    /// Of the baseline.
    pub(super) y: f32,
    pub(super) content: String,
    pub(super) size: f32,
    pub(super) weight: Weight,
    pub(super) anchor: Anchor,
    pub(super) colour: Colour,
}

/// How heavy text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    Regular,
    Medium,
}

/// Which point of a text its position means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Colour {
    /// Mixed with white: 0 is white, 1 the colour itself, in tenths.
    pub(super) fn tint(self, tenths: u8) -> Self {
        let mix = |channel: u8| {
            let (tenths, white) = (u16::from(tenths.min(10)), u16::from(u8::MAX));
            let mixed = (u16::from(channel) * tenths + white * (10 - tenths)) / 10;
            u8::try_from(mixed).unwrap_or(u8::MAX)
        };
        Self(mix(self.0), mix(self.1), mix(self.2))
    }
}

impl Line {
    pub(super) fn solid(from: (f32, f32), to: (f32, f32), colour: Colour) -> Self {
        Self {
            from,
            to,
            colour,
            width: 1.0,
            dashed: false,
        }
    }

    pub(super) fn dashed(from: (f32, f32), to: (f32, f32), colour: Colour) -> Self {
        Self {
            width: 1.2,
            dashed: true,
            ..Self::solid(from, to, colour)
        }
    }
}

impl Text {
    /// Text of the usual size that starts here.
    pub(super) fn new(x: f32, y: f32, content: impl Into<String>, colour: Colour) -> Self {
        Self {
            x,
            y,
            content: content.into(),
            size: 14.0,
            weight: Weight::Regular,
            anchor: Anchor::Start,
            colour,
        }
    }

    pub(super) fn size(self, size: f32) -> Self {
        Self { size, ..self }
    }

    pub(super) fn weight(self, weight: Weight) -> Self {
        Self { weight, ..self }
    }

    pub(super) fn anchor(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }
}

impl Drawing {
    pub(super) fn rect(&mut self, rect: Rect) {
        self.shapes.push(Shape::Rect(rect));
    }

    pub(super) fn line(&mut self, line: Line) {
        self.shapes.push(Shape::Line(line));
    }

    pub(super) fn text(&mut self, text: Text) {
        self.shapes.push(Shape::Text(text));
    }

    /// Adds text that starts at its position, and says where it ends.
    pub(super) fn text_and_end(&mut self, text: Text, fonts: &Fonts) -> f32 {
        let end = text.x + fonts.width(&text.content, text.size, text.weight);
        self.text(text);
        end
    }
}
