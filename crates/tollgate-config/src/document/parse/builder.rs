//! From the parser's events to a tree, and messages for text that is not YAML.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span as Marks, StrInput};

use super::{Document, MAX_DEPTH, MAX_NODES};
use crate::document::parse::{Environment, Replaced, VariableError};
use crate::document::problem::{Location, Problem};
use crate::document::reading::shortened;
use crate::document::{Entry, Node, Positions, Scalar, Span, Value, joined};

/// A list or a map that is not complete.
enum Open {
    List(Span, Vec<Node>),
    Map(Span, OpenMap),
}

#[derive(Default)]
struct OpenMap {
    entries: Vec<Entry>,
    /// The first position of each key.
    known: HashMap<String, Span>,
    /// A key that waits for its value; without a name if its value is to be dropped.
    key: Option<(Option<String>, Span)>,
}

pub(super) struct Builder<'a> {
    pub(super) positions: &'a Positions<'a>,
    env: &'a Environment<'a>,
    open: Vec<Open>,
    document: Document,
    /// The position at which the text stops being YAML.
    pub(super) broken_at: Option<Span>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(positions: &'a Positions<'a>, env: &'a Environment<'a>) -> Self {
        Self {
            positions,
            env,
            open: Vec::new(),
            document: Document::default(),
            broken_at: None,
        }
    }

    /// The tree of a text, if it could be read to its end, and the problems.
    pub(super) fn build(&mut self, text: &str) -> Document {
        let mut parser = Parser::new_from_str(text);
        if self.run(text, &mut parser).is_none() {
            self.document.root = None;
        }
        std::mem::take(&mut self.document)
    }

    /// Reads all events; `None` where it has to stop early.
    fn run(&mut self, text: &str, parser: &mut Parser<'_, StrInput<'_>>) -> Option<()> {
        let (mut nodes, mut documents) = (0, 0);
        while let Some(event) = parser.next_event() {
            let (event, marks) = match event {
                Ok(event) => event,
                Err(error) => {
                    self.broken_at = Some(self.report_broken(text, &error));
                    return None;
                }
            };
            let span = self.span(marks);
            nodes += 1;
            if nodes > MAX_NODES {
                self.error(span, "the document has too many keys and values")
                    .help("keep this many rules in a database");
                return None;
            }
            match event {
                Event::DocumentStart(_) if documents > 0 => {
                    self.error(span, "a second document begins here")
                        .help("a configuration is one document: remove the \"---\" and what belongs to another");
                    return None;
                }
                Event::DocumentStart(_) => documents += 1,
                Event::Scalar(text, style, anchor, tag) => {
                    self.reject_anchor_and_tag(span, anchor, tag.is_some());
                    let quoted = style != ScalarStyle::Plain;
                    self.scalar(span, Scalar::new(text.into_owned(), quoted));
                }
                Event::Alias(_) => {
                    self.error(span, "aliases (*name) are not supported")
                        .help("write the value out; a value that begins with \"*\" needs quotes");
                    self.place(span, Value::Unknown);
                }
                Event::SequenceStart(anchor, tag) => {
                    self.reject_anchor_and_tag(span, anchor, tag.is_some());
                    self.open.push(Open::List(span, Vec::new()));
                }
                Event::MappingStart(anchor, tag) => {
                    self.reject_anchor_and_tag(span, anchor, tag.is_some());
                    self.open.push(Open::Map(span, OpenMap::default()));
                }
                Event::SequenceEnd | Event::MappingEnd => match self.open.pop()? {
                    Open::List(span, items) => self.place(span, Value::List(items)),
                    Open::Map(span, map) => self.place(span, Value::Map(map.entries)),
                },
                Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            }
            if self.open.len() > MAX_DEPTH {
                let message = format!("this is nested more than {MAX_DEPTH} levels deep");
                self.error(span, message);
                return None;
            }
        }
        Some(())
    }

    fn span(&self, marks: Marks) -> Span {
        let (from, to) = (marks.start.index(), marks.end.index());
        self.positions.between_chars(from, to.max(from))
    }

    pub(super) fn error(&mut self, span: Span, message: impl Into<String>) -> &mut Problem {
        let (span, path) = (Some(span), self.path());
        let location = Location { span, path };
        self.document.problems.error(location, message)
    }

    /// The path of the field that is being read.
    fn path(&self) -> String {
        self.open
            .iter()
            .fold(String::new(), |path, open| match open {
                Open::List(_, items) => format!("{path}[{}]", items.len()),
                Open::Map(
                    _,
                    OpenMap {
                        key: Some((Some(key), _)),
                        ..
                    },
                ) => joined(&path, key),
                Open::Map(..) => path,
            })
    }

    fn reject_anchor_and_tag(&mut self, span: Span, anchor: usize, is_tagged: bool) {
        if anchor > 0 {
            self.error(span, "anchors (&name) are not supported")
                .help("remove the anchor; a value that begins with \"&\" needs quotes");
        }
        if is_tagged {
            self.error(span, "tags (!name) are not supported")
                .help("remove the tag; a value that begins with \"!\" needs quotes");
        }
    }

    fn scalar(&mut self, span: Span, scalar: Scalar) {
        let Some(Open::Map(
            _,
            OpenMap {
                known,
                key: key @ None,
                ..
            },
        )) = self.open.last_mut()
        else {
            let value = self.with_variables(span, scalar);
            return self.place(span, value);
        };
        if scalar.is_null() {
            *key = Some((None, span));
            self.error(span, "a key is missing before the \":\"");
            return;
        }
        let name = scalar.text;
        let Some(first) = known.get(&name).copied() else {
            known.insert(name.clone(), span);
            *key = Some((Some(name), span));
            return;
        };
        *key = Some((None, span));
        let message = format!(
            "{} is set twice, first in line {}",
            shortened(&name),
            first.line
        );
        let problem = self.error(span, message);
        problem.location.path = joined(&problem.location.path, &name);
        problem
            .help("keep one of them")
            .related(Some(first), "first set here");
    }

    fn with_variables(&mut self, span: Span, scalar: Scalar) -> Value {
        if !scalar.text.contains('$') {
            return Value::Scalar(scalar);
        }
        match super::replace_variables(&scalar.text, self.env) {
            Ok(Replaced {
                text,
                has_variables,
            }) => Value::Scalar(Scalar {
                written: has_variables.then(|| scalar.text.into()),
                text,
                ..scalar
            }),
            Err(VariableError::Unset(name)) => {
                self.error(span, format!("the environment variable {name} is not set"))
                    .help(format!(
                        "set {name}, or give a default: ${{{name}:-default}}"
                    ));
                Value::Unknown
            }
            Err(VariableError::Syntax) => {
                self.error(
                    span,
                    "\"${\" begins a variable, but no name and \"}\" follow",
                )
                .help("write ${NAME} or ${NAME:-default}, or $${ for the characters \"${\"");
                Value::Unknown
            }
        }
    }

    /// Puts a complete value where it belongs.
    fn place(&mut self, span: Span, value: Value) {
        let node = Node {
            span: Some(span),
            value,
        };
        match self.open.last_mut() {
            None => self.document.root = Some(node),
            Some(Open::List(_, items)) => items.push(node),
            Some(Open::Map(_, map)) => match map.key.take() {
                Some((Some(key), key_span)) => map.entries.push(Entry {
                    key,
                    key_span: Some(key_span),
                    value: node,
                }),
                Some((None, _)) => {}
                None => {
                    map.key = Some((None, span));
                    self.error(span, "a key must be a word, not a list or a map")
                        .help("a value that begins with \"{\" or \"[\" needs quotes");
                }
            },
        }
    }
}

