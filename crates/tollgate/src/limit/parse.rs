//! Limits as text.
//!
//! ```text
//! limit     = amount ("/" | "per") period { option }
//! amount    = number [ "." digits ]: 10, 10_000, 0.5
//! number    = digits with "_" between any two of them, or with "," before each group of three: 10_000, 1,000,000
//! period    = [digits] unit: s, 1m, 250ms, 2 hours
//! option    = "burst" number | "queue" number | algorithm
//! algorithm = token_bucket | leaky_bucket | fixed_window | sliding_log | sliding_counter
//! ```
//!
//! Without an algorithm, `queue` means a leaky bucket and everything else a token bucket. Without a burst or
//! queue, a bucket holds what one period brings.
//!
//! Separators anywhere else are refused: `1,5/s` is not meant to be 15.

use std::str::FromStr;
use std::time::Duration;

use super::{Algorithm, Limit};
use crate::rate::{LONGEST_US, LimitError, Rate, grouped, period_text, unit_us};

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(input: &str) -> Result<Self, LimitError> {
        let mut text = Cursor { input, at: 0 };
        let (amount, period) = text.amount_per_period()?;
        let options = text.options()?;
        options.limit(&amount, period)
    }
}

impl FromStr for Rate {
    type Err = LimitError;

    fn from_str(input: &str) -> Result<Self, LimitError> {
        let mut text = Cursor { input, at: 0 };
        let (amount, period) = text.amount_per_period()?;
        text.skip_space();
        if !text.rest().is_empty() {
            return Err(text.expected("nothing more after the rate"));
        }
        amount.rate(period)
    }
}

/// A decimal number, kept exactly: `digits / scale`.
struct Amount<'a> {
    digits: u64,
    scale: u64,
    input: &'a str,
    position: usize,
}

impl Amount<'_> {
    fn rate(&self, period: Duration) -> Result<Rate, LimitError> {
        let period_us = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
        if self.scale == 1 || period_us > LONGEST_US {
            return Rate::new(self.digits, period);
        }
        match rate_of(self.digits, self.scale, period_us) {
            // The period is derived, so it is the number that has to be another.
            Err(LimitError::TooLong { .. } | LimitError::TooFine { .. }) => {
                Err(LimitError::Syntax {
                    input: self.input.to_owned(),
                    position: self.position,
                    expected: match self.rounder(period_us) {
                        Some(rate) => format!(
                            "a rounder number, such as {rate}: this one cannot be kept exactly"
                        ),
                        None => "a faster rate: the slowest is 1/400d".to_owned(),
                    },
                })
            }
            made => made,
        }
    }

    /// The next slower rate that can be kept: with fewer digits, or as one per a number of seconds.
    fn rounder(&self, period_us: u64) -> Option<String> {
        let steps = std::iter::successors(Some(10), |step: &u64| step.checked_mul(10));
        let rounded = steps
            .map(|step| self.digits / step * step)
            .take_while(|digits| *digits > 0)
            .find(|digits| rate_of(*digits, self.scale, period_us).is_ok());
        let Some(rounded) = rounded else {
            let us = u128::from(period_us) * u128::from(self.scale);
            let seconds = us.div_ceil(u128::from(self.digits) * 1_000_000);
            let seconds = u64::try_from(seconds).ok()?;
            return (seconds <= LONGEST_US / 1_000_000).then(|| format!("1/{seconds}s"));
        };
        let (whole, fraction) = (grouped(rounded / self.scale), rounded % self.scale);
        let decimals = self.scale.ilog10() as usize;
        let amount = format!("{whole}.{fraction:0decimals$}");
        let amount = amount.trim_end_matches('0').trim_end_matches('.');
        Some(format!("{amount}/{}", period_text(period_us)))
    }

    fn whole(&self) -> Result<u64, LimitError> {
        if self.digits.is_multiple_of(self.scale) {
            return Ok(self.digits / self.scale);
        }
        Err(LimitError::Syntax {
            input: self.input.to_owned(),
            position: self.position,
            expected: "a whole number, as windows count requests (0.5/s is 1 per 2s)".to_owned(),
        })
    }

    /// What one period brings, rounded up: the capacity of a bucket that names none.
    fn rounded_up(&self) -> u64 {
        self.digits.div_ceil(self.scale)
    }
}

