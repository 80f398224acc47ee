//! From the parser's events to a tree.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span as Marks, StrInput};

use super::{DEEPEST, Document, MOST_NODES};
use crate::document::position::{Positions, Span};
use crate::document::problem::{Problem, Problems, Spot};
use crate::document::reading::shortened;
use crate::document::{Entry, Node, Scalar, Value};

/// A list or a map that is not finished.
enum Open {
    List {
        at: Span,
        items: Vec<Node>,
    },
    Map {
        at: Span,
        entries: Vec<Entry>,
        /// Where each key first stood.
        known: HashMap<String, Span>,
        /// A key that waits for its value; without a name if its value is to be forgotten.
        key: Option<(Option<String>, Span)>,
    },
}

pub(super) struct Builder<'a> {
    pub(super) positions: &'a Positions<'a>,
    open: Vec<Open>,
    root: Option<Node>,
    documents: usize,
    problems: Problems,
    /// Where the text stops being YAML.
    pub(super) broken_at: Option<Span>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(positions: &'a Positions<'a>) -> Self {
        Self {
            positions,
            open: Vec::new(),
            root: None,
            documents: 0,
            problems: Problems::default(),
            broken_at: None,
        }
    }

    pub(super) fn document(self, finished: bool) -> Document {
        Document {
            root: self.root.filter(|_| finished),
            problems: self.problems,
        }
    }

    /// Takes all events; `false` if the text is broken and ends early.
    pub(super) fn run(&mut self, text: &str, parser: &mut Parser<'_, StrInput<'_>>) -> bool {
        let mut nodes = 0;
        while let Some(event) = parser.next_event() {
            let (event, marks) = match event {
                Ok(event) => event,
                Err(error) => {
                    self.broken_at = Some(self.broken(text, &error));
                    return false;
                }
            };
            let at = self.span(marks);
            nodes += 1;
            if nodes > MOST_NODES {
                self.error(at, "these are too many keys and values for one document")
                    .help("keep this many rules in a database");
                return false;
            }
            match event {
                Event::DocumentStart(_) if self.documents > 0 => {
                    self.error(at, "a second document begins here")
                        .help("a configuration is one document: leave out the \"---\", and what belongs to another");
                    return false;
                }
                Event::DocumentStart(_) => self.documents += 1,
                Event::Scalar(text, style, anchor, tag) => {
                    self.plain_only(at, anchor, tag.is_some());
                    let quoted = style != ScalarStyle::Plain;
                    self.scalar(at, Scalar::new(text.into_owned(), quoted));
                }
                Event::Alias(_) => {
                    self.error(at, "aliases (*name) are not understood here")
                        .help("write the value out; a value that begins with \"*\" needs quotes");
                    self.place(at, Node::unknown(at));
                }
                Event::SequenceStart(anchor, tag) => {
                    self.plain_only(at, anchor, tag.is_some());
                    let items = Vec::new();
                    self.open.push(Open::List { at, items });
                }
                Event::MappingStart(anchor, tag) => {
                    self.plain_only(at, anchor, tag.is_some());
                    self.open.push(Open::Map {
                        at,
                        entries: Vec::new(),
                        known: HashMap::new(),
                        key: None,
                    });
                }
                Event::SequenceEnd | Event::MappingEnd => self.close(),
                Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            }
            if self.open.len() > DEEPEST {
                let message = format!("this is nested more than {DEEPEST} levels deep");
                self.error(at, message);
                return false;
            }
        }
        true
    }

    fn span(&self, marks: Marks) -> Span {
        let (from, to) = (marks.start.index(), marks.end.index());
        self.positions.between_chars(from, to.max(from))
    }

    pub(super) fn error(&mut self, at: Span, message: impl Into<String>) -> &mut Problem {
        let spot = Spot {
            at: Some(at),
            path: self.path(),
        };
        self.problems.error(spot, message)
    }

    /// The field that is being read.
    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.open {
            match open {
                Open::List { items, .. } => path.push_str(&format!("[{}]", items.len())),
                Open::Map {
                    key: Some((Some(key), _)),
                    ..
                } => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(key);
                }
                Open::Map { .. } => {}
            }
        }
        path
    }

    fn plain_only(&mut self, at: Span, anchor: usize, is_tagged: bool) {
        if anchor > 0 {
            self.error(at, "anchors (&name) are not understood here")
                .help("leave the anchor out; a value that begins with \"&\" needs quotes");
        }
        if is_tagged {
            self.error(at, "tags (!name) are not understood here")
                .help("leave the tag out; a value that begins with \"!\" needs quotes");
        }
    }

    fn scalar(&mut self, at: Span, scalar: Scalar) {
        let Some(Open::Map {
            known,
            key: key @ None,
            ..
        }) = self.open.last_mut()
        else {
            let node = Node {
                at: Some(at),
                value: Value::Scalar(scalar),
            };
            return self.place(at, node);
        };
        if scalar.is_null() {
            *key = Some((None, at));
            self.error(at, "a key is missing before the \":\"");
            return;
        }
        let name = scalar.text;
        match known.get(&name) {
            Some(first) => {
                let first = *first;
                *key = Some((None, at));
                let spot = Spot {
                    at: Some(at),
                    path: join(&self.path(), &name),
                };
                let shown = shortened(&name);
                self.problems
                    .error(
                        spot,
                        format!(
                            "{shown} is said twice; it was said first in line {}",
                            first.line
                        ),
                    )
                    .help("keep one of them")
                    .also(Some(first), "first said here");
            }
            None => {
                known.insert(name.clone(), at);
                *key = Some((Some(name), at));
            }
        }
    }

    /// Puts a finished value where it belongs.
    fn place(&mut self, at: Span, node: Node) {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Map { entries, key, .. }) => match key.take() {
                Some((Some(key), key_at)) => entries.push(Entry {
                    key,
                    key_at: Some(key_at),
                    value: node,
                }),
                Some((None, _)) => {}
                None => {
                    *key = Some((None, at));
                    self.error(at, "a key has to be a word, not a list or a map")
                        .help("a value that begins with \"{\" or \"[\" needs quotes");
                }
            },
        }
    }

    fn close(&mut self) {
        let (at, value) = match self.open.pop() {
            Some(Open::List { at, items }) => (at, Value::List(items)),
            Some(Open::Map { at, entries, .. }) => (at, Value::Map(entries)),
            None => return,
        };
        let node = Node {
            at: Some(at),
            value,
        };
        self.place(at, node);
    }
}

impl Node {
    fn unknown(at: Span) -> Self {
        Self {
            at: Some(at),
            value: Value::Unknown,
        }
    }
}

fn join(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        _ => format!("{path}.{key}"),
    }
}
