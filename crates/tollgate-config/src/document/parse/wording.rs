//! Messages for text that is not YAML.

use saphyr_parser::ScanError;

use super::Span;
use super::builder::Builder;

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