#[derive(Default)]
struct Options<'a> {
    burst: Option<(u64, Cursor<'a>)>,
    queue: Option<(u64, Cursor<'a>)>,
    algorithm: Option<Algorithm>,
}

impl Options<'_> {
    fn limit(self, amount: &Amount<'_>, period: Duration) -> Result<Limit, LimitError> {
        let algorithm = self.algorithm.unwrap_or(match self.queue {
            Some(_) => Algorithm::LeakyBucket,
            None => Algorithm::TokenBucket,
        });
        if let Some((_, at)) = self.burst
            && algorithm != Algorithm::TokenBucket
        {
            return Err(at.expected(format!("no burst: {algorithm} has none")));
        }
        if let Some((_, at)) = self.queue
            && algorithm != Algorithm::LeakyBucket
        {
            return Err(at.expected(format!("no queue: {algorithm} has none")));
        }
        let or_one_period =
            |given: Option<(u64, _)>| given.map_or_else(|| amount.rounded_up(), |(n, _)| n);
        match algorithm {
            Algorithm::TokenBucket => {
                Limit::token_bucket(amount.rate(period)?, or_one_period(self.burst))
            }
            Algorithm::LeakyBucket => {
                Limit::leaky_bucket(amount.rate(period)?, or_one_period(self.queue))
            }
            Algorithm::FixedWindow => Limit::fixed_window(amount.whole()?, period),
            Algorithm::SlidingLog => Limit::sliding_log(amount.whole()?, period),
            Algorithm::SlidingCounter => Limit::sliding_counter(amount.whole()?, period),
        }
    }
}

/// Where the reader stands in the text.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    input: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        self.input.get(self.at..).unwrap_or("")
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn expected(&self, expected: impl Into<String>) -> LimitError {
        LimitError::Syntax {
            input: self.input.to_owned(),
            position: self.at,
            expected: expected.into(),
        }
    }

    /// Takes the longest run of characters that `belongs`.
    fn run(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        self.skip_space();
        let rest = self.rest();
        let run = &rest[..rest.find(|c| !belongs(c)).unwrap_or(rest.len())];
        self.at += run.len();
        run
    }

    fn word(&mut self) -> &'a str {
        self.run(|c| c.is_alphabetic() || c == '_' || c == '-')
    }

    fn amount_per_period(&mut self) -> Result<(Amount<'a>, Duration), LimitError> {
        let amount = self.amount()?;
        self.skip_space();
        if self.rest().starts_with('/') {
            self.at += 1;
        } else {
            let before = *self;
            if self.word() != "per" {
                return Err(
                    before.expected("\"/\" or \"per\" and a period, as in 10/s or 600 per 1m")
                );
            }
        }
        Ok((amount, self.period()?))
    }

    fn amount(&mut self) -> Result<Amount<'a>, LimitError> {
        self.skip_space();
        let before = *self;
        let run = self.run(|c| c.is_ascii_digit() || matches!(c, '_' | ',' | '.'));
        let (whole, fraction) = run.split_once('.').unwrap_or((run, ""));
        if whole.is_empty() {
            return Err(before.expected("a positive number, as in 10/s"));
        }
        if fraction.contains('.') {
            return Err(before.expected("a number with one decimal point"));
        }
        let is_grouped = fraction.contains(',');
        let plain = (plain_digits(whole), plain_digits(fraction));
        let (whole, fraction) = match plain {
            (Some(whole), Some(fraction)) if !is_grouped => (whole, fraction),
            (Some(whole), None) if fraction.is_empty() => (whole, String::new()),
            _ => return Err(before.expected(number_for(run))),
        };
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > 9 {
            return Err(before.expected("a number with at most 9 decimals"));
        }
        let scale = (0..fraction.len()).fold(1, |scale, _| scale * 10);
        let digits = format!("{whole}{fraction}")
            .parse()
            .map_err(|_| before.expected("a smaller number: the fastest rate is 10,000,000/s"))?;
        Ok(Amount {
            digits,
            scale,
            input: self.input,
            position: before.at,
        })
    }

    fn whole_number(&mut self, name: &str) -> Result<u64, LimitError> {
        self.skip_space();
        let before = *self;
        let run = self.run(|c| c.is_ascii_digit() || matches!(c, '_' | ','));
        if run.is_empty() {
            let expected = format!("a whole number after {name:?}, as in {name} 50");
            return Err(before.expected(expected));
        }
        let Some(plain) = plain_digits(run) else {
            return Err(before.expected(format!("a whole number, with {GROUPS}")));
        };
        plain
            .parse()
            .map_err(|_| before.expected(format!("a smaller {name}: at most 4,000,000,000")))
    }

    fn period(&mut self) -> Result<Duration, LimitError> {
        self.skip_space();
        let before = *self;
        let digits = self.run(|c| c.is_ascii_digit());
        let count = match digits {
            "" => 1,
            _ => digits
                .parse::<u64>()
                .map_err(|_| before.expected("a shorter period: at most 400d"))?,
        };
        self.skip_space();
        let before_unit = *self;
        let unit = self.word();
        let Some(us) = unit_us(unit) else {
            return Err(before_unit.expected("a unit of time: ms, s, min, h or day"));
        };
        Ok(Duration::from_micros(us.saturating_mul(count)))
    }

    fn options(&mut self) -> Result<Options<'a>, LimitError> {
        let mut options = Options::default();
        loop {
            self.skip_space();
            if self.rest().is_empty() {
                return Ok(options);
            }
            let before = *self;
            let name = self.word().replace('-', "_");
            let said_before = match name.as_str() {
                "burst" => {
                    let n = self.whole_number("burst")?;
                    options.burst.replace((n, before)).is_some()
                }
                "queue" => {
                    let n = self.whole_number("queue")?;
                    options.queue.replace((n, before)).is_some()
                }
                _ => match Algorithm::ALL.into_iter().find(|a| a.name() == name) {
                    Some(algorithm) => options.algorithm.replace(algorithm).is_some(),
                    None => return Err(before.expected(option_for(&name))),
                },
            };
            if said_before {
                return Err(before.expected(format!("no second {name}")));
            }
        }
    }
}

