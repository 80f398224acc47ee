//! Problems of a document: what is wrong, and where.

use std::fmt;

use serde::Serialize;

use super::position::Span;

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
}
