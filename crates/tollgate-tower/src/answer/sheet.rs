//! Header values that share one allocation: to allocate each of them would cost more than to write them.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The largest number of different headers that are written for one decision.
const MAX_VALUES: usize = 8;

/// Enough for the values of one tier.
const USUAL_BYTES: usize = 128;

/// Header values under construction, behind an optional body in the same memory.
#[derive(Debug)]
pub(super) struct Sheet {
    text: String,
    body_end: usize,
    values: [Option<Value>; MAX_VALUES],
    count: usize,
}

#[derive(Clone, Debug)]
struct Value {
    name: &'static HeaderName,
    range: Range<usize>,
    /// Whether it is added to values that exist, rather than replacing them.
    is_appended: bool,
}

impl Sheet {
    pub(super) fn new() -> Self {
        Self::after(String::new())
    }

    /// Writes behind this body, in its memory.
    pub(super) fn after(mut body: String) -> Self {
        body.reserve(USUAL_BYTES);
        Self {
            body_end: body.len(),
            text: body,
            values: [const { None }; MAX_VALUES],
            count: 0,
        }
    }

    /// Adds a number that replaces existing values of this header.
    pub(super) fn set(&mut self, name: &'static HeaderName, number: u64) {
        self.write(name, false, |text| push_number(number, text));
    }

    /// Adds a word that replaces existing values of this header.
    pub(super) fn set_text(&mut self, name: &'static HeaderName, value: &str) {
        self.write(name, false, |text| text.push_str(value));
    }

    /// Adds a value beside existing ones; none if nothing is written.
    pub(super) fn add(&mut self, name: &'static HeaderName, write: impl FnOnce(&mut String)) {
        self.write(name, true, write);
    }

    fn write(
        &mut self,
        name: &'static HeaderName,
        is_appended: bool,
        write: impl FnOnce(&mut String),
    ) {
        let start = self.text.len();
        write(&mut self.text);
        let range = start..self.text.len();
        match self.values.get_mut(self.count) {
            Some(value) if !range.is_empty() => {
                *value = Some(Value {
                    name,
                    range,
                    is_appended,
                });
                self.count += 1;
            }
            _ => self.text.truncate(start),
        }
    }

    /// Puts the values into these headers and returns the body.
    pub(super) fn finish(self, headers: &mut HeaderMap) -> Bytes {
        let text = Bytes::from(self.text);
        for value in self.values.into_iter().map_while(|value| value) {
            let Ok(header) = HeaderValue::from_maybe_shared(text.slice(value.range)) else {
                continue;
            };
            match value.is_appended {
                true => _ = headers.append(value.name, header),
                false => _ = headers.insert(value.name, header),
            }
        }
        text.slice(..self.body_end)
    }
}

/// Without the machinery of `write!`: a flood of denials is when this counts.
pub(super) fn push_number(number: u64, text: &mut String) {
    match u8::try_from(number) {
        // What is left, and how long to wait, mostly is.
        Ok(digit @ 0..10) => text.push(char::from(b'0' + digit)),
        _ => text.push_str(itoa::Buffer::new().format(number)),
    }
}
