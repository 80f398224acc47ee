//! Positions in a text: bytes, lines and columns.

use std::cell::Cell;

/// A part of a text. Lines and columns count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
    /// The line of the first byte.
    pub line: usize,
    /// The column of the first byte.
    pub column: usize,
}

/// Converts character indexes, which the parser counts in, to spans.
pub(super) struct Positions<'a> {
    text: &'a str,
    /// The first byte and character of each line.
    lines: Vec<(usize, usize)>,
    /// The byte and character of the last lookup. The next is usually close, so a lookup need not walk the whole text.
    last: Cell<(usize, usize)>,
}

impl<'a> Positions<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let newlines = text.char_indices().enumerate();
        let newlines = newlines.filter(|(_, (_, c))| *c == '\n');
        let starts = newlines.map(|(nth, (byte, _))| (byte + 1, nth + 1));
        Self {
            text,
            lines: std::iter::once((0, 0)).chain(starts).collect(),
            last: Cell::default(),
        }
    }

    /// The byte of a character; the end of the text and its number of characters for any beyond.
    fn find(&self, nth: usize) -> (usize, usize) {
        let (byte, known) = self.last.get();
        let (before, after) = self.text.split_at(byte);
        let found = match nth.checked_sub(known) {
            Some(ahead) => match after.char_indices().nth(ahead) {
                Some((at, _)) => (byte + at, nth),
                None => (self.text.len(), known + after.chars().count()),
            },
            None => match before.char_indices().rev().nth(known - nth - 1) {
                Some((at, _)) => (at, nth),
                None => (0, 0),
            },
        };
        self.last.set(found);
        found
    }

    /// From one character to another, exclusive. White space at the end is left out.
    pub(super) fn between_chars(&self, from: usize, to: usize) -> Span {
        // The parser counts bytes as characters in directives, so it may name a character beyond the end.
        let (start, from) = self.find(from);
        let (end, _) = self.find(to);
        let text = self.text.get(start..end).unwrap_or_default();
        let line = self.lines.partition_point(|(byte, _)| *byte <= start);
        let first = self.lines.get(line - 1).map_or(0, |(_, first)| *first);
        Span {
            start,
            end: start + text.trim_end().len(),
            line,
            column: from - first + 1,
        }
    }

    /// The character at this byte.
    pub(super) fn at_byte(&self, byte: usize) -> Span {
        let before = self.text.get(..byte).unwrap_or(self.text);
        let nth = before.chars().count();
        self.between_chars(nth, nth + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_spans_count_bytes() {
        let text = "ä: 1\nöü: zwei \n";
        let positions = Positions::of(text);
        let key = positions.between_chars(5, 7);
        assert_eq!(
            (key.line, key.column, &text[key.start..key.end]),
            (2, 1, "öü")
        );
        let value = positions.between_chars(9, 14);
        assert_eq!((value.line, value.column), (2, 5));
        assert_eq!(&text[value.start..value.end], "zwei");
    }

    #[test]
    fn lookups_go_forward_backward_and_beyond_the_end() {
        let text = "ab€\n".repeat(1_000);
        let positions = Positions::of(&text);
        for line in [701, 3, 702, 702, 1] {
            let nth = 4 * (line - 1) + 2;
            let span = positions.between_chars(nth, nth + 1);
            assert_eq!((span.line, span.column), (line, 3));
            assert_eq!(&text[span.start..span.end], "€");
        }
        assert_eq!(positions.between_chars(9_999, 10_000).start, text.len());
        assert_eq!(positions.between_chars(0, 2).end, 2);
    }
}
