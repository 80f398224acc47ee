//! What is wrong, and where.

use std::fmt;

use serde::Serialize;

use super::position::Span;

/// Whether a document with it can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It cannot.
    Error,
    /// It can, and is surely not what was meant.
    Warning,
}

/// A place in a document: where in the text, and which field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    /// Where in the text, if there is one.
    pub at: Option<Span>,
    /// The field, such as `rules[2].limit.rate`; empty for the whole document.
    pub path: String,
}

/// Something wrong, or surely not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// Where.
    pub spot: Spot,
    /// What is wrong, and what would be right.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// Another place that has to do with it, and what is there.
    pub also: Option<(Span, String)>,
}

impl Problem {
    /// Says what to do about it.
    pub(crate) fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self
    }

    /// Points at another place.
    pub(crate) fn also(&mut self, at: Option<Span>, label: impl Into<String>) -> &mut Self {
        self.also = at.map(|at| (at, label.into()));
        self
    }

    pub(crate) fn new(severity: Severity, spot: Spot, message: impl Into<String>) -> Self {
        Self {
            severity,
            spot,
            message: message.into(),
            help: None,
            also: None,
        }
    }
}

/// One line, without the text around it.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = self.spot.at {
            write!(f, "line {}, column {}: ", at.line, at.column)?;
        }
        if !self.spot.path.is_empty() {
            write!(f, "{}: ", self.spot.path)?;
        }
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

/// More than so many are counted, not kept: nobody reads them.
const MOST: usize = 1_000;

/// Everything that is wrong, in the order of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    list: Vec<Problem>,
    errors: usize,
    warnings: usize,
}

impl Problems {
    /// Adds an error.
    pub fn error(&mut self, spot: Spot, message: impl Into<String>) -> &mut Problem {
        self.add(Problem::new(Severity::Error, spot, message))
    }

    /// Adds a warning.
    pub(crate) fn warning(&mut self, spot: Spot, message: impl Into<String>) -> &mut Problem {
        self.add(Problem::new(Severity::Warning, spot, message))
    }

    pub(crate) fn add(&mut self, problem: Problem) -> &mut Problem {
        match problem.severity {
            Severity::Error => self.errors += 1,
            Severity::Warning => self.warnings += 1,
        }
        if self.list.len() > MOST {
            self.list.truncate(MOST);
        }
        self.list.push_mut(problem)
    }

    /// Says what to do about the last one.
    pub(crate) fn last_help(&mut self, help: impl Into<String>) {
        if let Some(problem) = self.list.last_mut() {
            problem.help(help);
        }
    }

    /// The one that was added last.
    pub(crate) fn last(&self) -> Option<&Problem> {
        self.list.last()
    }

    /// Whether there is an error.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// How many errors there are, those not kept included.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// How many warnings there are, those not kept included.
    #[must_use]
    pub fn warnings(&self) -> usize {
        self.warnings
    }

    /// The problems, in the order of the text; those without a place first.
    #[must_use]
    pub fn sorted(&self) -> Vec<&Problem> {
        let mut list: Vec<&Problem> = self.list.iter().take(MOST).collect();
        list.sort_by_key(|problem| problem.spot.at.map(|at| at.start));
        list
    }
}

/// One line for each.
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
            problems.error(Spot::default(), format!("number {nth}"));
        }
        assert_eq!(problems.errors(), 5_000);
        assert_eq!(problems.sorted().len(), MOST);
        assert!(problems.list.len() <= MOST + 1);
    }
}