const NEEDS_QUOTES: &str = "a value with \": \", \" #\", \"{\", \"}\", \"[\", \"]\" or \",\" in it, or one that begins with \
                            \"*\", \"&\", \"!\", \"%\" or \"@\", needs quotes";

impl Builder<'_> {
    /// Reports that the text is not YAML, and returns from where on.
    pub(super) fn report_broken(&mut self, text: &str, error: &ScanError) -> Span {
        let from = error.marker().index();
        let span = self.positions.between_chars(from, from + 1);
        if let Some(tab) = tab_in_indentation(text, span.line) {
            let span = self.positions.at_byte(tab);
            self.error(
                span,
                "a tab in the indentation; YAML allows only spaces there",
            )
            .help("replace it with spaces");
            return span;
        }
        let before = text.get(..span.start).unwrap_or_default();
        let after = text.get(span.start..).unwrap_or_default();
        let info = error.info();
        let (message, help) = if info.contains("flow mapping, did not find")
            && after.starts_with('{')
        {
            match before.ends_with('$') {
                true => (
                    "a variable needs quotes within { } and [ ]".to_owned(),
                    "put the whole value in quotes, as in \"${NAME}\"",
                ),
                false => (
                    "a \"{\" in a value needs quotes within { } and [ ]".to_owned(),
                    "put the whole value in quotes, as in \"/v1/{id}\"",
                ),
            }
        } else if info.contains("mapping values are not allowed") && is_key_without_a_space(before)
        {
            (
                "a space is missing after the \":\" in the line before".to_owned(),
                "write it as in id: client",
            )
        } else {
            explain(info)
        };
        self.error(span, message).help(help);
        span
    }
}

