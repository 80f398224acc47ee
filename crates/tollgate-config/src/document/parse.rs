//! From bytes to a tree. `${NAME}` and `${NAME:-default}` in values are replaced after parsing: the value of a variable is never
//! structure.
//!
//! Where a text stops being YAML, reading goes on, so that problems elsewhere are reported as well: the broken block (a
//! section, or an item of its list) is blanked, and the text is read again. The value of the block is unknown, so nothing in
//! it is reported as missing, and everything else keeps its position. Other problems in it are reported once it is YAML.

mod builder;

use super::problem::{Location, Problems};
use super::{Node, Span};
use crate::document::problem::Problem;
use crate::document::{Positions, Value};
use builder::Builder;

/// Maximum size of a document in bytes: 10,000 rules take about 3 MB.
pub const MAX_BYTES: usize = 16 << 20;

/// Maximum nesting: nothing useful is deeper than six levels.
const MAX_DEPTH: usize = 32;

/// Maximum number of keys, values, lists and maps. Each takes some hundred bytes; 10,000 rules have about 300,000.
const MAX_NODES: usize = 1_000_000;

/// A document, as far as it could be read.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// The tree; `None` if the text is not a document at all.
    pub root: Option<Node>,
    /// The problems found so far.
    pub problems: Problems,
}

/// The text of a file: UTF-8 of at most [`MAX_BYTES`]. A byte order mark is left out.
///
/// # Errors
/// One problem when the file is too long or not UTF-8; with the line and column of the first wrong byte.
pub fn decode(bytes: &[u8]) -> Result<&str, Problems> {
    let wrong = |span, message: &str, help: &str| {
        let mut problems = Problems::default();
        let path = String::new();
        problems.error(Location { span, path }, message).help(help);
        problems
    };
    if bytes.len() > MAX_BYTES {
        let message = format!("the file is larger than {} MiB", MAX_BYTES >> 20);
        let help = "keep this many rules in a database: see `database`";
        return Err(wrong(None, &message, help));
    }
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(wrong(None, "the file is UTF-16 text", "save it as UTF-8"));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let valid = String::from_utf8_lossy(valid);
        let line = valid.rsplit('\n').next().unwrap_or_default();
        let span = Span {
            start: valid.len(),
            end: valid.len(),
            line: valid.matches('\n').count() + 1,
            column: line.chars().count() + 1,
        };
        let message = "this byte is not UTF-8 text";
        wrong(Some(span), message, "save the file as UTF-8")
    })
}

/// Reads a YAML or JSON document, and replaces the variables in its values.
#[must_use]
pub fn parse(text: &str, env: &Environment<'_>) -> Document {
    if text.len() > MAX_BYTES {
        let mut document = Document::default();
        let location = Location::default();
        document
            .problems
            .error(location, "the document is too long");
        return document;
    }
    let reading = read(text, env);
    match reading.broken {
        Some(_) => recover(text, env, reading),
        None => reading.document,
    }
}

/// Maximum number of broken blocks to look for.
const MAX_BROKEN: usize = 10;

/// Maximum size of a text that is read again: up to four times for each broken block.
const MAX_REREAD_BYTES: usize = 1 << 20;

/// One pass over a text, and where it had to stop if the text is not YAML.
struct Reading {
    document: Document,
    broken: Option<Span>,
}

/// Reads as much as possible of a text that the first pass found broken.
fn recover(original: &str, env: &Environment<'_>, first: Reading) -> Document {
    let mut found: Vec<Problem> = Vec::new();
    let (mut text, mut reading) = (original.to_owned(), first);
    let mut blanks = Vec::new();
    while let Some(span) = reading.broken {
        let is_worth_it = found.len() < MAX_BROKEN && text.len() <= MAX_REREAD_BYTES;
        found.extend(reading.document.problems.last_mut().cloned());
        let next = is_worth_it.then(|| without_block_at(&text, env, span));
        let Some((rest, blanked, next)) = next.flatten() else {
            reading.document.root = None;
            break;
        };
        blanks.extend(blanked);
        (text, reading) = (rest, next);
    }
    let Document { root, problems } = reading.document;
    let mut root = root.filter(|root| matches!(root.value, Value::Map(_)));
    let mut all = Problems::default();
    // Blanks take as many bytes as what they replace, but more columns.
    let positions = Positions::of(original);
    let last = problems.sorted().into_iter().cloned();
    for mut problem in found.into_iter().chain(last) {
        if let Some(span) = &mut problem.location.span {
            let start = original.floor_char_boundary(span.start);
            *span = Span {
                start,
                end: original.floor_char_boundary(span.end).max(start),
                ..positions.at_byte(start)
            };
        }
        if !all.sorted().contains(&&problem) {
            all.add(problem);
        }
    }
    if let Some(root) = &mut root {
        forget(root, &blanks);
    }
    Document {
        root,
        problems: all,
    }
}

