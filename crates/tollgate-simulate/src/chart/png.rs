//! A drawing as PNG, two pixels for one so that it is sharp on dense screens.

use tiny_skia::{
    FillRule, LineCap, Paint, PathBuilder, Pixmap, Rect as SkiaRect, Stroke, StrokeDash, Transform,
};

use super::drawing::{Colour, DASH, Drawing, Line, Rect, Shape, Text};
use super::error::ChartError;
use super::font::Fonts;

/// Pixels of the image for one of the drawing.
const SCALE: u16 = 2;

impl Drawing {
    /// The drawing as a PNG file.
    pub(crate) fn to_png(&self, fonts: &Fonts) -> Result<Vec<u8>, ChartError> {
        let side = |length: u16| u32::from(length) * u32::from(SCALE);
        let mut image = Pixmap::new(side(self.width), side(self.height))
            .ok_or_else(|| ChartError::Image("no memory for the image".to_owned()))?;
        let Colour(red, green, blue) = self.background;
        image.fill(tiny_skia::Color::from_rgba8(red, green, blue, u8::MAX));
        for shape in &self.shapes {
            match shape {
                Shape::Rect(rect) => fill_rect(&mut image, rect),
                Shape::Line(line) => stroke_line(&mut image, line),
                Shape::Text(text) => fill_text(&mut image, text, fonts),
            }
        }
        image
            .encode_png()
            .map_err(|error| ChartError::Image(error.to_string()))
    }
}

fn enlarged() -> Transform {
    Transform::from_scale(f32::from(SCALE), f32::from(SCALE))
}

fn paint(colour: Colour) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color_rgba8(colour.0, colour.1, colour.2, u8::MAX);
    paint
}

fn fill_rect(image: &mut Pixmap, rect: &Rect) {
    if let Some(area) = SkiaRect::from_xywh(rect.x, rect.y, rect.width, rect.height) {
        image.fill_rect(area, &paint(rect.fill), enlarged(), None);
    }
}

fn stroke_line(image: &mut Pixmap, line: &Line) {
    let mut path = PathBuilder::new();
    path.move_to(line.from.0, line.from.1);
    path.line_to(line.to.0, line.to.1);
    let stroke = Stroke {
        width: line.width,
        line_cap: LineCap::Butt,
        dash: if line.dashed {
            StrokeDash::new(DASH.to_vec(), 0.0)
        } else {
            None
        },
        ..Stroke::default()
    };
    if let Some(path) = path.finish() {
        image.stroke_path(&path, &paint(line.colour), &stroke, enlarged(), None);
    }
}

fn fill_text(image: &mut Pixmap, text: &Text, fonts: &Fonts) {
    if let Some(outline) = fonts.outline(text) {
        image.fill_path(
            &outline,
            &paint(text.colour),
            FillRule::Winding,
            enlarged(),
            None,
        );
    }
}
