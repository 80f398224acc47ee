//! Arrivals from a CSV file: `time[,cost]`, one request per line.
//!
//! Nothing is guessed: a line that is not understood is rejected with its number, its text and what would be right.
//! Lines are read with a maximum length, so that a file without line ends cannot fill the memory; the `csv` crate has no
//! such bound.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

use super::scenario::{Arrival, Traffic};
use super::text::grouped;

/// Maximum number of requests, which take a quarter of a gigabyte.
const MAX_ARRIVALS: usize = 10_000_000;

/// Maximum length of a line in bytes, far above that of any time and cost.
const MAX_LINE: u64 = 256;

/// The last time that the engine's clock can show, in the year 2112.
const LAST_US: u64 = 1 << 52;

/// A whole number from here on counts milliseconds: as seconds it would be in the year 5138.
const MILLISECONDS_FROM: u64 = 100_000_000_000;

/// Maximum cost: no limit holds more.
const MAX_COST: u64 = 4_000_000_000;

const TIME_EXPECTED: &str =
    "seconds since the epoch (1767610798.25) or whole milliseconds (1767610798250)";

/// Reads the arrivals of a file, or of stdin if the path is `-`.
///
/// # Errors
/// What is wrong with the file, and where.
pub(super) fn read(path: &Path, sort: bool) -> Result<Traffic, String> {
    let (file, reader): (String, Box<dyn BufRead>) = if path == Path::new("-") {
        ("stdin".to_owned(), Box::new(io::stdin().lock()))
    } else {
        let file = path.display().to_string();
        let opened = File::open(path).map_err(|error| format!("cannot read {file}: {error}"))?;
        (file, Box::new(BufReader::new(opened)))
    };
    let arrivals = arrivals(&file, reader, sort)?;
    let requests = grouped(arrivals.len() as u64);
    let mut traffic = Traffic {
        name: "csv".to_owned(),
        title: format!("The {requests} requests of {file}"),
        scenario: None,
        // Small numbers count from an arbitrary start; they are not times of day.
        by_the_clock: (arrivals.first()).is_some_and(|first| first.at_us >= 365 * 86_400_000_000),
        arrivals,
        seed: None,
        view_us: None,
    };
    if traffic.unit() == "tokens" {
        traffic.title += &format!(", {} tokens", grouped(traffic.total_cost()));
    }
    Ok(traffic)
}

fn arrivals(file: &str, mut reader: impl BufRead, sort: bool) -> Result<Vec<Arrival>, String> {
    let mut arrivals: Vec<Arrival> = Vec::new();
    let mut bytes = Vec::new();
    for line in 1_u64.. {
        let wrong = |what: String| format!("{file}, line {line}: {what}");
        bytes.clear();
        let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes);
        if read.map_err(|error| format!("cannot read {file}: {error}"))? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() || (line == 1 && is_header(text)) {
            continue;
        }
        let arrival = arrival(text).map_err(wrong)?;
        let is_early = (arrivals.last()).is_some_and(|last| arrival.at_us < last.at_us);
        if is_early && !sort {
            let what = "this request came before the one above it; sort the file, or add --sort";
            return Err(wrong(what.to_owned()));
        }
        if arrivals.len() == MAX_ARRIVALS {
            let max = grouped(MAX_ARRIVALS as u64);
            return Err(wrong(format!(
                "more than {max} requests; simulate a part of them"
            )));
        }
        arrivals.push(arrival);
    }
    if arrivals.is_empty() {
        return Err(format!(
            "{file} has no requests; expected a line for each: {TIME_EXPECTED}"
        ));
    }
    if sort {
        // Stable: requests with the same time keep their order.
        arrivals.sort_by_key(|arrival| arrival.at_us);
    }
    Ok(arrivals)
}

/// Names of columns start with a letter; times do not.
fn is_header(text: &str) -> bool {
    text.trim_start_matches('"')
        .starts_with(char::is_alphabetic)
}

