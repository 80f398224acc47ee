//! The body of a denial in the operator's own words: text with a few placeholders, read once and written for each denial.
//!
//! In JSON a placeholder within quotes becomes a part of that text, escaped; one outside of quotes becomes a value: a number, a
//! text with its quotes, or `null`. So a body that is JSON with one denial is JSON with all.

use std::fmt::{self, Write as _};

use serde::de::IgnoredAny;
use tollgate::words::nearest;
use tollgate_tower::answer::Denial;

use tollgate_http::headers::request_id;

/// The most bytes of a body, before its placeholders are replaced.
pub(crate) const LONGEST: usize = 16 * 1_024;

/// The most placeholders, so that a denial stays short whatever they stand for.
const MOST_PLACEHOLDERS: usize = 32;

/// What may stand between `{` and `}`.
pub(crate) const PLACEHOLDERS: &[&str] = &[
    "status",
    "detail",
    "rule",
    "limit",
    "retry_after",
    "retry_after_ms",
    "request_id",
];

/// A body that is right.
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

/// What is wrong with a body. Names are of the kind that placeholders have, and short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TemplateError {
    Empty,
    TooLong,
    TooMany,
    ControlCharacter {
        line: usize,
        column: usize,
    },
    Unknown {
        name: String,
        line: usize,
        column: usize,
    },
    NotJson {
        line: usize,
        column: usize,
    },
}

/// What a placeholder stands for.
enum Filled {
    Number(u64),
    Text(String),
    Nothing,
}

impl Template {
    /// Reads a body; `is_json` says whether it must be JSON.
    pub(crate) fn parse(text: &str, is_json: bool) -> Result<Self, TemplateError> {
        if text.is_empty() {
            return Err(TemplateError::Empty);
        }
        if text.len() > LONGEST {
            return Err(TemplateError::TooLong);
        }
        let is_odd = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
        if let Some(at) = text.find(is_odd) {
            let (line, column) = position(text, at);
            return Err(TemplateError::ControlCharacter { line, column });
        }
        let template = Self {
            pieces: pieces(text)?,
            is_json,
        };
        let values = template.pieces.iter();
        let values = values.filter(|piece| matches!(piece, Piece::Value { .. }));
        if values.count() > MOST_PLACEHOLDERS {
            return Err(TemplateError::TooMany);
        }
        if is_json {
            template.must_be_json()?;
        }
        Ok(template)
    }

    /// The body for a denial.
    pub(crate) fn write(&self, denial: &Denial<'_>) -> String {
        self.filled(|name| value_of(name, denial))
    }

    fn filled(&self, value: impl Fn(&'static str) -> Filled) -> String {
        let mut body = String::with_capacity(256);
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => body.push_str(text),
                Piece::Value { name, is_quoted } => {
                    let as_value = self.is_json && !is_quoted;
                    match value(name) {
                        // To write to text cannot fail.
                        Filled::Number(number) => drop(write!(body, "{number}")),
                        Filled::Text(text) if as_value => drop(write!(body, "{}", json(&text))),
                        Filled::Text(text) if self.is_json => {
                            let quoted = json(&text);
                            let inner = quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"'));
                            body.push_str(inner.unwrap_or_default());
                        }
                        Filled::Text(text) => body.push_str(&text),
                        Filled::Nothing if as_value => body.push_str("null"),
                        Filled::Nothing => {}
                    }
                }
            }
        }
        body
    }

    /// With all values and with none.
    fn must_be_json(&self) -> Result<(), TemplateError> {
        let all = |name| match name {
            "detail" | "rule" | "request_id" => Filled::Text("a".to_owned()),
            _ => Filled::Number(1),
        };
        for body in [self.filled(all), self.filled(|_| Filled::Nothing)] {
            if let Err(error) = serde_json::from_str::<IgnoredAny>(&body) {
                let (line, column) = (error.line(), error.column());
                return Err(TemplateError::NotJson { line, column });
            }
        }
        Ok(())
    }
}

