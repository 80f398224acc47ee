//! The embedded fonts: the width of text, and the outlines of its glyphs.
//!
//! They are part of the program (see `assets/README.md`), so that a chart needs no fonts on the machine.

use tiny_skia::{Path, PathBuilder, Transform};
use ttf_parser::{Face, GlyphId, OutlineBuilder};

use super::drawing::{Anchor, Text};

const REGULAR: &[u8] = include_bytes!("../../assets/Roboto-Regular.ttf");
const MEDIUM: &[u8] = include_bytes!("../../assets/Roboto-Medium.ttf");

/// Roboto in both weights.
pub(super) struct Fonts {
    regular: Face<'static>,
    medium: Face<'static>,
}

impl Fonts {
    /// # Errors
    /// When the program was built with broken fonts.
    pub(super) fn embedded() -> Result<Self, String> {
        let face = |font| {
            let face = Face::parse(font, 0);
            face.map_err(|error| {
                format!("cannot draw the chart: the embedded font is broken: {error}")
            })
        };
        Ok(Self {
            regular: face(REGULAR)?,
            medium: face(MEDIUM)?,
        })
    }

    /// The face of a text, and its pixels per unit of the face.
    fn face(&self, text: &Text) -> (&Face<'static>, f32) {
        let face = match text.is_medium {
            true => &self.medium,
            false => &self.regular,
        };
        (face, text.size / f32::from(face.units_per_em()))
    }

    pub(super) fn width(&self, text: &Text) -> f32 {
        let (face, scale) = self.face(text);
        let advances = text.content.chars().map(|c| advance(face, glyph(face, c)));
        advances.sum::<f32>() * scale
    }

    /// Cuts a text that is wider than `max` pixels, and adds an ellipsis.
    pub(super) fn cut(&self, mut text: Text, max: f32) -> Text {
        let content = text.content.clone();
        let mut ends = content.char_indices().rev();
        while self.width(&text) > max {
            let Some((end, _)) = ends.next() else {
                text.content.clear();
                break;
            };
            text.content = format!("{}…", content[..end].trim_end());
        }
        text
    }

    /// The outline of a text at its position; `None` if it is blank.
    pub(super) fn outline(&self, text: &Text) -> Option<Path> {
        let (face, scale) = self.face(text);
        let mut x = match text.anchor {
            Anchor::Start => text.x,
            Anchor::Middle => text.x - self.width(text) / 2.0,
            Anchor::End => text.x - self.width(text),
        };
        let mut outline = PathBuilder::new();
        for c in text.content.chars() {
            let glyph = glyph(face, c);
            let mut pen = Pen(PathBuilder::new());
            face.outline_glyph(glyph, &mut pen);
            // The y axis of a glyph points up.
            let place = Transform::from_row(scale, 0.0, 0.0, -scale, x, text.y);
            if let Some(path) = pen.0.finish().and_then(|path| path.transform(place)) {
                outline.push_path(&path);
            }
            x += advance(face, glyph) * scale;
        }
        outline.finish()
    }
}

/// The glyph of a character, or of a question mark if the font does not have it.
fn glyph(face: &Face<'_>, c: char) -> GlyphId {
    let glyph = face.glyph_index(c).or_else(|| face.glyph_index('?'));
    glyph.unwrap_or_default()
}

fn advance(face: &Face<'_>, glyph: GlyphId) -> f32 {
    face.glyph_hor_advance(glyph).map_or(0.0, f32::from)
}

struct Pen(PathBuilder);

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        self.0.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.0.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.0.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.0.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::super::drawing::Colour;
    use super::*;

    #[test]
    fn the_embedded_fonts_have_every_character_of_a_chart() {
        let fonts = Fonts::embedded().unwrap();
        for face in [&fonts.regular, &fonts.medium] {
            let characters = (' '..='~').chain("×·–—…µ≤≥".chars());
            let missing: String = characters
                .filter(|c| face.glyph_index(*c).is_none())
                .collect();
            assert_eq!(missing, "");
        }
    }

    #[test]
    fn too_wide_text_ends_in_an_ellipsis() {
        let fonts = Fonts::embedded().unwrap();
        let cut = |content: &str, max| {
            let text = Text::new(0.0, 0.0, content, Colour(0, 0, 0)).size(16.0);
            let cut = fonts.cut(text, max);
            assert!(fonts.width(&cut) <= max);
            cut.content
        };
        let long = cut("a rather long title", 60.0);
        assert!(long.ends_with('…') && long.starts_with("a rat"), "{long}");
        assert_eq!(cut("short", 60.0), "short");
        assert_eq!(cut("hopeless", 0.0), "");
    }
}
