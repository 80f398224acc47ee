//! Several fields, written into one piece of memory: to ask for one for each would cost more than to write them.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response};

/// So many different fields can be said of a decision.
const MOST_LINES: usize = 7;

/// Enough for all fields about one tier.
const USUAL: usize = 256;

type Lines = [Option<Line>; MOST_LINES];

/// What is to stand in a head, and maybe the text that comes before all of it in memory.
#[derive(Debug)]
pub(super) struct Sheet {
    text: String,
    start: usize,
    lines: Lines,
    count: usize,
}

/// A field that we write.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: HeaderName,
    /// How its line begins, up to the value.
    start: &'static str,
}

impl Field {
    /// By how its line begins: the name in small letters, a colon and a space.
    pub(super) const fn new(start: &'static str) -> Self {
        let (name, _) = start.split_at(start.len() - ": ".len());
        Self {
            name: HeaderName::from_static(name),
            start,
        }
    }
}

#[derive(Clone, Debug)]
struct Line {
    field: &'static Field,
    value: Range<usize>,
    /// Beside what stands there, not in its place.
    is_further: bool,
}

impl Sheet {
    pub(super) fn new() -> Self {
        Self::after(String::with_capacity(USUAL))
    }

    /// In the memory of this text, behind it.
    pub(super) fn after(mut text: String) -> Self {
        text.reserve(USUAL);
        Self {
            start: text.len(),
            text,
            lines: [const { None }; MOST_LINES],
            count: 0,
        }
    }

    /// A value that takes the place of what stands there.
    pub(super) fn set(&mut self, field: &'static Field, number: u64) {
        self.line(field, false, |text| push_number(number, text));
    }

    /// A value in a line of its own; none if nothing is written.
    pub(super) fn add(&mut self, field: &'static Field, write: impl FnOnce(&mut String)) {
        self.line(field, true, write);
    }

    fn line(&mut self, field: &'static Field, is_further: bool, write: impl FnOnce(&mut String)) {
        let begin = self.text.len();
        self.text.push_str(field.start);
        let start = self.text.len();
        write(&mut self.text);
        let value = start..self.text.len();
        match self.lines.get_mut(self.count) {
            Some(line) if !value.is_empty() => {
                self.text.push_str("\r\n");
                *line = Some(Line {
                    field,
                    value,
                    is_further,
                });
                self.count += 1;
            }
            _ => self.text.truncate(begin),
        }
    }

    pub(super) fn into_lines(self) -> FieldLines {
        FieldLines {
            text: Bytes::from(self.text),
            start: self.start,
            lines: self.lines,
        }
    }
}

/// What a layer says of a decision, as lines of a head of HTTP/1.1, among a response's extensions instead of its fields: for a server that writes heads itself,
/// if it [wants](crate::TollgateLayer::fields_as_lines) that. None of the fields stands among the others, too.
#[derive(Clone, Debug)]
pub struct FieldLines {
    text: Bytes,
    start: usize,
    lines: Lines,
}

impl FieldLines {
    /// All lines, each with its end.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.text.get(self.start..).unwrap_or_default()
    }

    /// Puts the lines of a response among its fields, if it has any: for who does not write them.
    pub fn put_among_fields<B>(response: &mut Response<B>) {
        if let Some(lines) = response.extensions_mut().remove::<Self>() {
            lines.put_into(response.headers_mut());
        }
    }

    /// The text that was there first.
    pub(crate) fn before(&self) -> &[u8] {
        self.text.get(..self.start).unwrap_or_default()
    }

    /// The same, to keep.
    pub(super) fn share_before(&self) -> Bytes {
        self.text.slice(..self.start)
    }

    pub(super) fn put_into(&self, headers: &mut HeaderMap) {
        for line in self.lines.iter().map_while(Option::as_ref) {
            let value = self.text.slice(line.value.clone());
            let Ok(value) = HeaderValue::from_maybe_shared(value) else {
                continue;
            };
            match line.is_further {
                true => _ = headers.append(&line.field.name, value),
                false => _ = headers.insert(&line.field.name, value),
            }
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tollgate::{Decision, LocalLimiter, Request, Rule};

    use super::*;
    use crate::answer::{Answers, Denial, Dialect};

    /// One that passes, and one that does not.
    fn decisions() -> [Decision; 2] {
        let rule = Rule::new("client", "1/h burst 1".parse().unwrap()).unwrap();
        let limiter = LocalLimiter::new().with_rules([rule]).unwrap();
        [(); 2].map(|()| limiter.decide(&Request::new()))
    }

    #[test]
    fn lines_say_what_fields_say() {
        let [passed, denied] = decisions();
        let answers = Answers::default();
        let mut fields = HeaderMap::new();
        answers.add(&passed, &mut fields);
        let mut response = Response::new(());
        answers.add_as_lines(&passed, &mut response);
        let lines = response.extensions().get::<FieldLines>().unwrap();
        let lines = String::from_utf8(lines.as_bytes().to_vec()).unwrap();
        let expected: String = (fields.iter())
            .map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap()))
            .collect();
        assert_eq!(lines, expected);
        assert!(response.headers().is_empty());
        FieldLines::put_among_fields(&mut response);
        assert_eq!(*response.headers(), fields);
        assert!(response.extensions().is_empty());

        let denial = Denial::of(&denied).unwrap();
        let usual = answers.denied(&denial, Dialect::Http);
        let mut response = answers.denied_in_lines(&denial, Dialect::Http);
        assert_eq!(response.headers().len(), 1, "{:?}", response.headers());
        FieldLines::put_among_fields(&mut response);
        assert_eq!(response.headers(), usual.headers());
        assert_eq!(response.body(), usual.body());
    }

    #[test]
    fn where_others_spoke_of_limits_there_are_no_lines() {
        let [passed, _] = decisions();
        let mut response = Response::new(());
        let theirs = HeaderValue::from_static("0");
        response
            .headers_mut()
            .insert("x-ratelimit-remaining", theirs);
        Answers::default().add_as_lines(&passed, &mut response);
        assert!(response.extensions().is_empty());
        assert!(response.headers().contains_key("ratelimit"));
    }
}
