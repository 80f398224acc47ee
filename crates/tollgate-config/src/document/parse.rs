//! From bytes to a tree.

mod builder;
mod recovery;
mod wording;

use super::Node;
use super::environment::{self, Environment};
use super::position::{Positions, Span};
use super::problem::{Problem, Problems, Severity, Spot};

/// The largest document, in bytes: 10,000 rules take about 3 MB.
pub const LONGEST: usize = 16 << 20;

/// The deepest nesting: nothing that makes sense here is deeper than six.
const DEEPEST: usize = 32;

/// The most keys, values, lists and maps: each takes some hundred bytes, and 10,000 rules have about 300,000.
const MOST_NODES: usize = 1_000_000;

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
    let reading = recovery::read(text);
    match reading.broken {
        Some(_) => recovery::recover(text, reading),
        None => reading.document,
    }
}

#[cfg(test)]
mod tests;
