//! What to say where a text stops being YAML.

use saphyr_parser::ScanError;

use super::Span;
use super::builder::Builder;

impl Builder<'_> {
    /// The text is not YAML from the place on that this returns.
    pub(super) fn broken(&mut self, text: &str, error: &ScanError) -> Span {
        let from = error.marker().index();
        let at = self.positions.between_chars(from, from + 1);
        // The parser notices it at the line itself, or stops at the one before.
        let lines = text.lines().skip(at.line.saturating_sub(2)).take(3);
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
            return at;
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
            return at;
        }
        if error.info().contains("mapping values are not allowed") && is_key_without_a_blank(before)
        {
            self.error(
                at,
                "the line before is no key and value: a blank is missing behind its \":\"",
            )
            .help("write it as in id: client");
            return at;
        }
        let (message, help) = explained(error.info());
        let problem = self.error(at, message);
        if let Some(help) = help {
            problem.help(help);
        }
        at
    }
}

/// Whether the line above is one such as `- id:client`.
fn is_key_without_a_blank(before: &str) -> bool {
    let above = before.lines().rev().nth(1).unwrap_or_default();
    let said = above.trim().trim_start_matches("- ").split_once(':');
    let (key, value) = said.unwrap_or_default();
    let is_word = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_stuck = !value.is_empty() && !value.starts_with(char::is_whitespace);
    is_word && is_stuck
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
