//! Reads on where a text stops being YAML, so that what is wrong elsewhere is told as well.
//!
//! The broken block (a section, or one of its list) is blanked, and the text is read again. Its value is unknown, so
//! nobody complains about what it lacks; all that stands elsewhere keeps its place. What else is wrong within the block is
//! told once it is YAML.

use super::builder::Builder;
use super::{Document, Positions, Span};
use crate::document::problem::{Problem, Problems};
use crate::document::{Node, Value};

/// More broken blocks than this are not looked for.
const MOST_BROKEN: usize = 10;

/// A longer text is only read once: it is read up to four times for every broken block.
const LONGEST: usize = 1 << 20;

/// One reading, and where it had to stop if the text is no YAML there.
pub(super) struct Reading {
    pub(super) document: Document,
    pub(super) broken: Option<Span>,
}

/// What can be read of a text whose first reading found it broken.
pub(super) fn recover(original: &str, first: Reading) -> Document {
    let mut found: Vec<Problem> = Vec::new();
    let (mut text, mut reading) = (original.to_owned(), first);
    let mut blanks = Vec::new();
    while let Some(place) = reading.broken {
        let is_worth_it = found.len() < MOST_BROKEN && text.len() <= LONGEST;
        found.extend(reading.document.problems.last().cloned());
        let next = match is_worth_it {
            true => without_the_block_at(&text, place),
            false => None,
        };
        let Some((without, at, read)) = next else {
            // Nothing more can be told.
            reading.document.root = None;
            break;
        };
        blanks.extend(at);
        (text, reading) = (without, read);
    }
    let Document { root, problems } = reading.document;
    let mut root = root.filter(|root| matches!(root.value, Value::Map(_)));
    let mut all = Problems::default();
    // Blanks take as many bytes as what they stand for, and more columns.
    let positions = Positions::of(original);
    let last = problems.sorted().into_iter().cloned();
    for mut problem in found.into_iter().chain(last) {
        if let Some(at) = &mut problem.spot.at {
            let start = original.floor_char_boundary(at.start);
            *at = Span {
                start,
                end: original.floor_char_boundary(at.end).max(start),
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

/// The text without the block that is to blame for the break at this place, where the blanks are, and its reading.
fn without_the_block_at(text: &str, place: Span) -> Option<(String, Vec<usize>, Reading)> {
    let blocks = blocks(text);
    let nth = blocks
        .iter()
        .rposition(|block| block.first_line <= place.line)?;
    let here = &blocks[nth];
    let before = nth.checked_sub(1).map(|before| &blocks[before]);
    // An opened bracket is only noticed in the block behind it. Without the one that opened it, that block is read
    // further; without that block, whatever follows is.
    let behind = here.end;
    let suspects: [(Vec<&Block>, usize); 3] = [
        (before.into_iter().collect(), place.start + 1),
        (vec![here], behind),
        (before.into_iter().chain([here]).collect(), behind),
    ];
    suspects.into_iter().find_map(|(suspects, further)| {
        let mut without = text.to_owned();
        let blanks: Vec<usize> = suspects
            .into_iter()
            .filter_map(|block| block.blank(&mut without))
            .collect();
        let reading = read(&without);
        let is_past = reading.broken.is_none_or(|next| next.start >= further);
        (!blanks.is_empty() && is_past).then_some((without, blanks, reading))
    })
}

pub(super) fn read(text: &str) -> Reading {
    let positions = Positions::of(text);
    let mut builder = Builder::new(&positions);
    let mut parser = saphyr_parser::Parser::new_from_str(text);
    let finished = builder.run(text, &mut parser);
    let broken = builder.broken_at;
    Reading {
        document: builder.document(finished),
        broken,
    }
}

/// Makes the values of blanked blocks unknown.
fn forget(node: &mut Node, blanks: &[usize]) {
    let is_blank = node.at.is_some_and(|at| blanks.contains(&at.start));
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

/// Lines that stand or fall together.
#[derive(Debug)]
struct Block {
    /// Counted from 1.
    first_line: usize,
    /// Behind the `key:` or `-` that it begins with, in bytes.
    body: usize,
    end: usize,
}

impl Block {
    /// Leaves its head, and a `~` for the rest. `None` if there is no rest.
    fn blank(&self, text: &mut String) -> Option<usize> {
        let body = text.get(self.body..self.end)?;
        let said = self.body + body.find(|c: char| !c.is_whitespace())?;
        let blank = |byte: (usize, u8)| match byte {
            (nth, _) if self.body + nth == said => '~',
            (_, b'\n') => '\n',
            _ => ' ',
        };
        let blanked: String = body.bytes().enumerate().map(blank).collect();
        text.replace_range(self.body..self.end, &blanked);
        Some(said)
    }
}

/// The sections of a text, each of them as the items of its list if it has one.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut indent_of_items = None;
    let mut start = 0;
    for (nth, line) in text.split_inclusive('\n').enumerate() {
        let end = start + line.len();
        let indent = line.len() - line.trim_start_matches(' ').len();
        let said = line.trim();
        let is_section =
            indent == 0 && said.starts_with(|c: char| c.is_alphanumeric() || "\"'_".contains(c));
        let is_item = said == "-" || said.starts_with("- ");
        let head = match said.find(':') {
            Some(colon) if is_section => {
                // Its list is only known when it begins.
                indent_of_items = said.ends_with(':').then_some(None);
                Some(start + colon + 1)
            }
            _ if is_item && indent_of_items.is_some_and(|at| at.is_none_or(|at| at == indent)) => {
                indent_of_items = Some(Some(indent));
                Some(start + indent + 1)
            }
            _ => None,
        };
        match (head, blocks.last_mut()) {
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
