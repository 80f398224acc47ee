//! From bytes to a tree.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span as Marks, StrInput};

use super::environment::{self, Environment};
use super::position::{Positions, Span};
use super::problem::{Problem, Problems, Severity, Spot};
use super::{Entry, Node, Scalar, Value};

/// The largest document, in bytes: 10,000 rules take about 3 MB.
pub const LONGEST: usize = 16 << 20;

/// The deepest nesting: nothing that makes sense here is deeper than six.
const DEEPEST: usize = 32;

/// What was read, as far as it could be.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// The tree; `None` if the text is not a document at all.
    pub root: Option<Node>,
    /// What is wrong with it so far.
    pub problems: Problems,
}

/// The text of a file: UTF-8, no longer than [`LONGEST`]. A byte order mark is left out.
///
/// # Errors
/// When it is too long or not UTF-8; the problem says at which line and column.
pub fn decode(bytes: &[u8]) -> Result<&str, Box<Problem>> {
    let wrong = |at, message: &str| {
        let spot = Spot {
            at,
            path: String::new(),
        };
        Box::new(Problem::new(Severity::Error, spot, message))
    };
    if bytes.len() > LONGEST {
        let mut problem = wrong(
            None,
            &format!("the file is larger than {} MiB", LONGEST / 1024 / 1024),
        );
        problem.help("keep this many rules in a database: see `database`");
        return Err(problem);
    }
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        let mut problem = wrong(None, "the file is UTF-16 text");
        problem.help("save it as UTF-8");
        return Err(problem);
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let good = std::str::from_utf8(good).unwrap_or_default();
        let line = good.rsplit('\n').next().unwrap_or_default();
        let at = Span {
            start: good.len(),
            end: good.len(),
            line: good.matches('\n').count() + 1,
            column: line.chars().count() + 1,
        };
        let mut problem = wrong(Some(at), "this byte is not UTF-8 text");
        problem.help("save the file as UTF-8");
        problem
    })
}

/// Reads a YAML or JSON document, and replaces the variables in its values.
#[must_use]
pub fn parse(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Document {
    let mut document = tree(text);
    if let Some(root) = &mut document.root {
        let env: &Environment<'_> = env;
        environment::replace(root, "", env, &mut document.problems);
    }
    document
}

fn tree(text: &str) -> Document {
    let mut problems = Problems::default();
    if text.len() > LONGEST {
        let spot = Spot::default();
        problems.error(spot, "the document is too long");
        return Document {
            root: None,
            problems,
        };
    }
    let positions = Positions::of(text);
    let mut builder = Builder {
        positions: &positions,
        open: Vec::new(),
        root: None,
        documents: 0,
        problems,
    };
    let mut parser = Parser::new_from_str(text);
    let finished = builder.run(text, &mut parser);
    Document {
        root: builder.root.filter(|_| finished),
        problems: builder.problems,
    }
}

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

struct Builder<'a> {
    positions: &'a Positions<'a>,
    open: Vec<Open>,
    root: Option<Node>,
    documents: usize,
    problems: Problems,
}