/// The first byte that is a tab in the indentation of this line or its neighbours: the parser may stop at any of them.
fn tab_in_indentation(text: &str, line: usize) -> Option<usize> {
    let mut start = 0;
    for (nth, text) in text.split_inclusive('\n').enumerate() {
        let indent = text.len() - text.trim_start().len();
        let tab = text.get(..indent)?.find('\t');
        if let (Some(tab), true) = (tab, (nth + 1).abs_diff(line) <= 1) {
            return Some(start + tab);
        }
        start += text.len();
    }
    None
}

/// Whether the line above is one such as `- id:client`.
fn is_key_without_a_space(before: &str) -> bool {
    let above = before.lines().rev().nth(1).unwrap_or_default();
    let pair = above.trim().trim_start_matches("- ").split_once(':');
    let (key, value) = pair.unwrap_or_default();
    let is_word = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_word && value.starts_with(|c: char| !c.is_whitespace())
}

/// A part of the parser's message, a message in plain words, and what to do; `quotes` is for [`NEEDS_QUOTES`].
const MESSAGES: &str = r#"
illegal placement of ':'            | unexpected ":": a "[" or "{" before it is not closed               | quotes
indentation in quoted scalar        | the quote that opens here is never closed                          | close it in the same line
recursion limit                     | this is nested more than 32 levels deep                            | write it flatter
mapping values are not allowed      | a second ":" in this line                                          | quotes
flow mapping, did not find expected | expected "," or "}" here: the map that "{" began is not closed     | quotes
flow sequence, expected             | expected "," or "]" here: the list that "[" began is not closed    | quotes
block mapping, did not find expected key | expected a key and a ":" here                                 | all keys of a map begin in the same column
did not find expected '-' indicator | expected "-" here, for the next item of the list                   | all "-" of a list are in the same column
simple key expect                   | expected a ":" after this key                                      | quotes
quoted scalar, found unexpected end of stream | a quote is never closed                                  | look for the line where it begins
unknown escape character            | YAML has no such escape sequence                                   | write "\\" for a backslash, or use single quotes
unknown anchor                      | "*" begins an alias, but no anchor has this name                   | quotes
scanning an anchor or alias         | "*" and "&" begin an alias or anchor                               | quotes
misplaced bracket                   | this bracket closes nothing                                        | quotes
unexpected character                | YAML does not allow this character here                            | quotes
invalid indentation                 | this line is not indented enough                                   | indent it more than the line it belongs to
tab                                 | YAML does not allow a tab here                                     | use spaces
did not find expected <document     | this does not belong to the document before it                     | quotes
"#;

/// The parser's message in plain words, with what to do.
fn explain(info: &str) -> (String, &'static str) {
    let rows = MESSAGES.lines().filter_map(|line| {
        let mut columns = line.split(" | ").map(str::trim);
        Some((columns.next()?, columns.next()?, columns.next()?))
    });
    match rows.into_iter().find(|(part, ..)| info.contains(part)) {
        Some((_, message, "quotes")) => (message.to_owned(), NEEDS_QUOTES),
        Some((_, message, help)) => (message.to_owned(), help),
        None => (format!("this is not YAML: {info}"), ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_three_columns() {
        for line in MESSAGES.trim().lines() {
            let columns: Vec<&str> = line.split(" | ").map(str::trim).collect();
            assert!(columns.len() == 3 && !columns.contains(&""), "{line}");
        }
    }
}
