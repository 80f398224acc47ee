//! What was found, in words.

use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

/// What became of all lists.
#[derive(Debug, Default)]
pub struct Outcome {
    /// In the order in which they ran.
    pub lists: Vec<ListResult>,
}

impl Outcome {
    /// Whether every protection held, and every case could be judged.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.lists.iter().all(|list| list.failures.is_empty())
    }

    /// The verdict, and last the line to compare. That line has no place for cases that could not be judged, so the line before it says
    /// that the run failed, and of what.
    #[must_use]
    pub fn summary(&self) -> String {
        let sum = |of: fn(&ListResult) -> usize| self.lists.iter().map(of).sum::<usize>();
        let cases = sum(|list| list.cases);
        let bypassed = sum(ListResult::bypassed);
        let errors_to_envoy = sum(|list| list.errors_to_envoy);
        let line =
            format!("attack: cases={cases} bypassed={bypassed} errors_to_envoy={errors_to_envoy}");
        if self.is_success() {
            return line;
        }
        let not_judged = sum(ListResult::not_judged);
        format!(
            "FAILED: bypassed: {bypassed}, errors to Envoy: {errors_to_envoy}, could not be judged: {not_judged}\n{line}"
        )
    }
}

/// What became of one list.
#[derive(Debug)]
pub struct ListResult {
    /// Its name.
    pub name: &'static str,
    /// Lines of the list that were run.
    pub cases: usize,
    /// How often they were run: with each upstream and in each version of HTTP that can say them.
    pub runs: usize,
    /// Requests that were sent.
    pub requests: usize,
    /// gRPC errors that input of a client caused.
    pub errors_to_envoy: usize,
    /// What did not hold.
    pub failures: Vec<Failure>,
    pub(crate) took: Duration,
}

/// A case that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which line of the list.
    pub case: String,
    /// What happened.
    pub kind: FailureKind,
    /// In words: the request, what was read of it, the limit.
    pub details: String,
}

/// How a case did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// A protection did not hold.
    Bypassed,
    /// A gRPC error where Envoy needs a decision.
    ErrorToEnvoy,
    /// The harness could not judge: a plain request did not arrive.
    NotJudged,
}

impl ListResult {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            cases: 0,
            runs: 0,
            requests: 0,
            errors_to_envoy: 0,
            failures: Vec::new(),
            took: Duration::ZERO,
        }
    }

    /// Lines of the list whose protection did not hold, in any of their runs.
    #[must_use]
    pub fn bypassed(&self) -> usize {
        self.cases_with(FailureKind::Bypassed)
    }

    /// Lines of the list that could not be judged, in any of their runs.
    #[must_use]
    pub fn not_judged(&self) -> usize {
        self.cases_with(FailureKind::NotJudged)
    }

    fn cases_with(&self, kind: FailureKind) -> usize {
        let of_kind = self.failures.iter().filter(|failure| failure.kind == kind);
        let mut cases: Vec<&str> = of_kind.map(|failure| failure.case.as_str()).collect();
        cases.sort_unstable();
        cases.dedup();
        cases.len()
    }

    pub(crate) fn fail(&mut self, case: &str, kind: FailureKind, details: String) {
        self.failures.push(Failure {
            case: case.to_owned(),
            kind,
            details,
        });
    }
}

impl fmt::Display for ListResult {
    /// One line of progress, and one paragraph for each failure.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} cases", self.name, self.cases)?;
        write!(f, ", {} runs, {} requests", self.runs, self.requests)?;
        write!(f, ", {} bypassed", self.bypassed())?;
        if self.errors_to_envoy > 0 {
            write!(f, ", {} errors to Envoy", self.errors_to_envoy)?;
        }
        match self.not_judged() {
            0 => {}
            count => write!(f, ", {count} could not be judged")?,
        }
        write!(f, " ({:.1} s)", self.took.as_secs_f64())?;
        for failure in &self.failures {
            write!(f, "\n{failure}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            FailureKind::Bypassed => "BYPASSED",
            FailureKind::ErrorToEnvoy => "ERROR TO ENVOY",
            FailureKind::NotJudged => "NOT JUDGED",
        };
        write!(f, "  {what} {}", self.case)?;
        for line in self.details.lines() {
            write!(f, "\n    {line}")?;
        }
        Ok(())
    }
}

/// Bytes as text on one line, at most so many characters of it.
pub(crate) fn shown(bytes: &[u8], max: usize) -> String {
    let mut text = bytes.escape_ascii().to_string();
    if text.len() > max {
        let omitted = text.len() - max;
        text.truncate(max);
        // Writing to a string cannot fail.
        let _ = write!(text, "… ({omitted} more)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{FailureKind, ListResult, Outcome};

    #[test]
    fn a_case_that_cannot_be_judged_fails_the_run_plainly() {
        let mut list = ListResult::new("hosts");
        list.cases = 2;
        list.fail("host #1", FailureKind::NotJudged, String::new());
        // The same line over the other version of HTTP.
        list.fail("host #1", FailureKind::NotJudged, String::new());
        let outcome = Outcome { lists: vec![list] };
        assert!(!outcome.is_success());
        assert_eq!(
            outcome.summary(),
            "FAILED: bypassed: 0, errors to Envoy: 0, could not be judged: 1\n\
             attack: cases=2 bypassed=0 errors_to_envoy=0"
        );
    }
}
