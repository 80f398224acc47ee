//! The figures as a table for a terminal.

use std::io::{self, Write};

use tollgate::{Algorithm, Limit};

use super::figures::{Figures, Results, burst_span};
use super::limits::Limits;
use super::text::{grouped, percent, span, span_name, wait};

/// Whether to use colour: a terminal may, a file or pipe must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paint {
    Plain,
    Ansi,
}

impl Paint {
    pub(super) fn bold(self, text: &str) -> String {
        self.wrapped("1", text)
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.wrapped("2", text)
    }

    fn alarming(self, text: &str) -> String {
        self.wrapped("1;31", text)
    }

    fn wrapped(self, code: &str, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Ansi => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

/// Writes a row per algorithm.
pub(super) fn write(
    out: &mut impl Write,
    paint: Paint,
    limits: &Limits,
    results: &Results,
) -> io::Result<()> {
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
    let rows: Vec<[String; COLUMNS]> = results
        .iter()
        .map(|(limit, figures)| row(limit, figures))
        .collect();
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        let cells = rows
            .iter()
            .chain([&head])
            .map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    });
    writeln!(
        out,
        "{}",
        paint.dim(&aligned(&head, &widths, |_, cell| cell))
    )?;
    for (row, (_, figures)) in rows.iter().zip(results) {
        let line = aligned(row, &widths, |column, cell| match column {
            0 => paint.bold(&cell),
            WORST if figures.worst_window > limits.count => paint.alarming(&cell),
            _ => cell,
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

const COLUMNS: usize = 9;

/// The column of the worst window.
const WORST: usize = 5;

fn row(limit: &Limit, figures: &Figures) -> [String; COLUMNS] {
    let delay = |time| match limit.algorithm() {
        Algorithm::LeakyBucket => wait(time),
        _ => "–".to_owned(),
    };
    [
        limit.algorithm().to_string(),
        grouped(figures.offered.tokens),
        grouped(figures.admitted.tokens),
        grouped(figures.denied.tokens),
        percent(figures.denied.tokens, figures.offered.tokens),
        grouped(figures.worst_window),
        grouped(figures.largest_burst),
        delay(figures.delay.max),
        delay(figures.delay.mean),
    ]
}

/// Names to the left, numbers to the right. Paint comes last, as it has no width.
fn aligned(
    row: &[String; COLUMNS],
    widths: &[usize; COLUMNS],
    paint: impl Fn(usize, String) -> String,
) -> String {
    let cells = row
        .iter()
        .zip(widths)
        .enumerate()
        .map(|(column, (cell, &width))| {
            let padded = match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            };
            paint(column, padded)
        });
    let line: Vec<String> = cells.collect();
    format!("  {}", line.join("  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_plain_text_has_no_escapes() {
        let limits = Limits::derived_from("200/min".parse().unwrap()).unwrap();
        let figures = Figures::default();
        let results: Vec<(Limit, Figures)> =
            limits.all.iter().map(|limit| (*limit, figures)).collect();
        let mut out = Vec::new();
        write(&mut out, Paint::Plain, &limits, &results).unwrap();
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
