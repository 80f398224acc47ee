//! Problems as text for people, with the line they are in, and as JSON for programs.

use std::fmt::{self, Write as _};

use serde_json::json;

use super::mask;
use super::position::Span;
use super::problem::{Problem, Problems, Severity};

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
