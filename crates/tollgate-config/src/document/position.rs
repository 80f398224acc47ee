//! Places in a text: bytes, lines and columns.

/// A piece of a text. Lines and columns count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it begins, in bytes.
    pub start: usize,
    /// Where it ends, in bytes.
    pub end: usize,
    /// The line it begins in.
    pub line: usize,
    /// The column it begins at.
    pub column: usize,
}

/// Every so many characters, the byte is written down.
const STRIDE: usize = 256;

/// Finds places in a text without walking through all of it for each.
pub(super) struct Positions<'a> {
    text: &'a str,
    /// The byte of every `STRIDE`th character.
    strides: Vec<usize>,
    /// The byte and the character that each line begins with.
    lines: Vec<(usize, usize)>,
    /// How many characters there are.
    length: usize,
}

impl<'a> Positions<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let (mut strides, mut lines, mut length) = (Vec::new(), vec![(0, 0)], 0);
        for (nth, (byte, c)) in text.char_indices().enumerate() {
            if nth.is_multiple_of(STRIDE) {
                strides.push(byte);
            }
            if c == '\n' {
                lines.push((byte + 1, nth + 1));
            }
            length = nth + 1;
        }
        Self {
            text,
            strides,
            lines,
            length,
        }
    }

    fn byte_of_char(&self, nth: usize) -> usize {
        let Some(from) = self.strides.get(nth / STRIDE) else {
            return self.text.len();
        };
        let rest = self.text.get(*from..).unwrap_or_default();
        match rest.char_indices().nth(nth % STRIDE) {
            Some((byte, _)) => from + byte,
            None => self.text.len(),
        }
    }

    /// From one character to another, which is not part of it. White space at its end is left out.
    pub(super) fn between_chars(&self, from: usize, to: usize) -> Span {
        // The parser counts bytes for characters in directives, and may end up behind the end.
        let from = from.min(self.length);
        let (start, end) = (self.byte_of_char(from), self.byte_of_char(to));
        let said = self.text.get(start..end).unwrap_or_default().trim_end();
        let (line, (_, first)) = match self.lines.partition_point(|(byte, _)| *byte <= start) {
            0 => (1, (0, 0)),
            after => (after, self.lines[after - 1]),
        };
        Span {
            start,
            end: start + said.len(),
            line,
            column: (from - first.min(from)) + 1,
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
    fn lines_and_columns_count_characters_and_spans_count_bytes() {
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
    fn long_texts_and_places_behind_the_end_are_found() {
        let text = "ab€\n".repeat(1_000);
        let positions = Positions::of(&text);
        let span = positions.between_chars(4 * 700 + 2, 4 * 700 + 3);
        assert_eq!((span.line, span.column), (701, 3));
        assert_eq!(&text[span.start..span.end], "€");
        assert_eq!(positions.between_chars(9_999, 10_000).start, text.len());
    }
}
