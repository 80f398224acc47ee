//! Rows in columns, for a terminal. Whatever they hold is escaped first.

use std::io::{self, Write};

use crate::audit::escaped;

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

/// A time as the databases have it, in UTC: `2026-11-15T18:04:05.000250Z`.
pub(super) fn utc(at_us: i64) -> String {
    let (seconds, us) = (at_us.div_euclid(1_000_000), at_us.rem_euclid(1_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{us:06}Z")
}

/// The same to the second, for tables: `2026-11-15 18:04:05`.
pub(super) fn utc_second(at_us: i64) -> String {
    let text = utc(at_us).replace('T', " ");
    text.split('.').next().unwrap_or_default().to_owned()
}

/// Year, month and day of so many days after 1970-01-01. Years that begin in March have their leap day at the end, so
/// a day's number within 400 years says its year and month.
fn date(days: i64) -> (i64, i64, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let from_march_of_0 = days + 719_468;
    let era = from_march_of_0.div_euclid(DAYS_OF_400_YEARS);
    let day = from_march_of_0.rem_euclid(DAYS_OF_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year + i64::from(month <= 2);
    (year, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (951_868_799, "2000-02-29T23:59:59.000000Z"),
            (1_078_012_800, "2004-02-29T00:00:00.000000Z"),
            (1_767_225_599, "2025-12-31T23:59:59.000000Z"),
            (1_800_000_000, "2027-01-15T08:00:00.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
            (-1, "1969-12-31T23:59:59.000000Z"),
        ] {
            assert_eq!(utc(seconds * 1_000_000), text);
        }
        assert_eq!(utc(1), "1970-01-01T00:00:00.000001Z");
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
