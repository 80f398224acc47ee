//! The embedded fonts: how wide text is, and the outlines of its letters.
//!
//! They are part of the program (see `assets/README.md`), so that a chart needs no fonts on the machine.

use tiny_skia::{Path, PathBuilder};
use ttf_parser::{Face, GlyphId, OutlineBuilder};

use super::drawing::{Anchor, Text, Weight};
use super::error::ChartError;

const REGULAR: &[u8] = include_bytes!("../../assets/Roboto-Regular.ttf");
const MEDIUM: &[u8] = include_bytes!("../../assets/Roboto-Medium.ttf");

/// Roboto in both weights.
pub(crate) struct Fonts {
    regular: Face<'static>,
    medium: Face<'static>,
}

impl Fonts {
    /// # Errors
    /// When the program was built with something else than fonts.
    pub(crate) fn embedded() -> Result<Self, ChartError> {
        Ok(Self {
            regular: Face::parse(REGULAR, 0)?,
            medium: Face::parse(MEDIUM, 0)?,
        })
    }

    /// The width of a text in pixels.
    pub(super) fn width(&self, content: &str, size: f32, weight: Weight) -> f32 {
        let face = self.face(weight);
        content
            .chars()
            .map(|sign| advance(face, glyph(face, sign)))
            .sum::<f32>()
            * scale(face, size)
    }

    /// The text, cut with an ellipsis where it is wider than `most` pixels.
    pub(super) fn cut(&self, content: &str, size: f32, weight: Weight, most: f32) -> String {
        let fits = |text: &str| self.width(text, size, weight) <= most;
        if fits(content) {
            return content.to_owned();
        }
        let ends = content.char_indices().rev().map(|(end, _)| end);
        let cuts = ends.map(|end| format!("{}…", content[..end].trim_end()));
        cuts.into_iter().find(|cut| fits(cut)).unwrap_or_default()
    }

    /// The outline of a text, at its place; `None` where there is nothing to see.
    pub(super) fn outline(&self, text: &Text) -> Option<Path> {
        let face = self.face(text.weight);
        let scale = scale(face, text.size);
        let width = self.width(&text.content, text.size, text.weight);
        let mut pen = Pen {
            path: PathBuilder::new(),
            x: match text.anchor {
                Anchor::Start => text.x,
                Anchor::Middle => text.x - width / 2.0,
                Anchor::End => text.x - width,
            },
            y: text.y,
            scale,
        };
        for sign in text.content.chars() {
            let glyph = glyph(face, sign);
            face.outline_glyph(glyph, &mut pen);
            pen.x += advance(face, glyph) * scale;
        }
        pen.path.finish()
    }

    fn face(&self, weight: Weight) -> &Face<'static> {
        match weight {
            Weight::Regular => &self.regular,
            Weight::Medium => &self.medium,
        }
    }
}

/// The glyph of a sign; a question mark stands for what the font does not have.
fn glyph(face: &Face<'_>, sign: char) -> GlyphId {
    let found = face.glyph_index(sign).or_else(|| face.glyph_index('?'));
    found.unwrap_or_default()
}

fn advance(face: &Face<'_>, glyph: GlyphId) -> f32 {
    face.glyph_hor_advance(glyph).map_or(0.0, f32::from)
}

fn scale(face: &Face<'_>, size: f32) -> f32 {
    size / f32::from(face.units_per_em())
}

/// Draws glyphs, whose y axis points up, into a picture, whose y axis points down.
struct Pen {
    path: PathBuilder,
    x: f32,
    y: f32,
    scale: f32,
}

impl Pen {
    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        (self.x + x * self.scale, self.y - y * self.scale)
    }
}

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.at(x1, y1), self.at(x, y));
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.path.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_fonts_hold_every_sign_a_chart_uses() {
        let fonts = Fonts::embedded().unwrap();
        for face in [&fonts.regular, &fonts.medium] {
            let signs = (' '..='~').chain("×·–—…µ≤≥".chars());
            let missing: String = signs
                .filter(|sign| face.glyph_index(*sign).is_none())
                .collect();
            assert_eq!(missing, "");
        }
    }

    #[test]
    fn text_that_is_too_wide_ends_in_an_ellipsis() {
        let fonts = Fonts::embedded().unwrap();
        let cut = fonts.cut("a rather long title", 16.0, Weight::Regular, 60.0);
        assert!(cut.ends_with('…') && cut.starts_with("a rat"), "{cut}");
        assert!(fonts.width(&cut, 16.0, Weight::Regular) <= 60.0);
        assert_eq!(fonts.cut("short", 16.0, Weight::Regular, 60.0), "short");
        assert_eq!(fonts.cut("hopeless", 16.0, Weight::Regular, 0.0), "");
    }
}
