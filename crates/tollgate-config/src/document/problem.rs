//! Problems of a document: what is wrong, and where.

use std::fmt::{self, Write as _};

use serde::Serialize;
use serde_json::json;

use super::{Span, mask};

/// Whether a document with the problem can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It cannot.
    Error,
    /// It can, but it is probably a mistake.
    Warning,
}

/// A location in a document: a position in the text and a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The position in the text, if there is one.
    pub span: Option<Span>,
    /// The field, such as `rules[2].limit.rate`; empty for the whole document.
    pub path: String,
}

/// An error or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// Where it is.
    pub location: Location,
    /// What is wrong, and what would be right.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// Another position that is part of the problem, and a label for it.
    pub related: Option<(Span, String)>,
}

impl Problem {
    /// Adds what to do about it, unless that is empty.
    pub(crate) fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into()).filter(|help| !help.is_empty());
        self
    }

    /// Points at another position, if it is in the text.
    pub(crate) fn related(&mut self, span: Option<Span>, label: impl Into<String>) -> &mut Self {
        self.related = span.map(|span| (span, label.into()));
        self
    }
}

/// One line, without an excerpt of the text.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Span { line, column, .. }) = self.location.span {
            write!(f, "line {line}, column {column}: ")?;
        }
        if !self.location.path.is_empty() {
            write!(f, "{}: ", self.location.path)?;
        }
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

/// Maximum number of problems that are kept. More are only counted.
const MAX_KEPT: usize = 1_000;

/// All problems of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    list: Vec<Problem>,
    errors: usize,
    warnings: usize,
    /// The fields that readers asked for, for the test that compares them with the documentation.
    #[cfg(test)]
    pub(crate) known_fields: std::collections::BTreeSet<String>,
}

impl Problems {
    /// Adds an error.
    pub fn error(&mut self, location: Location, message: impl Into<String>) -> &mut Problem {
        self.push(Severity::Error, location, message.into())
    }

    /// The value of a result. Its error becomes one of these.
    pub(crate) fn check<T>(
        &mut self,
        result: Result<T, impl fmt::Display>,
        location: Location,
    ) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.error(location, error.to_string());
                None
            }
        }
    }

    /// Adds a warning, and what to do about it.
    pub(crate) fn warning(
        &mut self,
        location: Location,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> &mut Problem {
        self.push(Severity::Warning, location, message.into())
            .help(help)
    }

    fn push(&mut self, severity: Severity, location: Location, message: String) -> &mut Problem {
        self.add(Problem {
            severity,
            location,
            message,
            help: None,
            related: None,
        })
    }

    pub(crate) fn add(&mut self, problem: Problem) -> &mut Problem {
        match problem.severity {
            Severity::Error => self.errors += 1,
            Severity::Warning => self.warnings += 1,
        }
        // The last one is always there, so that help can be added to it.
        self.list.truncate(MAX_KEPT);
        self.list.push_mut(problem)
    }

    pub(crate) fn last_mut(&mut self) -> Option<&mut Problem> {
        self.list.last_mut()
    }

    /// Whether there is an error.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Number of errors, including those not kept.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// Number of warnings, including those not kept.
    #[must_use]
    pub fn warnings(&self) -> usize {
        self.warnings
    }

    /// The problems in the order of the text; those without a position first.
    #[must_use]
    pub fn sorted(&self) -> Vec<&Problem> {
        let mut list: Vec<&Problem> = self.list.iter().take(MAX_KEPT).collect();
        list.sort_by_key(|problem| problem.location.span.map(|span| span.start));
        list
    }
}

