//! A picture of simple shapes, drawn as SVG and as PNG at once. Coordinates are pixels from the top left.

use std::fmt::{self, Write as _};

use tiny_skia::{Color, FillRule, Paint, PathBuilder, Pixmap, Rect, Stroke, StrokeDash, Transform};

use super::font::Fonts;

const FAMILY: &str = "Roboto, Helvetica, Arial, sans-serif";

const LINE_WIDTH: f32 = 1.0;
const DASHED_WIDTH: f32 = 1.2;

/// The length of a dash, and of the gap after it.
const DASH: [f32; 2] = [5.0, 4.0];

/// Pixels of a PNG for one of the drawing, so that it is sharp on dense screens.
const SCALE: u16 = 2;

/// A picture. Later shapes cover earlier ones.
pub(crate) struct Drawing {
    svg: String,
    image: Pixmap,
    pub(super) fonts: Fonts,
}

/// An opaque colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colour(pub(super) u8, pub(super) u8, pub(super) u8);

/// An x and a y coordinate, or a width and a height.
pub(super) type Point = (f32, f32);

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
    /// An empty picture, and what it shows, for people who cannot see it.
    ///
    /// # Errors
    /// When there is no memory for it, or the program was built with broken fonts.
    pub(super) fn new(
        (width, height): (u16, u16),
        background: Colour,
        description: &str,
    ) -> Result<Self, String> {
        let side = |length: u16| u32::from(length) * u32::from(SCALE);
        let image = Pixmap::new(side(width), side(height));
        let mut image = image.ok_or_else(|| no_png("no memory for the image"))?;
        let Colour(red, green, blue) = background;
        image.fill(Color::from_rgba8(red, green, blue, u8::MAX));
        let description = escaped(description);
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"{FAMILY}\" role=\"img\" aria-label=\"{description}\">\n\
             <title>{description}</title>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"{background}\"/>\n"
        );
        let fonts = Fonts::embedded()?;
        Ok(Self { svg, image, fonts })
    }

    /// The drawing as an SVG file and as a PNG file.
    ///
    /// # Errors
    /// When the PNG cannot be written.
    pub(crate) fn finish(mut self) -> Result<(String, Vec<u8>), String> {
        self.write(format_args!("</svg>"));
        let png = self.image.encode_png();
        Ok((self.svg, png.map_err(|error| no_png(&error.to_string()))?))
    }

    fn write(&mut self, element: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.svg, "{element}");
    }

    /// Draws a filled rectangle.
    pub(super) fn rect(&mut self, (x, y): Point, (width, height): Point, fill: Colour) {
        self.write(format_args!(
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{fill}\"/>"
        ));
        if let Some(area) = Rect::from_xywh(x, y, width, height) {
            (self.image).fill_rect(area, &paint(fill), to_pixels(), None);
        }
    }

    /// Draws a solid line between two points.
    pub(super) fn line(&mut self, from: Point, to: Point, colour: Colour) {
        self.stroke(from, to, colour, LINE_WIDTH, None);
    }

    /// Draws a dashed line between two points.
    pub(super) fn dashes(&mut self, from: Point, to: Point, colour: Colour) {
        self.stroke(from, to, colour, DASHED_WIDTH, Some(DASH));
    }

    fn stroke(
        &mut self,
        (x1, y1): Point,
        (x2, y2): Point,
        colour: Colour,
        width: f32,
        dash: Option<[f32; 2]>,
    ) {
        let dashes = dash.map_or_else(String::new, |[dash, gap]| {
            format!(" stroke-dasharray=\"{dash} {gap}\"")
        });
        self.write(format_args!(
            "<line x1=\"{x1:.2}\" y1=\"{y1:.2}\" x2=\"{x2:.2}\" y2=\"{y2:.2}\" stroke=\"{colour}\" \
             stroke-width=\"{width}\"{dashes}/>"
        ));
        let mut path = PathBuilder::new();
        path.move_to(x1, y1);
        path.line_to(x2, y2);
        let stroke = Stroke {
            width,
            dash: dash.and_then(|dash| StrokeDash::new(dash.to_vec(), 0.0)),
            ..Stroke::default()
        };
        if let Some(path) = path.finish() {
            (self.image).stroke_path(&path, &paint(colour), &stroke, to_pixels(), None);
        }
    }

    /// Draws text, and returns where it ends if it starts at its position.
    pub(super) fn text(&mut self, text: &Text) -> f32 {
        let (x, y, size, colour) = (text.x, text.y, text.size, text.colour);
        let anchor = match text.anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let weight = match text.is_medium {
            true => " font-weight=\"500\"",
            false => "",
        };
        let content = escaped(&text.content);
        self.write(format_args!(
            "<text x=\"{x:.2}\" y=\"{y:.2}\" font-size=\"{size}\" fill=\"{colour}\"{anchor}{weight}>{content}</text>"
        ));
        if let Some(outline) = self.fonts.outline(text) {
            let (fill, rule) = (paint(colour), FillRule::Winding);
            (self.image).fill_path(&outline, &fill, rule, to_pixels(), None);
        }
        x + self.fonts.width(text)
    }
}

fn no_png(why: &str) -> String {
    format!("cannot draw the chart as PNG: {why}; --no-chart goes without")
}

fn to_pixels() -> Transform {
    Transform::from_scale(f32::from(SCALE), f32::from(SCALE))
}

fn paint(colour: Colour) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color_rgba8(colour.0, colour.1, colour.2, u8::MAX);
    paint
}

impl fmt::Display for Colour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }
}

/// Text as XML. Names of files may hold anything, even characters that XML cannot represent.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_makes_a_well_formed_document() {
        let content = "a<b> & \"c\" \u{1}\u{ffff} é";
        let mut drawing = Drawing::new((10, 10), Colour(255, 255, 255), content).unwrap();
        drawing.text(&Text::new(1.0, 2.0, content, Colour(1, 2, 255)));
        let (svg, _) = drawing.finish().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let text = document
            .descendants()
            .find(|node| node.has_tag_name("text"))
            .unwrap();
        assert_eq!(text.text(), Some("a<b> & \"c\" \u{fffd}\u{fffd} é"));
        assert_eq!(text.attribute("fill"), Some("#0102ff"));
    }
}