fn arrival(text: &str) -> Result<Arrival, String> {
    let unexpected = |found: &str, expected: &str| {
        let found: String = found.chars().take(60).collect();
        Err(format!("found {found:?}, expected {expected}"))
    };
    let (time, cost) = match text.split_once(',') {
        Some((time, cost)) => (time.trim(), cost.trim()),
        None => (text, "1"),
    };
    let at_us = match time_us(time) {
        Some(at_us) if at_us <= LAST_US => at_us,
        Some(_) => return unexpected(time, "a time before the year 2112"),
        None => return unexpected(time, TIME_EXPECTED),
    };
    match cost.parse() {
        Ok(cost @ 1..=MAX_COST) => Ok(Arrival { at_us, cost }),
        _ => {
            let max = grouped(MAX_COST);
            unexpected(cost, &format!("a cost: a whole number from 1 to {max}"))
        }
    }
}

/// A time in microseconds; fractions of a microsecond are dropped.
fn time_us(text: &str) -> Option<u64> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    // A number with too many digits is a time that is too late, which the caller reports.
    let number = whole.parse::<u64>().unwrap_or(u64::MAX);
    if number >= MILLISECONDS_FROM && !text.contains('.') {
        return Some(number.saturating_mul(1_000));
    }
    let micros = format!("{fraction:0<6.6}").parse().unwrap_or(0);
    Some(number.saturating_mul(1_000_000).saturating_add(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(u64, u64)>, String> {
        read_and(text, false)
    }

    fn read_and(text: &str, sort: bool) -> Result<Vec<(u64, u64)>, String> {
        let pairs = |arrivals: Vec<Arrival>| arrivals.iter().map(|a| (a.at_us, a.cost)).collect();
        arrivals("a.csv", text.as_bytes(), sort).map(pairs)
    }

    #[test]
    fn seconds_and_milliseconds_are_read() {
        let text =
            "\u{feff}time,cost\r\n1767610798.25,3\r\n\r\n1767610798250\n1767610799.1234567, 2 \n";
        let expected = vec![
            (1_767_610_798_250_000, 3),
            (1_767_610_798_250_000, 1),
            (1_767_610_799_123_456, 2),
        ];
        assert_eq!(read(text), Ok(expected));
        assert_eq!(read("0\n0.5"), Ok(vec![(0, 1), (500_000, 1)]));
    }

    #[test]
    fn an_invalid_line_is_rejected_with_its_number() {
        for (text, hint) in [
            (
                "1\nx\n",
                "a.csv, line 2: found \"x\", expected seconds since the epoch",
            ),
            ("1\n-2\n", "line 2: found \"-2\""),
            ("1.\n", "line 1: found \"1.\""),
            ("1e9\n", "line 1: found \"1e9\""),
            ("NaN\n1,NaN\n", "line 2: found \"NaN\", expected a cost"),
            ("1,0\n", "found \"0\", expected a cost"),
            ("1,2,3\n", "found \"2,3\", expected a cost"),
            ("1,4000000001\n", "from 1 to 4,000,000,000"),
            ("99999999999999999999\n", "before the year 2112"),
            ("5000000000\n", "before the year 2112"),
            (
                "2\n1\n",
                "line 2: this request came before the one above it",
            ),
            ("", "a.csv has no requests"),
            ("time,cost\n", "a.csv has no requests"),
            ("1\n\u{0}\n", "line 2"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(hint), "{text:?} gave: {error}");
        }
    }

    #[test]
    fn a_line_without_end_is_rejected_early() {
        let error = read(&"1".repeat(100_000)).unwrap_err();
        assert!(error.contains("line 1"), "{error}");
        assert!(error.len() < 300);
    }

    #[test]
    fn sorting_keeps_the_order_of_equal_times() {
        let expected = vec![(1_000_000, 5), (2_000_000, 1), (2_000_000, 9)];
        assert_eq!(read_and("2,1\n1,5\n2,9", true), Ok(expected));
    }
}