const GROUPS: &str =
    "three digits behind every comma, as in 1,000,000, and a digit on both sides of every \"_\"";

/// The digits alone; `None` where a separator does not stand between them as it should.
fn plain_digits(text: &str) -> Option<String> {
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_right = match text.split_once(',') {
        None => text.split('_').all(is_digits),
        Some((first, rest)) => {
            let is_group = |group: &str| is_digits(group) && group.len() == 3;
            // No number begins with a group of 0: 0,500 is a half.
            let is_first = is_digits(first) && first.len() <= 3 && !first.starts_with('0');
            is_first && rest.split(',').all(is_group)
        }
    };
    is_right.then(|| text.replace(['_', ','], ""))
}

/// What should stand in the place of a number with separators where none belong. Most likely it has a decimal comma.
fn number_for(got: &str) -> String {
    let Some((whole, fraction)) = got.split_once(',') else {
        return format!("a number with {GROUPS}");
    };
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit());
    let may_be_group =
        fraction.len() == 3 && !whole.is_empty() && whole != "0" && !whole.contains('.');
    if !is_fraction || may_be_group {
        return format!("a number with {GROUPS}");
    }
    let digits = whole.replace(['_', '.'], "");
    let whole = if digits.is_empty() { "0" } else { &digits };
    format!(
        "a decimal point, as commas only set groups of three digits apart: write {whole}.{fraction}"
    )
}

fn option_for(got: &str) -> String {
    let mut names = vec!["burst", "queue"];
    names.extend(Algorithm::ALL.map(Algorithm::name));
    let plain = got.to_lowercase().replace('-', "_");
    let slips = |name: &&str| strsim::osa_distance(&plain, name);
    // A long word is no slip of one of these, and comparing takes time by its length.
    let nearest = names
        .iter()
        .filter(|_| got.len() <= 64)
        .min_by_key(|name| slips(name));
    match nearest.filter(|name| slips(name) <= (plain.len() / 3).max(1)) {
        Some(name) => format!("{name:?}"),
        None => format!("one of {}", names.join(", ")),
    }
}

