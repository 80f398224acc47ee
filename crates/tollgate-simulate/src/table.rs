//! The figures as a table for a terminal.

use std::io::{self, Write};

use super::figures::{Comparison, Outcome, burst_span};
use super::text::{delay, grouped, percent, span, span_name};

/// Whether to use colours: a terminal may, a file or pipe must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paint {
    Plain,
    Ansi,
}

impl Paint {
    pub(super) fn bold(self, text: &str) -> String {
        self.styled("1", text)
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.styled("2", text)
    }

    fn alarming(self, text: &str) -> String {
        self.styled("1;31", text)
    }

    fn styled(self, code: &str, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Ansi => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

type Row = [String; 9];

/// The column of the worst window.
const WORST: usize = 5;

/// Writes a row per algorithm.
pub(super) fn write(out: &mut impl Write, paint: Paint, comparison: &Comparison) -> io::Result<()> {
    let (limits, outcomes) = (&comparison.limits, &comparison.outcomes);
    let head = [
        "algorithm".to_owned(),
        "offered".to_owned(),
        "admitted".to_owned(),
        "denied".to_owned(),
        String::new(),
        format!("worst {}", span_name(limits.period)),
        format!("most in {}", span(burst_span(limits.period))),
        "max delay".to_owned(),
        "mean delay".to_owned(),
    ];
    let rows: Vec<Row> = outcomes.iter().map(row).collect();
    let widths: [usize; 9] = std::array::from_fn(|column| {
        let rows = rows.iter().chain([&head]);
        let cells = rows.map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    });
    let head = aligned(&head, &widths, |_, cell| cell);
    writeln!(out, "{}", paint.dim(&head))?;
    for (row, outcome) in rows.iter().zip(outcomes) {
        let line = aligned(row, &widths, |column, cell| match column {
            0 => paint.bold(&cell),
            WORST if outcome.figures.worst_window > limits.count => paint.alarming(&cell),
            _ => cell,
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn row(outcome: &Outcome) -> Row {
    let figures = &outcome.figures;
    let delay = |time: Option<_>| time.map_or_else(|| "–".to_owned(), delay);
    [
        outcome.limit.algorithm().to_string(),
        grouped(figures.offered),
        grouped(figures.admitted),
        grouped(figures.denied),
        percent(figures.denied, figures.offered),
        grouped(figures.worst_window),
        grouped(figures.largest_burst),
        delay(figures.max_delay),
        delay(figures.mean_delay),
    ]
}

/// Names to the left, numbers to the right. Colours are added last, because they have no width.
fn aligned(row: &Row, widths: &[usize; 9], paint: impl Fn(usize, String) -> String) -> String {
    let cells = row.iter().zip(widths).enumerate();
    let cells = cells.map(|(column, (cell, &width))| match column {
        0 => paint(column, format!("{cell:<width$}")),
        _ => paint(column, format!("{cell:>width$}")),
    });
    format!("  {}", cells.collect::<Vec<_>>().join("  "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Limits;
    use crate::scenario::Scenario;
    use crate::scenario::Traffic;

    #[test]
    fn columns_line_up_and_plain_text_has_no_escapes() {
        let traffic = Traffic::of(Scenario::Boundary, None);
        let limits = Limits::derived_from("200/min".parse().unwrap()).unwrap();
        let mut out = Vec::new();
        write(&mut out, Paint::Plain, &Comparison::of(traffic, limits)).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lengths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert_eq!(lengths.len(), 6);
        assert!(lengths.iter().all(|length| *length == lengths[0]), "{text}");
        assert!(!text.contains('\x1b'));
        assert!(
            text.contains("worst minute") && text.contains("most in 6 s"),
            "{text}"
        );
    }
}
