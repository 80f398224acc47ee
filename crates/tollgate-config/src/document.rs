//! A YAML or JSON document as a tree with positions, and the problems found in it.
//!
//! Scalars stay text: the reader of a field decides whether `10` is a number, so `mode: off` is a word and `plan: 1` a
//! name. Everything is bounded, aliases and tags are rejected, and all problems are collected with their locations.
//! Nothing here knows which fields a configuration has.
//!
//! The tree is built from the events of `saphyr-parser`, which have a position for every key and value. Libraries that
//! fill structs stop at the first error.

mod mask;
mod parse;
mod problem;
pub(crate) mod reading;

use std::cell::Cell;
use std::fmt;

use serde_json::{Map, Number, Value as Json};

pub use parse::{Document, MAX_BYTES, decode, parse};
pub use problem::{Location, Problem, Problems, Severity};
pub use reading::{listed, parsed_duration, shortened, whole_number};

/// A value of a document, and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The position in the text; `None` for a value from elsewhere, such as a database.
    pub span: Option<Span>,
    /// The value.
    pub value: Value,
}

/// The value of a [`Node`].
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text, a number, true, false or null: see [`Scalar`].
    Scalar(Scalar),
    /// A list.
    List(Vec<Node>),
    /// Keys and values, in order.
    Map(Vec<Entry>),
    /// A value with a problem that was already reported, so that no other is.
    Unknown,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The position of the key.
    pub key_span: Option<Span>,
    /// The value.
    pub value: Node,
}

/// A single value, as text.
#[derive(Clone, PartialEq)]
pub struct Scalar {
    /// The text, with variables replaced.
    pub text: String,
    /// Whether it was quoted, and so is text and nothing else.
    pub quoted: bool,
    /// The text before variables were replaced, if there were any: the only form that may be shown.
    written: Option<Box<str>>,
}

impl Scalar {
    /// A scalar without variables.
    #[must_use]
    pub fn new(text: impl Into<String>, quoted: bool) -> Self {
        Self {
            text: text.into(),
            quoted,
            written: None,
        }
    }

    /// The text that may be shown: `${NAME}` for a variable, because its value may be a secret.
    #[must_use]
    pub fn shown(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.text)
    }

    /// Whether a part of it came from the environment.
    #[must_use]
    pub fn is_from_environment(&self) -> bool {
        self.written.is_some()
    }

    /// Whether it is null: `key:` with nothing behind it, `null` or `~`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        !self.quoted
            && !self.is_from_environment()
            && matches!(&*self.text, "" | "~" | "null" | "Null" | "NULL")
    }

    fn to_json(&self) -> Json {
        // Only what JSON itself writes for a number becomes one, so that nothing is lost: `010` stays text.
        let number = |text: &str| {
            let number: Number = serde_json::from_str(text).ok()?;
            (number.to_string() == text).then_some(number)
        };
        match &*self.text {
            text if self.quoted => Json::from(text),
            _ if self.is_null() => Json::Null,
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            text => number(text).map_or_else(|| Json::from(text), Json::Number),
        }
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.shown(), f)
    }
}

impl Node {
    /// What a value of this kind is called in messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar(scalar) if scalar.is_null() => "nothing",
            Value::Scalar(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
            Value::Unknown => "something wrong",
        }
    }

    /// The value of a key, if this is a map that has it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The tree of a JSON value, without positions. A key whose value is `null` counts as absent.
    #[must_use]
    pub fn from_json(json: &Json) -> Self {
        let scalar = |text: String, quoted| Value::Scalar(Scalar::new(text, quoted));
        let value = match json {
            Json::String(text) => scalar(text.clone(), true),
            Json::Null | Json::Bool(_) | Json::Number(_) => scalar(json.to_string(), false),
            Json::Array(items) => Value::List(items.iter().map(Self::from_json).collect()),
            Json::Object(fields) => {
                let present = fields.iter().filter(|(_, value)| !value.is_null());
                let entries = present.map(|(key, value)| Entry {
                    key: key.clone(),
                    key_span: None,
                    value: Self::from_json(value),
                });
                Value::Map(entries.collect())
            }
        };
        Self { span: None, value }
    }

    /// The tree as JSON. An unquoted scalar that looks like a number, true, false or null becomes that.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match &self.value {
            Value::Scalar(scalar) => scalar.to_json(),
            Value::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Map(entries) => {
                let fields = entries.iter();
                let fields = fields.map(|entry| (entry.key.clone(), entry.value.to_json()));
                Json::Object(fields.collect::<Map<_, _>>())
            }
            Value::Unknown => Json::Null,
        }
    }
}

/// The path of a field of the map at `path`.
fn joined(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        _ => format!("{path}.{key}"),
    }
}

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
struct Positions<'a> {
    text: &'a str,
    /// The first byte and character of each line.
    lines: Vec<(usize, usize)>,
    /// The byte and character of the last lookup. The next is usually close, so a lookup need not walk the whole text.
    last: Cell<(usize, usize)>,
}

impl<'a> Positions<'a> {
    fn of(text: &'a str) -> Self {
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
    fn between_chars(&self, from: usize, to: usize) -> Span {
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
    fn at_byte(&self, byte: usize) -> Span {
        let before = self.text.get(..byte).unwrap_or(self.text);
        let nth = before.chars().count();
        self.between_chars(nth, nth + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_survives_a_round_trip() {
        let json = serde_json::json!({
            "id": "charges", "per": ["client"], "limit": { "rate": "10/s", "burst": 50 },
            "flag": true, "number": "50", "ratio": 0.5, "none": [null],
        });
        assert_eq!(Node::from_json(&json).to_json(), json);
    }

    #[test]
    fn null_counts_as_absent() {
        let node = Node::from_json(&serde_json::json!({ "id": "a", "plan": null }));
        assert!(node.get("plan").is_none());
    }

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