/// `digits / scale` per period, with the shortest period that makes it whole: 0.001/s is 1 per 1000 s.
fn rate_of(digits: u64, scale: u64, period_us: u64) -> Result<Rate, LimitError> {
    let shared = gcd(digits, scale).max(1);
    let (count, scale) = (digits / shared, scale / shared);
    // Longer than any number of microseconds, before it is shortened.
    let period_us = u128::from(period_us) * u128::from(scale);
    // 99.999/d is 99999 per 1000 days, which is too long, and so 11111 per 111 days and a bit.
    let shared = match period_us > u128::from(LONGEST_US) {
        // What divides both divides the count and what is left of the period by it.
        true => gcd(
            count,
            u64::try_from(period_us % u128::from(count.max(1))).unwrap_or(0),
        )
        .max(1),
        false => 1,
    };
    let period_us = u64::try_from(period_us / u128::from(shared)).unwrap_or(u64::MAX);
    Rate::new(count / shared, Duration::from_micros(period_us))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limit(text: &str) -> Limit {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    /// Their periods are longer than any number of microseconds before they are shortened.
    #[test]
    fn no_rate_becomes_another_because_its_period_is_long() {
        for text in ["4.294967297/d", "0.286331153/d"] {
            assert!(text.parse::<Limit>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_usual_spellings_are_understood() {
        let per_second = |n| Rate::per_second(n).unwrap();
        let minute = Duration::from_secs(60);
        for (text, expected) in [
            ("10/s burst 50", Limit::token_bucket(per_second(10), 50)),
            ("10/s", Limit::token_bucket(per_second(10), 10)),
            (
                " 10 / sec  burst 1_000 ",
                Limit::token_bucket(per_second(10), 1_000),
            ),
            ("600 per 1m", Limit::token_bucket(per_second(10), 600)),
            (
                "0.5/s",
                Limit::token_bucket(Rate::new(1, Duration::from_secs(2)).unwrap(), 1),
            ),
            (
                "0.001/s",
                Limit::token_bucket(Rate::new(1, Duration::from_secs(1_000)).unwrap(), 1),
            ),
            (
                "10,000,000/s",
                Limit::token_bucket(per_second(10_000_000), 10_000_000),
            ),
            (
                "1,234.5/s burst 1,000,000",
                Limit::token_bucket(Rate::new(2_469, Duration::from_secs(2)).unwrap(), 1_000_000),
            ),
            (
                "1_0_0.2_5/s burst 10_0",
                Limit::token_bucket(Rate::new(401, Duration::from_secs(4)).unwrap(), 100),
            ),
            // 99,999 per 1000 days, which is more than a period may last.
            (
                "99.999/day",
                Limit::token_bucket(
                    Rate::new(11_111, Duration::from_secs(9_600_000)).unwrap(),
                    100,
                ),
            ),
            (
                "3000/s queue 5000",
                Limit::leaky_bucket(per_second(3_000), 5_000),
            ),
            (
                "3000/s leaky_bucket",
                Limit::leaky_bucket(per_second(3_000), 3_000),
            ),
            ("200/min fixed_window", Limit::fixed_window(200, minute)),
            (
                "600 per 1m sliding_counter",
                Limit::sliding_counter(600, minute),
            ),
            (
                "5 per 400 days sliding-log",
                Limit::sliding_log(5, Duration::from_secs(400 * 86_400)),
            ),
            (
                "7 per 1ms fixed_window",
                Limit::fixed_window(7, Duration::from_millis(1)),
            ),
        ] {
            assert_eq!(limit(text), expected.unwrap(), "{text}");
        }
    }

    #[test]
    fn what_is_printed_is_read_back_as_the_same() {
        for text in [
            "10/s burst 50",
            "100/m burst 7",
            "3000/s queue 5000",
            "200 per 1m fixed_window",
            "5 per 90s sliding_log",
            "600 per 2h sliding_counter",
            "7/250ms burst 9",
        ] {
            assert_eq!(limit(text).to_string(), text);
            assert_eq!(limit(&limit(text).to_string()), limit(text));
        }
    }

    #[test]
    fn nonsense_is_refused_with_what_would_be_right() {
        for (text, hint) in [
            ("", "a positive number"),
            ("-5/s", "column 1, expected a positive number"),
            ("0/s", "the rate is 0"),
            ("inf/s", "a positive number"),
            ("NaN/s", "a positive number"),
            ("1e9/s", "\"/\" or \"per\""),
            ("10", "\"/\" or \"per\""),
            ("10/fortnight", "column 4, expected a unit of time"),
            ("10/0s", "shorter than 1ms"),
            ("10/401d", "longer than 400 days"),
            ("10/us", "shorter than 1ms"),
            ("10000001/s", "use at most 10,000,000/s"),
            ("99999999999999999999/s", "a smaller number"),
            ("1/99999999999999999999s", "a shorter period"),
            ("1/9999999999999999999s", "longer than 400 days"),
            ("10/s burst 0", "the burst is 0"),
            ("10/s burst", "a whole number after \"burst\""),
            ("10/s burst -1", "a whole number after \"burst\""),
            ("10/s burst 99999999999999999999", "a smaller burst"),
            ("10/s burst 4000000001", "at most 4,000,000,000"),
            ("10/s burts 5", "\"burst\""),
            ("10/s slidinglog", "\"sliding_log\""),
            ("10/s xyzzy", "one of burst, queue, token_bucket"),
            ("10/s burst 5 burst 6", "no second burst"),
            ("10/s queue 5 fixed_window", "fixed_window has none"),
            ("10/s burst 5 queue 6", "no burst: leaky_bucket has none"),
            ("0.5/s sliding_log", "0.5/s is 1 per 2s"),
            ("1.2.3/s", "one decimal point"),
            ("0.1234567891/s", "at most 9 decimals"),
            ("0.000000001/s", "the slowest is 1/400d"),
            ("1.5/401d", "longer than 400 days"),
            ("0.123456789/s", "a rounder number, such as 0.1234567/s:"),
            ("0.7/200d", "such as 1/24685715s:"),
            ("99.997/day", "a rounder number, such as 99.99/d:"),
            (
                "9999.999999999/s",
                "a rounder number, such as 9,999.99999/s:",
            ),
            (
                "9999999.99999/s",
                "a rounder number, such as 9,999,999.9999/s:",
            ),
            ("1,5/s", "column 1, expected a decimal point"),
            ("1,5/s", "write 1.5"),
            ("0,500/s", "write 0.500"),
            (",5/s", "write 0.5"),
            (",500/s", "write 0.500"),
            ("1.000,5/s", "write 1000.5"),
            ("1.000,500/s", "write 1000.500"),
            ("1_000,5/s", "write 1000.5"),
            ("1000,000/s", "three digits behind every comma"),
            ("1,00,000/s", "three digits behind every comma"),
            ("1,000,/s", "three digits behind every comma"),
            ("1,,000/s", "three digits behind every comma"),
            ("1_000,000/s", "three digits behind every comma"),
            ("1,000_000/s", "three digits behind every comma"),
            ("_5/s", "a digit on both sides of every \"_\""),
            ("5_/s", "a digit on both sides of every \"_\""),
            ("1__0/s", "a digit on both sides of every \"_\""),
            ("1._5/s", "a digit on both sides of every \"_\""),
            ("10/s burst 1,5", "a whole number, with three digits behind"),
            ("10/s burst ,5", "a whole number, with three digits behind"),
            ("10/s queue 5,", "a whole number, with three digits behind"),
            ("10/s queue _5", "a whole number, with three digits behind"),
            ("1000001/s sliding_log", "at most 1,000,000"),
            ("1/day burst 4000000000", "at most 36,525 tokens"),
            ("10/s €", "expected"),
        ] {
            let error = text.parse::<Limit>().expect_err(text).to_string();
            assert!(error.contains(hint), "{text:?} said: {error}");
        }
    }

    proptest! {
        /// Whatever lies between the slowest and the fastest rate that is promised is taken, or told what would be.
        #[test]
        fn a_rate_in_range_is_taken_or_told_a_rounder_one(
            (digits, shift) in (1_u64 << 52..1 << 53, 0_u32..52),
            decimals in 0_usize..=9,
            (unit, seconds) in prop::sample::select(vec![("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)]),
        ) {
            let (digits, scale) = (digits >> shift, 10_u64.pow(u32::try_from(decimals).unwrap()));
            let (whole, fraction) = (digits / scale, digits % scale);
            let text = match decimals {
                0 => format!("{whole}/{unit}"),
                _ => format!("{whole}.{fraction:0decimals$}/{unit}"),
            };
            let (tokens, period) = (u128::from(digits), u128::from(scale) * seconds);
            if tokens * 1_000 < period || tokens > period * 10_000_000 {
                return Ok(());
            }
            match text.parse::<Rate>() {
                Ok(rate) => prop_assert_eq!(rate.to_string().parse::<Rate>(), Ok(rate)),
                Err(error) => {
                    let error = error.to_string();
                    let told = error.split_once("such as ").or_else(|| error.split_once("; use "));
                    let told = told.and_then(|(_, told)| told.split(": ").next()).unwrap_or("nothing");
                    prop_assert!(told.parse::<Rate>().is_ok(), "{}: {}", text, error);
                }
            }
        }
    }

    #[test]
    fn a_rate_alone_is_a_rate() {
        assert_eq!(
            "600/min".parse::<Rate>().unwrap(),
            Rate::per_second(10).unwrap()
        );
        assert!("600/min burst 5".parse::<Rate>().is_err());
    }
}
