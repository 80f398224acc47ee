//! Rows in columns, for a terminal. Whatever they hold is escaped first.

use std::io::{self, Write};

use crate::calendar::utc;
use tollgate_config::text::escaped;

/// The most characters of a column: a long name must not push the others out of sight.
const WIDEST: usize = 40;

/// The width of a terminal: the last column, which is the least important one, makes do with what is left of it.
const LINE: usize = 100;
const NARROWEST: usize = 16;

/// Writes a head and rows, each column as wide as it must be.
pub(super) fn write_table<const N: usize>(
    out: &mut impl Write,
    head: [&str; N],
    rows: &[[String; N]],
) -> io::Result<()> {
    let mut shown: Vec<[String; N]> = rows
        .iter()
        .map(|row| row.each_ref().map(|cell| escaped(cell, WIDEST)))
        .collect();
    let mut widths = head.map(|name| name.chars().count());
    for row in &shown {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let before: usize = widths.iter().rev().skip(1).map(|width| width + 2).sum();
    let room = LINE.saturating_sub(before).max(NARROWEST);
    for (row, cells) in shown.iter_mut().zip(rows) {
        if let (Some(last), Some(cell)) = (row.last_mut(), cells.last()) {
            *last = escaped(cell, room.min(WIDEST));
        }
    }
    let mut line = |cells: [&str; N]| {
        let mut text = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            let blanks = (width + 2).saturating_sub(cell.chars().count());
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', blanks));
        }
        writeln!(out, "{}", text.trim_end())
    };
    line(head)?;
    for row in &shown {
        line(row.each_ref().map(String::as_str))?;
    }
    Ok(())
}

/// The same to the second, for tables: `2026-11-15 18:04:05`.
pub(super) fn utc_second(at_us: i64) -> String {
    let text = utc(at_us).replace('T', " ");
    text.split('.').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_tables_are_whole_seconds() {
        assert_eq!(utc_second(1_800_000_000_999_999), "2027-01-15 08:00:00");
    }

    #[test]
    fn a_line_fits_a_terminal_as_long_as_the_last_column_can_give_way() {
        let mut out = Vec::new();
        let rows = [["x".repeat(40), "y".repeat(30), "z".repeat(200)]];
        write_table(&mut out, ["a", "b", "c"], &rows).unwrap();
        let text = String::from_utf8(out).unwrap();
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert_eq!(widest, Some(LINE), "{text}");
    }

    #[test]
    fn columns_line_up_and_nothing_hidden_is_printed() {
        let mut out = Vec::new();
        let rows = [
            ["a".to_owned(), "x\u{1b}[2J".to_owned()],
            ["crème".to_owned(), String::new()],
        ];
        write_table(&mut out, ["name", "what"], &rows).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "name   what\na      x\\u{1b}[2J\ncrème\n");
    }
}