impl Builder<'_> {
    /// Takes all events; `false` if the text is broken and ends early.
    fn run(&mut self, text: &str, parser: &mut Parser<'_, StrInput<'_>>) -> bool {
        while let Some(event) = parser.next_event() {
            let (event, marks) = match event {
                Ok(event) => event,
                Err(error) => {
                    self.broken(text, &error);
                    return false;
                }
            };
            let at = self.span(marks);
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

    fn error(&mut self, at: Span, message: impl Into<String>) -> &mut Problem {
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
                let shown = super::reading::shortened(&name);
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

    /// The text is not YAML from here on.
    fn broken(&mut self, text: &str, error: &ScanError) {
        let from = error.marker().index();
        let at = self.positions.between_chars(from, from + 1);
        let lines = text.lines().skip(at.line.saturating_sub(2)).take(2);
        let with_tab = |(nth, line): (usize, &str)| {
            let indent = line.len() - line.trim_start().len();
            let tab = line.get(..indent)?.find('\t')?;
            Some((nth, tab))
        };
        let first = at.line.saturating_sub(2);
        let tab = lines.enumerate().find_map(with_tab);
        if let Some((nth, tab)) = tab {
            let before: usize = text
                .split_inclusive('\n')
                .take(first + nth)
                .map(str::len)
                .sum();
            let at = self.positions.at_byte(before + tab);
            self.error(at, "a tab in the indentation; YAML knows only spaces there")
                .help("replace it by spaces");
            return;
        }
        let before = text.get(..at.start).unwrap_or_default();
        let after = text.get(at.start..).unwrap_or_default();
        if error.info().contains("flow mapping, did not find") && after.starts_with('{') {
            let (what, quoted) = match before.ends_with('$') {
                true => ("a variable", "\"${NAME}\""),
                false => ("a \"{\" in a value", "\"/v1/{id}\""),
            };
            self.error(at, format!("{what} needs quotes within {{ }} and [ ]"))
                .help(format!("put the whole value in quotes, as in {quoted}"));
            return;
        }
        let (message, help) = explained(error.info());
        let problem = self.error(at, message);
        if let Some(help) = help {
            problem.help(help);
        }
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

/// The parser's words in ours, where people meet them.
fn explained(info: &str) -> (String, Option<&'static str>) {
    let quotes = "a value with \": \", \" #\", \"{\", \"}\", \"[\", \"]\" or \",\" in it, or one that begins with \
                  \"*\", \"&\", \"!\", \"%\" or \"@\", needs quotes";
    let known = [
        (
            "illegal placement of ':'",
            "this \":\" cannot stand here: a \"[\" or \"{\" before it is not closed",
            quotes,
        ),
        (
            "indentation in quoted scalar",
            "the quote that is opened here is never closed",
            "close it in the same line",
        ),
        (
            "recursion limit",
            "this is nested more than 32 levels deep",
            "write it flatter",
        ),
        (
            "mapping values are not allowed",
            "a second \":\" in this line",
            quotes,
        ),
        (
            "flow mapping, did not find expected",
            "expected \",\" or \"}\" here: the map that \"{\" began is not closed",
            quotes,
        ),
        (
            "flow sequence, expected",
            "expected \",\" or \"]\" here: the list that \"[\" began is not closed",
            quotes,
        ),
        (
            "block mapping, did not find expected key",
            "expected a key and a \":\" here",
            "keys of one map begin in the same column",
        ),
        (
            "did not find expected '-' indicator",
            "expected \"-\" here, for the next of the list",
            "all \"-\" of one list stand in the same column",
        ),
        (
            "simple key expect",
            "expected a \":\" behind this key",
            quotes,
        ),
        (
            "quoted scalar, found unexpected end of stream",
            "a quote that was opened is never closed",
            "look for the line where it begins",
        ),
        (
            "unknown escape character",
            "this is no escape that YAML knows",
            "write \"\\\\\" for a backslash, or use single quotes",
        ),
        (
            "unknown anchor",
            "\"*\" begins an alias, and none has this name",
            quotes,
        ),
        (
            "scanning an anchor or alias",
            "\"*\" and \"&\" begin an alias or anchor",
            quotes,
        ),
        ("misplaced bracket", "this bracket closes nothing", quotes),
        (
            "unexpected character",
            "YAML does not allow this character here",
            quotes,
        ),
        (
            "invalid indentation",
            "this line is indented too little",
            "indent it more than the line it belongs to",
        ),
        ("tab", "YAML does not allow a tab here", "use spaces"),
        (
            "did not find expected <document",
            "this does not belong to the document before it",
            quotes,
        ),
    ];
    let found = known.into_iter().find(|(part, ..)| info.contains(part));
    match found {
        Some((_, message, help)) => (message.to_owned(), Some(help)),
        None => (format!("this is not YAML: {info}"), None),
    }
}

#[cfg(test)]
mod tests;
