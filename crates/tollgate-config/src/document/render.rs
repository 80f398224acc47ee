//! Problems for people, with the line they are in, and for programs.

use std::fmt::Write as _;

use serde::Serialize;

use super::mask;
use super::position::Span;
use super::problem::{Problem, Problems, Severity};

/// More than so many are not printed.
const MOST_SHOWN: usize = 50;

/// The longest piece of a line that is shown, in characters: a JSON document may be one line.
const WIDEST: usize = 100;

impl Problems {
    /// As a compiler would say it: what, where, the line itself without its secrets, and what to do.
    #[must_use]
    pub fn render(&self, file: &str, text: &str) -> String {
        let mut out = String::new();
        for problem in self.sorted().into_iter().take(MOST_SHOWN) {
            render(&mut out, problem, file, text);
            out.push('\n');
        }
        let more = (self.errors() + self.warnings()).saturating_sub(MOST_SHOWN);
        if more > 0 {
            let _ = writeln!(out, "and {more} more\n");
        }
        out
    }

    /// A list of objects: severity, file, line, column, path, message, help.
    #[must_use]
    pub fn to_json(&self, file: &str) -> serde_json::Value {
        let of = |problem: &Problem| Row {
            severity: problem.severity,
            file: file.to_owned(),
            line: problem.spot.at.map(|at| at.line),
            column: problem.spot.at.map(|at| at.column),
            path: problem.spot.path.clone(),
            message: problem.message.clone(),
            help: problem.help.clone(),
        };
        let rows: Vec<Row> = self.sorted().into_iter().map(of).collect();
        serde_json::to_value(rows).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct Row {
    severity: Severity,
    file: String,
    line: Option<usize>,
    column: Option<usize>,
    path: String,
    message: String,
    help: Option<String>,
}

fn render(out: &mut String, problem: &Problem, file: &str, text: &str) {
    let severity = match problem.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let path = &problem.spot.path;
    let colon = if path.is_empty() { "" } else { ": " };
    let _ = writeln!(out, "{severity}: {path}{colon}{}", problem.message);
    let also = problem.also.as_ref().map(|(at, _)| at.line);
    let gutter = problem
        .spot
        .at
        .map(|at| at.line)
        .max(also)
        .unwrap_or(0)
        .to_string()
        .len();
    match problem.spot.at {
        Some(at) => {
            let _ = writeln!(out, "{:gutter$}--> {file}:{}:{}", "", at.line, at.column);
            snippet(out, gutter, at, "", path, text);
        }
        None => {
            let _ = writeln!(out, "{:gutter$}--> {file}", "");
        }
    }
    if let Some((at, label)) = &problem.also {
        let _ = writeln!(out, "{:gutter$}::: {file}:{}:{}", "", at.line, at.column);
        snippet(out, gutter, *at, label, path, text);
    }
    if let Some(help) = &problem.help {
        let _ = writeln!(out, "{:gutter$} = help: {help}", "");
    }
}

/// The line, and a mark under the part that is meant.
fn snippet(out: &mut String, gutter: usize, at: Span, label: &str, path: &str, text: &str) {
    let before = text.get(..at.start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let rest = text.get(line_start..).unwrap_or_default();
    let line = rest.split('\n').next().unwrap_or_default();
    let line = line.strip_suffix('\r').unwrap_or(line);
    let start = (at.start - line_start.min(at.start)).min(line.len());
    let end = (at.end - line_start.min(at.end)).clamp(start, line.len());
    let (mut shown, mut marked) = mask::masked(line, start..end);
    // The value of a secret may go on in lines that do not say its name.
    let field = path.rsplit('.').next().unwrap_or_default();
    if mask::is_secret(field) && shown == line && !line.contains(field) {
        shown = "***".to_owned();
        marked = 0..3;
    }
    let chars = |bytes: usize| shown.get(..bytes).unwrap_or_default().chars().count();
    let (first, last) = (chars(marked.start), chars(marked.end));
    let (cut, shown, first) = cropped(&shown, first);
    let width = last
        .saturating_sub(cut + first - usize::from(cut > 0))
        .max(1);
    let width = width.min(shown.chars().count().saturating_sub(first).max(1));
    let _ = writeln!(out, "{:gutter$} |", "");
    let _ = writeln!(out, "{:gutter$} | {shown}", at.line);
    let space = if label.is_empty() { "" } else { " " };
    let _ = writeln!(
        out,
        "{:gutter$} | {:first$}{}{space}{label}",
        "",
        "",
        "^".repeat(width)
    );
}

/// A piece of a long line around a character: how many were cut off before it, the piece, where the character is now.
fn cropped(line: &str, first: usize) -> (usize, String, usize) {
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    let cut = first.saturating_sub(WIDEST / 2);
    let is_short = line.chars().nth(WIDEST).is_none();
    let cut = if is_short { 0 } else { cut };
    let mut piece = String::new();
    if cut > 0 {
        piece.push('…');
    }
    piece.extend(line.chars().skip(cut).take(WIDEST).map(visible));
    if line.chars().nth(cut + WIDEST).is_some() {
        piece.push('…');
    }
    (cut, piece, first - cut + usize::from(cut > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Spot, parse};

    fn rendered(text: &str, start: usize, end: usize, path: &str) -> String {
        let before = &text[..start];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
        let at = Some(Span {
            start,
            end,
            line,
            column,
        });
        let mut problems = Problems::default();
        let spot = Spot {
            at,
            path: path.to_owned(),
        };
        problems.error(spot, "it is wrong").help("do right");
        problems.render("tollgate.yaml", text)
    }

    #[test]
    fn shows_the_line_and_marks_the_part() {
        let said = rendered("a: 1\nb:\n  c: wrong # x\n", 13, 18, "b.c");
        assert_eq!(
            said,
            "error: b.c: it is wrong\n --> tollgate.yaml:3:6\n  |\n3 |   c: wrong # x\n  |      ^^^^^\n  = help: do right\n\n"
        );
    }

    #[test]
    fn long_lines_are_cropped_around_the_mark() {
        let text = format!("{}wrong{}", "x".repeat(1_000), "y".repeat(1_000));
        let said = rendered(&text, 1_000, 1_005, "");
        let lines: Vec<&str> = said.lines().collect();
        let mark = lines[4].find('^').unwrap();
        let shown: String = lines[3].chars().skip(mark).take(5).collect();
        assert_eq!(shown, "wrong", "{said}");
        assert!(
            lines[4].ends_with("^^^^^") && !lines[4].ends_with("^^^^^^"),
            "{said}"
        );
        assert!(lines[3].chars().count() < 120, "{said}");
    }

    #[test]
    fn secrets_are_not_shown_even_over_several_lines() {
        let text = "admin:\n  token: |\n    hunter2\n";
        let root = parse(text, &|_| None).root.unwrap();
        let at = root.get("admin").unwrap().get("token").unwrap().at.unwrap();
        for (start, end) in [(at.start, at.end), (22, 29)] {
            let said = rendered(text, start, end, "admin.token");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn both_places_of_a_double_key_are_shown() {
        let text = "a: 1\nb: 2\na: 3\n";
        let said = parse(text, &|_| None).problems.render("t.yaml", text);
        assert_eq!(
            said,
            "error: a: \"a\" is said twice; it was said first in line 1\n --> t.yaml:3:1\n  |\n3 | a: 3\n  | ^\n ::: t.yaml:1:1\n  \
             |\n1 | a: 1\n  | ^ first said here\n  = help: keep one of them\n\n"
        );
    }
}
