//! Rows in columns, for a terminal. Cells are escaped.

use std::io::{self, Write};

use tollgate_config::text::escaped;

/// Maximum number of characters in a column, so that a long name does not push the others out of sight.
const MAX_COLUMN: usize = 40;

/// The width of a terminal. The last column, the least important one, gets what is left of it.
const MAX_LINE: usize = 100;
const MIN_LAST_COLUMN: usize = 16;

/// Writes a head and rows, each column as wide as its longest cell.
pub(super) fn write_table<const N: usize>(
    out: &mut impl Write,
    head: [&str; N],
    rows: &[[String; N]],
) -> io::Result<()> {
    let mut shown: Vec<[String; N]> = (rows.iter())
        .map(|row| row.each_ref().map(|cell| escaped(cell, MAX_COLUMN)))
        .collect();
    let mut widths = head.map(|name| name.chars().count());
    for row in &shown {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let before: usize = widths.iter().rev().skip(1).map(|width| width + 2).sum();
    let room = MAX_LINE.saturating_sub(before).max(MIN_LAST_COLUMN);
    for (row, cells) in shown.iter_mut().zip(rows) {
        if let (Some(last), Some(cell)) = (row.last_mut(), cells.last()) {
            *last = escaped(cell, room.min(MAX_COLUMN));
        }
    }
    let shown = shown.iter().map(|row| row.each_ref().map(String::as_str));
    for cells in std::iter::once(head).chain(shown) {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            line.push_str(cell);
            let blanks = (width + 2).saturating_sub(cell.chars().count());
            line.extend(std::iter::repeat_n(' ', blanks));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_last_column_is_cut_to_the_width_of_a_terminal() {
        let mut out = Vec::new();
        let rows = [["x".repeat(40), "y".repeat(30), "z".repeat(200)]];
        write_table(&mut out, ["a", "b", "c"], &rows).unwrap();
        let text = String::from_utf8(out).unwrap();
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert_eq!(widest, Some(MAX_LINE), "{text}");
    }

    #[test]
    fn columns_line_up_and_hidden_characters_are_escaped() {
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
