//! A drawing as SVG and as PNG.

use std::fmt::{self, Write as _};

use tiny_skia::{Color, FillRule, Paint, PathBuilder, Pixmap, Rect, Stroke, StrokeDash, Transform};

use super::drawing::{Anchor, Colour, Drawing, Shape, Text};

const FAMILY: &str = "Roboto, Helvetica, Arial, sans-serif";

const LINE_WIDTH: f32 = 1.0;
const DASHED_WIDTH: f32 = 1.2;

/// The length of a dash, and of the gap after it.
const DASH: [f32; 2] = [5.0, 4.0];

/// Pixels of a PNG for one of the drawing, so that it is sharp on dense screens.
const SCALE: u16 = 2;

impl Drawing {
    pub(crate) fn to_svg(&self) -> String {
        let mut svg = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_svg(&mut svg);
        svg
    }

    fn write_svg(&self, svg: &mut String) -> fmt::Result {
        let (width, height, background) = (self.width, self.height, self.background);
        let description = escaped(&self.description);
        writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"{FAMILY}\" role=\"img\" aria-label=\"{description}\">\n\
             <title>{description}</title>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"{background}\"/>"
        )?;
        for shape in &self.shapes {
            shape.write_svg(svg)?;
        }
        writeln!(svg, "</svg>")
    }

    /// The drawing as a PNG file.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(crate) fn to_png(&self) -> Result<Vec<u8>, String> {
        let failed =
            |why: String| format!("cannot draw the chart as PNG: {why}; --no-chart goes without");
        let side = |length: u16| u32::from(length) * u32::from(SCALE);
        let image = Pixmap::new(side(self.width), side(self.height));
        let mut image = image.ok_or_else(|| failed("no memory for the image".to_owned()))?;
        let Colour(red, green, blue) = self.background;
        image.fill(Color::from_rgba8(red, green, blue, u8::MAX));
        for shape in &self.shapes {
            self.draw(shape, &mut image);
        }
        image
            .encode_png()
            .map_err(|error| failed(error.to_string()))
    }

    fn draw(&self, shape: &Shape, image: &mut Pixmap) {
        let scale = Transform::from_scale(f32::from(SCALE), f32::from(SCALE));
        match shape {
            Shape::Rect(corner, size, fill) => {
                if let Some(area) = Rect::from_xywh(corner.0, corner.1, size.0, size.1) {
                    image.fill_rect(area, &paint(*fill), scale, None);
                }
            }
            Shape::Line(from, to, colour) | Shape::Dashes(from, to, colour) => {
                let mut path = PathBuilder::new();
                path.move_to(from.0, from.1);
                path.line_to(to.0, to.1);
                let mut stroke = Stroke {
                    width: LINE_WIDTH,
                    ..Stroke::default()
                };
                if let Shape::Dashes(..) = shape {
                    stroke.width = DASHED_WIDTH;
                    stroke.dash = StrokeDash::new(DASH.to_vec(), 0.0);
                }
                if let Some(path) = path.finish() {
                    image.stroke_path(&path, &paint(*colour), &stroke, scale, None);
                }
            }
            Shape::Text(text) => {
                if let Some(outline) = self.fonts.outline(text) {
                    let fill = paint(text.colour);
                    image.fill_path(&outline, &fill, FillRule::Winding, scale, None);
                }
            }
        }
    }
}

fn paint(colour: Colour) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color_rgba8(colour.0, colour.1, colour.2, u8::MAX);
    paint
}

impl Shape {
    fn write_svg(&self, svg: &mut String) -> fmt::Result {
        match self {
            Self::Rect((x, y), (width, height), fill) => writeln!(
                svg,
                "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{fill}\"/>"
            ),
            Self::Line((x1, y1), (x2, y2), colour) => writeln!(
                svg,
                "<line x1=\"{x1:.2}\" y1=\"{y1:.2}\" x2=\"{x2:.2}\" y2=\"{y2:.2}\" stroke=\"{colour}\" \
                 stroke-width=\"{LINE_WIDTH}\"/>"
            ),
            Self::Dashes((x1, y1), (x2, y2), colour) => writeln!(
                svg,
                "<line x1=\"{x1:.2}\" y1=\"{y1:.2}\" x2=\"{x2:.2}\" y2=\"{y2:.2}\" stroke=\"{colour}\" \
                 stroke-width=\"{DASHED_WIDTH}\" stroke-dasharray=\"{} {}\"/>",
                DASH[0], DASH[1]
            ),
            Self::Text(text) => {
                let Text {
                    x, y, size, colour, ..
                } = text;
                let anchor = match text.anchor {
                    Anchor::Start => "",
                    Anchor::Middle => " text-anchor=\"middle\"",
                    Anchor::End => " text-anchor=\"end\"",
                };
                let weight = if text.is_medium {
                    " font-weight=\"500\""
                } else {
                    ""
                };
                let content = escaped(&text.content);
                writeln!(
                    svg,
                    "<text x=\"{x:.2}\" y=\"{y:.2}\" font-size=\"{size}\" fill=\"{colour}\"{anchor}{weight}>{content}</text>"
                )
            }
        }
    }
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
    use super::super::font::Fonts;
    use super::*;

    #[test]
    fn any_text_makes_a_well_formed_document() {
        let content = "a<b> & \"c\" \u{1}\u{ffff} é";
        let drawing = Drawing {
            width: 10,
            height: 10,
            background: Colour(255, 255, 255),
            shapes: vec![Shape::Text(Text::new(1.0, 2.0, content, Colour(1, 2, 255)))],
            description: content.to_owned(),
            fonts: Fonts::embedded().unwrap(),
        };
        let svg = drawing.to_svg();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let text = document
            .descendants()
            .find(|node| node.has_tag_name("text"))
            .unwrap();
        assert_eq!(text.text(), Some("a<b> & \"c\" \u{fffd}\u{fffd} é"));
        assert_eq!(text.attribute("fill"), Some("#0102ff"));
    }
}
