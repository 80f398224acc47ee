//! The body of denials as a template: text with a few placeholders, parsed once and filled in for each denial.
//!
//! In JSON, a placeholder within quotes becomes a part of that string, escaped; one outside of quotes becomes a value: a
//! number, a string with its quotes, or `null`. So a body that is JSON with one denial is JSON with all of them.

use std::fmt::Write as _;

use serde::de::IgnoredAny;
use serde_json::Value as Json;
use tollgate_http::headers::request_id;
use tollgate_tower::answer::Denial;

use crate::text::nearest;

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

/// Why a template is not valid.
#[derive(Debug)]
pub(crate) struct TemplateError {
    pub(crate) message: String,
    pub(crate) help: String,
    /// Whether the message has a part of the template in it, which has the form of a placeholder and is short.
    pub(crate) quotes_text: bool,
}

impl TemplateError {
    fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: help.into(),
            quotes_text: false,
        }
    }
}

impl Template {
    /// Parses a template, which must be JSON if `is_json`.
    pub(crate) fn parse(text: &str, is_json: bool) -> Result<Self, TemplateError> {
        let too_much = |what: String| {
            let help = "a denial should cost little: keep it short and plain";
            Err(TemplateError::new(format!("the body {what}"), help))
        };
        if text.is_empty() {
            let help = "write a text, or remove `denied` for problem details";
            return Err(TemplateError::new("the body is empty", help));
        }
        if text.len() > MAX_BYTES {
            return too_much(format!("is longer than {} KiB", MAX_BYTES >> 10));
        }
        let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
        if let Some(at) = text.find(is_control) {
            let position = position(text, at);
            return too_much(format!("has a control character at {position}"));
        }
        let template = Self {
            pieces: pieces(text)?,
            is_json,
        };
        let values = template.pieces.iter();
        let values = values.filter(|piece| matches!(piece, Piece::Value { .. }));
        if values.count() > MAX_PLACEHOLDERS {
            return too_much(format!("has more than {MAX_PLACEHOLDERS} placeholders"));
        }
        if is_json {
            template.check_json()?;
        }
        Ok(template)
    }

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
                let (line, column) = (error.line(), error.column());
                let message = format!(
                    "content_type is JSON, but the body is not: see its line {line}, column {column}"
                );
                let help = "outside of quotes a placeholder is a whole value: {\"rule\": {rule}}";
                return Err(TemplateError::new(message, help));
            }
        }
        Ok(())
    }
}

/// `{name}`, with lower-case letters and underscores, is a placeholder. All other braces are text; JSON and CSS have many.
fn pieces(text: &str) -> Result<Vec<Piece>, TemplateError> {
    let (mut pieces, mut from) = (Vec::new(), 0);
    for (open, _) in text.match_indices('{') {
        let Some((inside, _)) = text[open + 1..].split_once('}') else {
            break;
        };
        if inside.is_empty() || !inside.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
            continue;
        }
        let Some(name) = PLACEHOLDERS.iter().find(|name| **name == inside) else {
            return Err(unknown(inside, &position(text, open)));
        };
        pieces.push(Piece::Text(text[from..open].into()));
        pieces.push(Piece::Value {
            name,
            is_quoted: ends_within_quotes(&text[..open]),
        });
        from = open + inside.len() + 2;
    }
    pieces.push(Piece::Text(text[from..].into()));
    Ok(pieces)
}

fn unknown(name: &str, position: &str) -> TemplateError {
    let name: String = name.chars().take(40).collect();
    let help = match nearest(&name, PLACEHOLDERS) {
        Some(similar) => format!("did you mean {{{similar}}}?"),
        None => format!("the placeholders are {{{}}}", PLACEHOLDERS.join("}, {")),
    };
    let message = format!("there is no placeholder {{{name}}}, at {position} of the body");
    TemplateError {
        quotes_text: true,
        ..TemplateError::new(message, help)
    }
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

/// Line and column of a byte, from 1, in characters.
fn position(text: &str, byte: usize) -> String {
    let before = &text[..byte];
    let line = before.rsplit('\n').next().unwrap_or_default();
    let (line, column) = (before.matches('\n').count() + 1, line.chars().count() + 1);
    format!("line {line}, column {column}")
}

#[cfg(test)]
mod tests;
