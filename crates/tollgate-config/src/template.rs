//! The body of denials as a template: text with a few placeholders, parsed once and filled in for each denial.
//!
//! In JSON, a placeholder within quotes becomes a part of that string, escaped; one outside of quotes becomes a value: a
//! number, a string with its quotes, or `null`. So a body that is JSON with one denial is JSON with all of them.

use std::fmt::{self, Write as _};

use serde::de::IgnoredAny;
use serde_json::Value as Json;
use tollgate::words::nearest;
use tollgate_http::headers::request_id;
use tollgate_tower::answer::Denial;

/// Maximum size of a template.
pub(crate) const MAX_BYTES: usize = 16 << 10;

/// Maximum number of placeholders, which bounds the size of a denial.
const MAX_PLACEHOLDERS: usize = 32;

/// The names between `{` and `}`.
const PLACEHOLDERS: &[&str] = &[
    "status",
    "detail",
    "rule",
    "limit",
    "retry_after",
    "retry_after_ms",
    "request_id",
];

/// A valid template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
    is_json: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    /// One of [`PLACEHOLDERS`].
    Value {
        name: &'static str,
        is_quoted: bool,
    },
}

/// Why a template is not valid. Names have the form of placeholders, and are short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TemplateError {
    Empty,
    TooLong,
    TooMany,
    ControlCharacter(Position),
    Unknown(String, Position),
    NotJson(Position),
}

/// A line and a column, from 1, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position(usize, usize);

impl Template {
    /// Parses a template, which must be JSON if `is_json`.
    pub(crate) fn parse(text: &str, is_json: bool) -> Result<Self, TemplateError> {
        if text.is_empty() {
            return Err(TemplateError::Empty);
        }
        if text.len() > MAX_BYTES {
            return Err(TemplateError::TooLong);
        }
        let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
        if let Some(at) = text.find(is_control) {
            return Err(TemplateError::ControlCharacter(Position::of(text, at)));
        }
        let template = Self {
            pieces: pieces(text)?,
            is_json,
        };
        let values = template.pieces.iter();
        let values = values.filter(|piece| matches!(piece, Piece::Value { .. }));
        if values.count() > MAX_PLACEHOLDERS {
            return Err(TemplateError::TooMany);
        }
        if is_json {
            template.check_json()?;
        }
        Ok(template)
    }

    /// The body for a denial.
    pub(crate) fn write(&self, denial: &Denial<'_>) -> String {
        self.filled(|name| value_of(name, denial))
    }

    fn filled(&self, value: impl Fn(&'static str) -> Json) -> String {
        let mut body = String::with_capacity(256);
        for piece in &self.pieces {
            let (name, is_quoted) = match piece {
                Piece::Value { name, is_quoted } => (name, is_quoted),
                Piece::Text(text) => {
                    body.push_str(text);
                    continue;
                }
            };
            match value(name) {
                Json::Null if *is_quoted || !self.is_json => {}
                Json::String(text) if !self.is_json => body.push_str(&text),
                text @ Json::String(_) if *is_quoted => {
                    let quoted = text.to_string();
                    let inner = quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"'));
                    body.push_str(inner.unwrap_or_default());
                }
                // Writing to a string cannot fail.
                value => drop(write!(body, "{value}")),
            }
        }
        body
    }

    /// Checks that it is JSON with all values, and with none.
    fn check_json(&self) -> Result<(), TemplateError> {
        let all = |name| match name {
            "detail" | "rule" | "request_id" => Json::from("a"),
            _ => Json::from(1),
        };
        for body in [self.filled(all), self.filled(|_| Json::Null)] {
            if let Err(error) = serde_json::from_str::<IgnoredAny>(&body) {
                let position = Position(error.line(), error.column());
                return Err(TemplateError::NotJson(position));
            }
        }
        Ok(())
    }
}

/// `{name}`, with lower-case letters and underscores, is a placeholder. All other braces are text; JSON and CSS have many.
fn pieces(text: &str) -> Result<Vec<Piece>, TemplateError> {
    let mut pieces = Vec::new();
    let (mut from, mut at) = (0, 0);
    while let Some(open) = text.get(at..).and_then(|rest| rest.find('{')) {
        let open = at + open;
        at = open + 1;
        let rest = text.get(at..).unwrap_or_default();
        let Some((inside, _)) = rest.split_once('}') else {
            break;
        };
        if inside.is_empty() || !inside.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
            continue;
        }
        let Some(name) = PLACEHOLDERS.iter().find(|name| **name == inside) else {
            let name = inside.chars().take(40).collect();
            return Err(TemplateError::Unknown(name, Position::of(text, open)));
        };
        pieces.push(Piece::Text(text.get(from..open).unwrap_or_default().into()));
        pieces.push(Piece::Value {
            name,
            is_quoted: ends_within_quotes(&text[..open]),
        });
        at += inside.len() + 1;
        from = at;
    }
    pieces.push(Piece::Text(text.get(from..).unwrap_or_default().into()));
    Ok(pieces)
}

/// Whether a text ends within the quotes of JSON.
fn ends_within_quotes(text: &str) -> bool {
    let (mut is_within, mut chars) = (false, text.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' if is_within => drop(chars.next()),
            '"' => is_within = !is_within,
            _ => {}
        }
    }
    is_within
}

fn value_of(name: &str, denial: &Denial<'_>) -> Json {
    match name {
        "status" => denial.status().as_u16().into(),
        "detail" => denial.detail().into(),
        "rule" => denial.violated().next().into(),
        "limit" => denial.decision().limit().into(),
        "retry_after" => denial.retry_after_seconds().into(),
        "retry_after_ms" => denial.retry_after_ms().into(),
        _ => {
            let id = denial.request_headers().and_then(request_id);
            id.and_then(|id| id.to_str().ok()).into()
        }
    }
}

impl Position {
    /// The position of a byte.
    fn of(text: &str, byte: usize) -> Self {
        let before = text.get(..byte).unwrap_or_default();
        let line = before.rsplit('\n').next().unwrap_or_default();
        Self(before.matches('\n').count() + 1, line.chars().count() + 1)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.0, self.1)
    }
}

impl TemplateError {
    /// What to do about it.
    pub(crate) fn help(&self) -> String {
        match self {
            Self::Unknown(name, _) => match nearest(name, PLACEHOLDERS) {
                Some(similar) => format!("did you mean {{{similar}}}?"),
                None => format!("the placeholders are {{{}}}", PLACEHOLDERS.join("}, {")),
            },
            Self::NotJson(_) => {
                "outside of quotes a placeholder is a whole value: {\"rule\": {rule}}".to_owned()
            }
            Self::Empty => "write a text, or remove `denied` for problem details".to_owned(),
            Self::TooLong | Self::TooMany | Self::ControlCharacter(_) => {
                "a denial should cost little: keep it short and plain".to_owned()
            }
        }
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the body is empty"),
            Self::TooLong => write!(f, "the body is longer than {} KiB", MAX_BYTES >> 10),
            Self::TooMany => write!(f, "the body has more than {MAX_PLACEHOLDERS} placeholders"),
            Self::ControlCharacter(at) => write!(f, "the body has a control character at {at}"),
            Self::Unknown(name, at) => {
                write!(f, "there is no placeholder {{{name}}}, at {at} of the body")
            }
            Self::NotJson(at) => {
                write!(f, "content_type is JSON, but the body is not: see its {at}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
