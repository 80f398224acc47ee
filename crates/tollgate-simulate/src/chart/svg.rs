//! A drawing as SVG text.

use std::fmt::{self, Write as _};

use super::drawing::{Anchor, Colour, DASH, Drawing, Line, Rect, Shape, Text, Weight};

const FAMILY: &str = "Roboto, Helvetica, Arial, sans-serif";

impl Drawing {
    /// The drawing as an SVG document.
    pub(crate) fn to_svg(&self) -> String {
        let mut svg = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_svg(&mut svg);
        svg
    }

    fn write_svg(&self, svg: &mut String) -> fmt::Result {
        let (width, height) = (self.width, self.height);
        let description = escaped(&self.description);
        writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"{FAMILY}\" role=\"img\" aria-label=\"{description}\">"
        )?;
        writeln!(svg, "<title>{description}</title>")?;
        writeln!(
            svg,
            "<rect width=\"100%\" height=\"100%\" fill=\"{}\"/>",
            self.background
        )?;
        for shape in &self.shapes {
            match shape {
                Shape::Rect(rect) => write_rect(svg, rect)?,
                Shape::Line(line) => write_line(svg, line)?,
                Shape::Text(text) => write_text(svg, text)?,
            }
        }
        writeln!(svg, "</svg>")
    }
}

fn write_rect(svg: &mut String, rect: &Rect) -> fmt::Result {
    let Rect {
        x,
        y,
        width,
        height,
        fill,
    } = rect;
    writeln!(
        svg,
        "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{fill}\"/>"
    )
}

fn write_line(svg: &mut String, line: &Line) -> fmt::Result {
    let ((x1, y1), (x2, y2)) = (line.from, line.to);
    let Line { colour, width, .. } = line;
    write!(
        svg,
        "<line x1=\"{x1:.2}\" y1=\"{y1:.2}\" x2=\"{x2:.2}\" y2=\"{y2:.2}\" stroke=\"{colour}\" stroke-width=\"{width}\""
    )?;
    if line.dashed {
        write!(svg, " stroke-dasharray=\"{} {}\"", DASH[0], DASH[1])?;
    }
    writeln!(svg, "/>")
}

fn write_text(svg: &mut String, text: &Text) -> fmt::Result {
    let Text {
        x, y, size, colour, ..
    } = text;
    write!(
        svg,
        "<text x=\"{x:.2}\" y=\"{y:.2}\" font-size=\"{size}\" fill=\"{colour}\""
    )?;
    match text.anchor {
        Anchor::Start => {}
        Anchor::Middle => svg.write_str(" text-anchor=\"middle\"")?,
        Anchor::End => svg.write_str(" text-anchor=\"end\"")?,
    }
    if text.weight == Weight::Medium {
        svg.write_str(" font-weight=\"500\"")?;
    }
    writeln!(svg, ">{}</text>", escaped(&text.content))
}

impl fmt::Display for Colour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }
}

/// Text as XML: names of files may hold anything, even signs that XML cannot say at all.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            sign if sign.is_control() => out.push('\u{fffd}'),
            sign => out.push(sign),
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
        let drawing = Drawing {
            width: 10,
            height: 10,
            background: Colour(255, 255, 255),
            shapes: vec![Shape::Text(Text::new(1.0, 2.0, content, Colour(1, 2, 255)))],
            description: content.to_owned(),
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