/// The text without the block that causes the break at this position, the bytes of the blanks, and its next pass.
fn without_block_at(
    text: &str,
    env: &Environment<'_>,
    span: Span,
) -> Option<(String, Vec<usize>, Reading)> {
    let blocks = blocks(text);
    let nth = blocks
        .iter()
        .rposition(|block| block.first_line <= span.line)?;
    let here = &blocks[nth];
    let before = nth.checked_sub(1).map(|before| &blocks[before]);
    // A bracket that is not closed is only noticed in the next block. Without the block that opened it, the next one is
    // read further; without the next one, what follows is.
    let suspects: [(Vec<&Block>, usize); 3] = [
        (before.into_iter().collect(), span.start + 1),
        (vec![here], here.end),
        (before.into_iter().chain([here]).collect(), here.end),
    ];
    suspects.into_iter().find_map(|(suspects, further)| {
        let mut rest = text.to_owned();
        let suspects = suspects.into_iter();
        let blanks: Vec<usize> = suspects
            .filter_map(|block| block.blank(&mut rest))
            .collect();
        let reading = read(&rest, env);
        let is_past = reading.broken.is_none_or(|next| next.start >= further);
        (!blanks.is_empty() && is_past).then_some((rest, blanks, reading))
    })
}

fn read(text: &str, env: &Environment<'_>) -> Reading {
    let positions = Positions::of(text);
    let mut builder = Builder::new(&positions, env);
    Reading {
        document: builder.build(text),
        broken: builder.broken_at,
    }
}

/// Makes the values of blanked blocks unknown.
fn forget(node: &mut Node, blanks: &[usize]) {
    let is_blank = (node.span).is_some_and(|span| blanks.contains(&span.start));
    match &mut node.value {
        Value::Scalar(_) if is_blank => node.value = Value::Unknown,
        Value::List(items) => items.iter_mut().for_each(|item| forget(item, blanks)),
        Value::Map(entries) => {
            for entry in entries {
                forget(&mut entry.value, blanks);
            }
        }
        Value::Scalar(_) | Value::Unknown => {}
    }
}

/// A section, or an item of its list.
struct Block {
    /// Counted from 1.
    first_line: usize,
    /// The byte after the `key:` or `-` that it begins with.
    body: usize,
    end: usize,
}

impl Block {
    /// Replaces all but its key by a `~`, and returns the byte of it. `None` if there is nothing to replace.
    fn blank(&self, text: &mut String) -> Option<usize> {
        let body = text.get(self.body..self.end)?;
        let first = self.body + body.find(|c: char| !c.is_whitespace())?;
        let blank = |byte: (usize, u8)| match byte {
            (nth, _) if self.body + nth == first => '~',
            (_, b'\n') => '\n',
            _ => ' ',
        };
        let blanked: String = body.bytes().enumerate().map(blank).collect();
        text.replace_range(self.body..self.end, &blanked);
        Some(first)
    }
}

/// The sections of a text; a section that is a list as its items.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut indent_of_items = None;
    let mut start = 0;
    for (nth, line) in text.split_inclusive('\n').enumerate() {
        let end = start + line.len();
        let indent = line.len() - line.trim_start_matches(' ').len();
        let trimmed = line.trim();
        let is_section =
            indent == 0 && trimmed.starts_with(|c: char| c.is_alphanumeric() || "\"'_".contains(c));
        let is_item = trimmed == "-" || trimmed.starts_with("- ");
        let body = match trimmed.find(':') {
            Some(colon) if is_section => {
                // Where its list is indented is known at the first item.
                indent_of_items = trimmed.ends_with(':').then_some(None);
                Some(start + colon + 1)
            }
            _ if is_item && indent_of_items.is_some_and(|at| at.is_none_or(|at| at == indent)) => {
                indent_of_items = Some(Some(indent));
                Some(start + indent + 1)
            }
            _ => None,
        };
        match (body, blocks.last_mut()) {
            (Some(body), _) => blocks.push(Block {
                first_line: nth + 1,
                body,
                end,
            }),
            (None, Some(open)) => open.end = end,
            (None, None) => {}
        }
        start = end;
    }
    blocks
}

/// Looks up the value of a variable.
pub(crate) type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Why a variable could not be replaced.
pub(super) enum VariableError {
    Unset(String),
    Syntax,
}

/// A value with its variables replaced.
#[derive(Default)]
pub(super) struct Replaced {
    pub(super) text: String,
    pub(super) has_variables: bool,
}

/// Replaces the variables of a value, and `$$` by a dollar.
pub(super) fn replace_variables(
    written: &str,
    env: &Environment<'_>,
) -> Result<Replaced, VariableError> {
    let mut replaced = Replaced::default();
    let mut rest = written;
    while let Some((before, after)) = rest.split_once('$') {
        replaced.text.push_str(before);
        if let Some(after) = after.strip_prefix('{') {
            let (inside, after) = after.split_once('}').ok_or(VariableError::Syntax)?;
            replaced.text.push_str(&value_of(inside, env)?);
            replaced.has_variables = true;
            rest = after;
        } else {
            replaced.text.push('$');
            rest = after.strip_prefix('$').unwrap_or(after);
        }
    }
    replaced.text.push_str(rest);
    Ok(replaced)
}

/// The value of `NAME` or `NAME:-default`.
fn value_of(inside: &str, env: &Environment<'_>) -> Result<String, VariableError> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    if !is_name(name) {
        return Err(VariableError::Syntax);
    }
    match (env(name), default) {
        // As in a shell, the default also replaces an empty value.
        (Some(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(VariableError::Unset(name.to_owned())),
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.len() <= 128
        && name.chars().all(allowed)
        && name.starts_with(|c: char| !c.is_ascii_digit())
}

#[cfg(test)]
mod tests;
