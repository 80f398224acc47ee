//! A YAML or JSON document as a tree with positions, and the problems found in it.
//!
//! Scalars stay text: the reader of a field decides whether `10` is a number, so `mode: off` is a word and `plan: 1` a
//! name. Everything is bounded, aliases and tags are rejected, and all problems are collected with their locations.
//! Nothing here knows which fields a configuration has.
//!
//! The tree is built from the events of `saphyr-parser`, which have a position for every key and value. Libraries that
//! fill structs stop at the first error.

mod environment;
mod mask;
mod parse;
mod position;
mod problem;
pub(crate) mod reading;
mod render;

use std::fmt;

use serde_json::{Map, Number, Value as Json};

pub use parse::{Document, MAX_BYTES, decode, parse};
pub use position::Span;
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
}