/// One line for each problem.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, problem) in self.sorted().into_iter().enumerate() {
            if nth > 0 {
                writeln!(f)?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

const MAX_SHOWN: usize = 50;

/// Maximum length of an excerpt in characters: a JSON document may be one line.
const MAX_WIDTH: usize = 100;

impl Problems {
    /// The problems as a compiler prints them: what, where, the line itself without its secrets, and what to do.
    #[must_use]
    pub fn render(&self, file: &str, text: &str) -> String {
        let mut out = String::new();
        for problem in self.sorted().into_iter().take(MAX_SHOWN) {
            // Writing to a string cannot fail.
            let _ = problem.render(&mut out, file, text);
        }
        let more = (self.errors() + self.warnings()).saturating_sub(MAX_SHOWN);
        if more > 0 {
            out += &format!("and {more} more\n\n");
        }
        out
    }

    /// A list of objects: severity, file, line, column, path, message, help.
    #[must_use]
    pub fn to_json(&self, file: &str) -> serde_json::Value {
        let object = |problem: &Problem| {
            json!({
                "severity": problem.severity,
                "file": file,
                "line": problem.location.span.map(|span| span.line),
                "column": problem.location.span.map(|span| span.column),
                "path": problem.location.path,
                "message": problem.message,
                "help": problem.help,
            })
        };
        self.sorted().into_iter().map(object).collect()
    }
}

impl Problem {
    fn render(&self, out: &mut String, file: &str, text: &str) -> fmt::Result {
        match self.severity {
            Severity::Error => out.push_str("error: "),
            Severity::Warning => out.push_str("warning: "),
        }
        match &*self.location.path {
            "" => writeln!(out, "{}", self.message)?,
            path => writeln!(out, "{path}: {}", self.message)?,
        }
        let primary = self.location.span.map(|span| ("-->", span, ""));
        let related = self.related.as_ref();
        let related = related.map(|(span, label)| (":::", *span, &**label));
        let excerpts = || primary.into_iter().chain(related);
        let last_line = excerpts().map(|(_, span, _)| span.line).max().unwrap_or(0);
        let gutter = last_line.to_string().len();
        if primary.is_none() {
            writeln!(out, "{:gutter$}--> {file}", "")?;
        }
        for (arrow, span, label) in excerpts() {
            let Span { line, column, .. } = span;
            let (excerpt, indent, width) = self.excerpt(span, text);
            let mark = format!("{} {label}", "^".repeat(width));
            writeln!(out, "{:gutter$}{arrow} {file}:{line}:{column}", "")?;
            writeln!(out, "{:gutter$} |", "")?;
            writeln!(out, "{line:gutter$} | {excerpt}")?;
            writeln!(out, "{:gutter$} | {:indent$}{}", "", "", mark.trim_end())?;
        }
        if let Some(help) = &self.help {
            writeln!(out, "{:gutter$} = help: {help}", "")?;
        }
        writeln!(out)
    }

    /// A part of the line of a span without secrets, and in characters where and how wide the mark is.
    fn excerpt(&self, span: Span, text: &str) -> (String, usize, usize) {
        let before = text.get(..span.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let rest = text.get(line_start..).unwrap_or_default();
        let line = rest.split('\n').next().unwrap_or_default();
        let line = line.strip_suffix('\r').unwrap_or(line);
        let start = (before.len() - line_start).min(line.len());
        let end = span.end.saturating_sub(line_start).clamp(start, line.len());
        let (mut shown, mut marked) = mask::masked(line, start..end);
        // A secret may continue in lines that do not contain the name of its key.
        let field = self.location.path.rsplit('.').next().unwrap_or_default();
        if mask::is_secret(field) && shown == line && !line.contains(field) {
            (shown, marked) = ("***".to_owned(), 0..3);
        }
        let chars = |range| {
            shown
                .get::<std::ops::Range<usize>>(range)
                .map_or(0, |part| part.chars().count())
        };
        let (mut indent, width) = (chars(0..marked.start), chars(marked));
        // A long line is cropped around the mark.
        let cut = match shown.chars().nth(MAX_WIDTH) {
            Some(_) => indent.saturating_sub(MAX_WIDTH / 2),
            None => 0,
        };
        let visible = |c: char| if c.is_control() { ' ' } else { c };
        let mut rest = shown.chars().skip(cut).map(visible);
        let mut excerpt: String = rest.by_ref().take(MAX_WIDTH).collect();
        let width = width.clamp(1, (cut + MAX_WIDTH - indent).max(1));
        indent -= cut;
        if cut > 0 {
            excerpt.insert(0, '…');
            indent += 1;
        }
        if rest.next().is_some() {
            excerpt.push('…');
        }
        (excerpt, indent, width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_problems_is_counted_and_not_kept() {
        let mut problems = Problems::default();
        for nth in 0..5_000 {
            problems.error(Location::default(), format!("number {nth}"));
        }
        assert_eq!(problems.errors(), 5_000);
        assert_eq!(problems.sorted().len(), MAX_KEPT);
        assert!(problems.list.len() <= MAX_KEPT + 1);
    }

    use crate::document::{Location, parse};

    fn rendered(text: &str, start: usize, end: usize, path: &str) -> String {
        let before = &text[..start];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
        let span = Some(Span {
            start,
            end,
            line,
            column,
        });
        let mut problems = Problems::default();
        let path = path.to_owned();
        problems
            .error(Location { span, path }, "it is wrong")
            .help("do this");
        problems.render("tollgate.yaml", text)
    }

    #[test]
    fn the_line_is_shown_and_the_part_marked() {
        let shown = rendered("a: 1\nb:\n  c: wrong # x\n", 13, 18, "b.c");
        assert_eq!(
            shown,
            "error: b.c: it is wrong\n --> tollgate.yaml:3:6\n  |\n3 |   c: wrong # x\n  |      ^^^^^\n  = help: do this\n\n"
        );
    }

    #[test]
    fn long_lines_are_cropped_around_the_mark() {
        let text = format!("{}wrong{}", "x".repeat(1_000), "y".repeat(1_000));
        let shown = rendered(&text, 1_000, 1_005, "");
        let lines: Vec<&str> = shown.lines().collect();
        let mark = lines[4].find('^').unwrap();
        let marked: String = lines[3].chars().skip(mark).take(5).collect();
        assert_eq!(marked, "wrong", "{shown}");
        assert!(
            lines[4].ends_with("^^^^^") && !lines[4].ends_with("^^^^^^"),
            "{shown}"
        );
        assert!(lines[3].chars().count() < 120, "{shown}");
    }

    #[test]
    fn the_column_is_that_of_the_text_behind_a_secret() {
        let text = "admin: { token: hunter2hunter2, listen: here }";
        let shown = rendered(text, 40, 44, "admin.listen");
        assert!(shown.contains("tollgate.yaml:1:41"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn secrets_are_not_shown_even_over_several_lines() {
        let text = "admin:\n  token: |\n    hunter2\n";
        let root = parse(text, &|_| None).root.unwrap();
        let token = root.get("admin").unwrap().get("token").unwrap();
        let span = token.span.unwrap();
        for (start, end) in [(span.start, span.end), (22, 29)] {
            let shown = rendered(text, start, end, "admin.token");
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn both_positions_of_a_duplicate_key_are_shown() {
        let text = "a: 1\nb: 2\na: 3\n";
        let shown = parse(text, &|_| None).problems.render("t.yaml", text);
        assert_eq!(
            shown,
            "error: a: \"a\" is set twice, first in line 1\n --> t.yaml:3:1\n  |\n3 | a: 3\n  | ^\n ::: t.yaml:1:1\n  \
             |\n1 | a: 1\n  | ^ first set here\n  = help: keep one of them\n\n"
        );
    }
}
