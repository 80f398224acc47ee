//! From bytes to a tree.

mod builder;
mod recovery;
mod wording;

use super::Node;
use super::environment::Environment;
use super::position::Span;
use super::problem::{Location, Problems};

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
    let reading = recovery::read(text, env);
    match reading.broken {
        Some(_) => recovery::recover(text, env, reading),
        None => reading.document,
    }
}

#[cfg(test)]
mod tests;
