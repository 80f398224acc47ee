//! Arrivals from a CSV file: `time[,cost]`, one request per line.
//!
//! Nothing is guessed: a line that is not understood is refused with its number, what it says and what would be right.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

use super::text::grouped;
use super::traffic::{Arrival, Traffic};

/// More requests than this do not fit in a quarter of a gigabyte.
const MOST_ARRIVALS: usize = 10_000_000;

/// The longest line that can be one: far longer than any time and cost.
const LONGEST_LINE: u64 = 256;

/// Past the year 2112 the engine's clock stands still.
const LAST_US: u64 = 1 << 52;

/// A whole number from here on counts milliseconds: as seconds it would lie in the year 5138.
const MILLISECONDS_FROM: u64 = 100_000_000_000;

/// The largest cost: no limit holds more.
const MOST_COST: u64 = 4_000_000_000;

const TIME_EXPECTED: &str =
    "seconds since the epoch (1767610798.25) or whole milliseconds (1767610798250)";

/// Why a CSV was refused.
#[derive(Debug)]
pub(super) enum CsvError {
    /// It could not be read.
    Unreadable { file: String, error: io::Error },
    /// A line is not `time[,cost]`.
    Malformed {
        file: String,
        line: u64,
        found: String,
        expected: String,
    },
    /// A line lies before the one above it.
    OutOfOrder { file: String, line: u64 },
    /// There is no request in it.
    Empty { file: String },
    /// There are too many requests in it.
    TooMany { file: String, line: u64 },
}

impl fmt::Display for CsvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { file, error } => write!(f, "cannot read {file}: {error}"),
            Self::Malformed {
                file,
                line,
                found,
                expected,
            } => {
                write!(
                    f,
                    "{file}, line {line}: found {found:?}, expected {expected}"
                )
            }
            Self::OutOfOrder { file, line } => write!(
                f,
                "{file}, line {line}: this request came before the one above it; sort the file, or add --sort"
            ),
            Self::Empty { file } => write!(
                f,
                "{file} has no requests; expected a line for each: {TIME_EXPECTED}"
            ),
            Self::TooMany { file, line } => write!(
                f,
                "{file}, line {line}: more than {} requests; simulate a part of them",
                grouped(MOST_ARRIVALS as u64)
            ),
        }
    }
}

impl std::error::Error for CsvError {}

/// Reads the arrivals of a file, or of stdin if the path is `-`.
pub(super) fn read(path: &Path, sort: bool) -> Result<Traffic, CsvError> {
    let (file, reader): (String, Box<dyn BufRead>) = if path == Path::new("-") {
        ("stdin".to_owned(), Box::new(io::stdin().lock()))
    } else {
        let file = path.display().to_string();
        match File::open(path) {
            Ok(opened) => (file, Box::new(BufReader::new(opened))),
            Err(error) => return Err(CsvError::Unreadable { file, error }),
        }
    };
    let arrivals = arrivals(&file, reader, sort)?;
    // Small numbers are somebody's own count of seconds, not times of day.
    let by_the_clock = arrivals
        .first()
        .is_some_and(|first| first.at_us >= 365 * 86_400_000_000);
    let (requests, tokens) = (
        arrivals.len() as u64,
        arrivals.iter().map(|arrival| arrival.cost).sum(),
    );
    let mut shows = format!("The {} requests of {file}", grouped(requests));
    if tokens != requests {
        shows += &format!(", {} tokens", grouped(tokens));
    }
    Ok(Traffic {
        name: "csv".to_owned(),
        shows,
        scenario: None,
        arrivals,
        seed: None,
        view_us: None,
        by_the_clock,
    })
}

fn arrivals(file: &str, mut reader: impl BufRead, sort: bool) -> Result<Vec<Arrival>, CsvError> {
    let file = || file.to_owned();
    let unreadable = |error| CsvError::Unreadable {
        file: file(),
        error,
    };
    let mut arrivals: Vec<Arrival> = Vec::new();
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let mut one_line = reader.by_ref().take(LONGEST_LINE);
        if one_line.read_until(b'\n', &mut bytes).map_err(unreadable)? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() || (line == 1 && is_header(text)) {
            continue;
        }
        let arrival =
            arrival(text).map_err(|Unexpected { found, expected }| CsvError::Malformed {
                file: file(),
                line,
                found,
                expected,
            })?;
        if !sort
            && arrivals
                .last()
                .is_some_and(|last| arrival.at_us < last.at_us)
        {
            return Err(CsvError::OutOfOrder { file: file(), line });
        }
        if arrivals.len() == MOST_ARRIVALS {
            return Err(CsvError::TooMany { file: file(), line });
        }
        arrivals.push(arrival);
    }
    if arrivals.is_empty() {
        return Err(CsvError::Empty { file: file() });
    }
    if sort {
        // Stable: requests of the same time stay in the order in which they were written.
        arrivals.sort_by_key(|arrival| arrival.at_us);
    }
    Ok(arrivals)
}

/// What stands in a line where something else should.
struct Unexpected {
    found: String,
    expected: String,
}

fn unexpected<T>(found: &str, expected: impl Into<String>) -> Result<T, Unexpected> {
    let (found, expected) = (found.chars().take(60).collect(), expected.into());
    Err(Unexpected { found, expected })
}

/// Names of columns hold no time: they start with a letter.
fn is_header(text: &str) -> bool {
    text.trim_start_matches('"')
        .starts_with(char::is_alphabetic)
}

fn arrival(text: &str) -> Result<Arrival, Unexpected> {
    let (time, cost) = match text.split_once(',') {
        Some((time, cost)) => (time.trim(), Some(cost.trim())),
        None => (text, None),
    };
    let at_us = match time_us(time) {
        Some(at_us) if at_us <= LAST_US => at_us,
        Some(_) => return unexpected(time, "a time before the year 2112"),
        None => return unexpected(time, TIME_EXPECTED),
    };
    let Some(cost) = cost else {
        return Ok(Arrival::at_us(at_us));
    };
    match cost.parse() {
        Ok(cost @ 1..=MOST_COST) => Ok(Arrival { at_us, cost }),
        _ => unexpected(
            cost,
            format!("a cost: a whole number from 1 to {}", grouped(MOST_COST)),
        ),
    }
}

/// A time in microseconds; what lies below a microsecond is dropped.
fn time_us(text: &str) -> Option<u64> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    // Too many digits for a number is too late for a time, which the caller says.
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
        arrivals("a.csv", text.as_bytes(), sort)
            .map(pairs)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn seconds_and_milliseconds_are_understood() {
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
    fn what_is_not_understood_is_refused_with_its_line() {
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
            assert!(error.contains(hint), "{text:?} said: {error}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
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
