//! The values of several fields, written into one piece of memory: to ask for one for each would cost more than to write them.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

/// What is to stand in a head, and maybe the text that comes before all of it in memory.
pub(super) struct Sheet {
    text: String,
    lines: [Option<Line>; MOST_LINES],
    count: usize,
}

/// So many different fields can be said of a decision.
const MOST_LINES: usize = 7;

struct Line {
    name: &'static HeaderName,
    value: Range<usize>,
    /// Beside what stands there, not in its place.
    is_further: bool,
}

/// Enough for all fields about one tier.
const USUAL: usize = 128;

impl Sheet {
    pub(super) fn new() -> Self {
        Self::after(String::with_capacity(USUAL))
    }

    /// In the memory of this text, behind it.
    pub(super) fn after(mut text: String) -> Self {
        text.reserve(USUAL);
        Self {
            text,
            lines: [const { None }; MOST_LINES],
            count: 0,
        }
    }

    /// A value that takes the place of what stands there.
    pub(super) fn set(&mut self, name: &'static HeaderName, number: u64) {
        self.line(name, false, |text| push_number(number, text));
    }

    /// A value in a line of its own; none if nothing is written.
    pub(super) fn add(&mut self, name: &'static HeaderName, write: impl FnOnce(&mut String)) {
        self.line(name, true, write);
    }

    fn line(
        &mut self,
        name: &'static HeaderName,
        is_further: bool,
        write: impl FnOnce(&mut String),
    ) {
        let start = self.text.len();
        write(&mut self.text);
        let value = start..self.text.len();
        if let Some(line) = self.lines.get_mut(self.count)
            && !value.is_empty()
        {
            *line = Some(Line {
                name,
                value,
                is_further,
            });
            self.count += 1;
        }
    }

    /// Puts all values where they belong. Gives back the memory, which begins with the text that was there first.
    pub(super) fn put_into(self, headers: &mut HeaderMap) -> Bytes {
        let bytes = Bytes::from(self.text);
        for line in self.lines.into_iter().map_while(|line| line) {
            let Ok(value) = HeaderValue::from_maybe_shared(bytes.slice(line.value)) else {
                continue;
            };
            match line.is_further {
                true => _ = headers.append(line.name, value),
                false => _ = headers.insert(line.name, value),
            }
        }
        bytes
    }
}

/// Without the machinery of `write!`: a flood of denials is when this counts.
pub(super) fn push_number(number: u64, text: &mut String) {
    text.push_str(itoa::Buffer::new().format(number));
}
