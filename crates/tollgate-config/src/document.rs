//! What a YAML or JSON document says, as a tree with positions, and what is wrong with it.
//!
//! Scalars stay text: whether `10` is a number is for whoever reads the field to say, so `mode: off` is a word and
//! `plan: 1` a name. Everything is bounded, aliases and tags are refused, and every problem is collected with its
//! place. It knows nothing of Tollgate.
//!
//! The events of `saphyr-parser` are the base: no unsafe code, two small dependencies, and a position for every key and
//! value, so that many problems can be told at once. Libraries that fill structs stop at the first.

mod environment;
mod json;
mod mask;
mod parse;
mod position;
mod problem;
pub(crate) mod reading;
mod render;

use std::fmt;

pub use parse::{Document, LONGEST, decode, parse};
pub use position::Span;
pub use problem::{Problem, Problems, Severity, Spot};
pub use reading::{listed, parsed_duration, shortened, whole_number};

/// A value of a document, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where in the text; `None` for what came from elsewhere, such as a database.
    pub at: Option<Span>,
    /// What it says.
    pub value: Value,
}

/// What a [`Node`] says.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text, a number, true, false or nothing: see [`Scalar`].
    Scalar(Scalar),
    /// A list.
    List(Vec<Node>),
    /// Keys and values, in order.
    Map(Vec<Entry>),
    /// Something that is wrong and was complained about, so that nobody complains again.
    Unknown,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub key_at: Option<Span>,
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
    /// How it was written, if variables were replaced: the only form that may be shown.
    written: Option<Box<str>>,
}

impl Scalar {
    /// A scalar as it was written.
    #[must_use]
    pub fn new(text: impl Into<String>, quoted: bool) -> Self {
        Self {
            text: text.into(),
            quoted,
            written: None,
        }
    }

    /// The text that may be shown: `${NAME}` where a variable was replaced, as its value may be a secret.
    #[must_use]
    pub fn shown(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.text)
    }

    /// Whether a part of it came from the environment.
    #[must_use]
    pub fn is_from_environment(&self) -> bool {
        self.written.is_some()
    }

    /// Whether it says nothing: `key:` with nothing behind it, `null` or `~`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        !self.quoted
            && !self.is_from_environment()
            && matches!(&*self.text, "" | "~" | "null" | "Null" | "NULL")
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
        match &self.value {
            Value::Map(entries) => {
                let mut entries = entries.iter();
                entries
                    .find(|entry| entry.key == key)
                    .map(|entry| &entry.value)
            }
            _ => None,
        }
    }
}