/// `{name}`, with small letters and underscores between, is a placeholder; all other braces are text, as JSON and CSS have many.
fn pieces(text: &str) -> Result<Vec<Piece>, TemplateError> {
    let (mut pieces, mut quotes) = (Vec::new(), Quotes::default());
    let (mut from, mut at) = (0, 0);
    while let Some(open) = text.get(at..).and_then(|rest| rest.find('{')) {
        let open = at + open;
        quotes.pass(text.get(at..open).unwrap_or_default());
        at = open + 1;
        let rest = text.get(at..).unwrap_or_default();
        let Some(said) = rest.split_once('}').map(|(said, _)| said) else {
            break;
        };
        if said.is_empty() || !said.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
            continue;
        }
        let known = PLACEHOLDERS.iter().find(|name| **name == said);
        let Some(name) = known else {
            let (line, column) = position(text, open);
            let name = said.chars().take(40).collect();
            return Err(TemplateError::Unknown { name, line, column });
        };
        pieces.push(Piece::Text(text.get(from..open).unwrap_or_default().into()));
        pieces.push(Piece::Value {
            name,
            is_quoted: quotes.is_within,
        });
        at += said.len() + 1;
        from = at;
    }
    pieces.push(Piece::Text(text.get(from..).unwrap_or_default().into()));
    Ok(pieces)
}

/// Whether a place is within the quotes of JSON.
#[derive(Default)]
struct Quotes {
    is_within: bool,
    is_escaped: bool,
}

impl Quotes {
    fn pass(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                _ if self.is_escaped => self.is_escaped = false,
                '\\' => self.is_escaped = self.is_within,
                '"' => self.is_within = !self.is_within,
                _ => {}
            }
        }
    }
}

fn value_of(name: &str, denial: &Denial<'_>) -> Filled {
    let number = |number: Option<u64>| number.map_or(Filled::Nothing, Filled::Number);
    let text = |text: Option<&str>| text.map_or(Filled::Nothing, |text| Filled::Text(text.into()));
    let decision = denial.decision();
    match name {
        "status" => Filled::Number(denial.status().as_u16().into()),
        "detail" => Filled::Text(denial.detail()),
        "rule" => text(denial.violated().next()),
        "limit" => number(decision.limit()),
        "retry_after" => number(denial.retry_after_seconds()),
        "retry_after_ms" => number(denial.retry_after_ms()),
        _ => text((denial.request_headers().and_then(request_id)).and_then(|id| id.to_str().ok())),
    }
}

fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Line and column of a byte, from 1, in characters.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let column = before.get(line_start..).unwrap_or_default();
    (before.matches('\n').count() + 1, column.chars().count() + 1)
}

impl TemplateError {
    /// What to do about it.
    pub(crate) fn help(&self) -> String {
        let all = || format!("known are {{{}}}", PLACEHOLDERS.join("}, {"));
        match self {
            Self::Unknown { name, .. } => match nearest(name, PLACEHOLDERS) {
                Some(meant) => format!("did you mean {{{meant}}}?"),
                None => all(),
            },
            Self::NotJson { .. } => {
                "outside of quotes a placeholder is a whole value: {\"rule\": {rule}}".to_owned()
            }
            Self::Empty => "write a text, or leave `denied` out for problem details".to_owned(),
            Self::TooLong | Self::TooMany | Self::ControlCharacter { .. } => {
                "a denial should cost little: keep it short and plain".to_owned()
            }
        }
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the body is empty"),
            Self::TooLong => write!(f, "the body is longer than {} KiB", LONGEST / 1_024),
            Self::TooMany => write!(f, "the body has more than {MOST_PLACEHOLDERS} placeholders"),
            Self::ControlCharacter { line, column } => write!(
                f,
                "the body has a control character, in its line {line} at column {column}"
            ),
            Self::Unknown { name, line, column } => write!(
                f,
                "there is no placeholder {{{name}}}, in line {line} of the body at column {column}"
            ),
            Self::NotJson { line, column } => write!(
                f,
                "content_type says JSON, and the body is none: see its line {line}, about column {column}"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
