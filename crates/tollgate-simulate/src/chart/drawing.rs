//! A picture as a list of simple shapes. Coordinates are pixels from the top left.

use super::font::Fonts;

/// A picture.
pub(crate) struct Drawing {
    pub(super) width: u16,
    pub(super) height: u16,
    pub(super) background: Colour,
    /// Later shapes cover earlier ones.
    pub(super) shapes: Vec<Shape>,
    /// What the picture shows, for people who cannot see it.
    pub(super) description: String,
    pub(super) fonts: Fonts,
}

/// An opaque colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colour(pub(super) u8, pub(super) u8, pub(super) u8);

/// An x and a y coordinate, or a width and a height.
pub(super) type Point = (f32, f32);

pub(super) enum Shape {
    /// A filled rectangle: its corner and its size.
    Rect(Point, Point, Colour),
    /// A solid line between two points.
    Line(Point, Point, Colour),
    /// A dashed line between two points.
    Dashes(Point, Point, Colour),
    Text(Text),
}

/// A line of text.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) x: f32,
    /// Of the baseline.
    pub(super) y: f32,
    pub(super) content: String,
    pub(super) size: f32,
    pub(super) is_medium: bool,
    pub(super) anchor: Anchor,
    pub(super) colour: Colour,
}

/// The point of a text that its position is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Colour {
    /// Mixed with white, in tenths: 0 is white, 10 the colour itself.
    pub(super) fn tint(self, tenths: u8) -> Self {
        let mix = |channel: u8| {
            let (tenths, white) = (u16::from(tenths.min(10)), u16::from(u8::MAX));
            let mixed = (u16::from(channel) * tenths + white * (10 - tenths)) / 10;
            u8::try_from(mixed).unwrap_or(u8::MAX)
        };
        Self(mix(self.0), mix(self.1), mix(self.2))
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
            is_medium: false,
            anchor: Anchor::Start,
            colour,
        }
    }

    pub(super) fn size(self, size: f32) -> Self {
        Self { size, ..self }
    }

    /// In a heavier weight.
    pub(super) fn medium(self) -> Self {
        let is_medium = true;
        Self { is_medium, ..self }
    }

    pub(super) fn anchor(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }
}

impl Drawing {
    pub(super) fn rect(&mut self, corner: Point, size: Point, fill: Colour) {
        self.shapes.push(Shape::Rect(corner, size, fill));
    }

    pub(super) fn line(&mut self, from: Point, to: Point, colour: Colour) {
        self.shapes.push(Shape::Line(from, to, colour));
    }

    pub(super) fn dashes(&mut self, from: Point, to: Point, colour: Colour) {
        self.shapes.push(Shape::Dashes(from, to, colour));
    }

    /// Adds text, and returns where it ends if it starts at its position.
    pub(super) fn text(&mut self, text: Text) -> f32 {
        let end = text.x + self.fonts.width(&text);
        self.shapes.push(Shape::Text(text));
        end
    }
}
