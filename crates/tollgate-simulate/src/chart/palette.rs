//! The colours of a chart.

use tollgate::Algorithm;

use super::drawing::Colour;

pub(super) const PAPER: Colour = Colour(0xff, 0xff, 0xff);
pub(super) const INK: Colour = Colour(0x1c, 0x25, 0x30);
pub(super) const MUTED: Colour = Colour(0x66, 0x70, 0x7c);
pub(super) const GRID: Colour = Colour(0xee, 0xf0, 0xf3);
pub(super) const BASELINE: Colour = Colour(0xb8, 0xbf, 0xc8);
pub(super) const DENIED: Colour = Colour(0xda, 0xde, 0xe4);
pub(super) const LIMIT: Colour = Colour(0x3d, 0x48, 0x55);
pub(super) const ALARM: Colour = Colour(0xc6, 0x1a, 0x2b);

/// Told apart by most who see colours differently, too.
pub(super) fn colour_of(algorithm: Algorithm) -> Colour {
    match algorithm {
        Algorithm::TokenBucket => Colour(0x2b, 0x6c, 0xd9),
        Algorithm::LeakyBucket => Colour(0x0c, 0x96, 0x86),
        Algorithm::FixedWindow => Colour(0xe6, 0x6a, 0x0c),
        Algorithm::SlidingLog => Colour(0x75, 0x4b, 0xc9),
        Algorithm::SlidingCounter => Colour(0xc0, 0x3b, 0x86),
        _ => INK,
    }
}

/// What is let in and waits is a pale form of what is let through.
pub(super) fn queued(through: Colour) -> Colour {
    through.tint(3)
}

/// The name of an algorithm as a heading.
pub(super) fn heading(algorithm: Algorithm) -> String {
    let words = algorithm.name().replace('_', " ");
    let mut signs = words.chars();
    signs.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(signs).collect()
    })
}
