//! Limits as people write them.
//!
//! ```text
//! limit     = amount ("/" | "per") period { option }
//! amount    = digits with optional "_", "," between groups and an optional fraction: 10, 10_000, 0.5
//! period    = [digits] unit: s, 1m, 250ms, 2 hours
//! option    = "burst" digits | "queue" digits | algorithm
//! algorithm = token_bucket | leaky_bucket | fixed_window | sliding_log | sliding_counter
//! ```
//!
//! Without an algorithm, `queue` means a leaky bucket and everything else a token bucket. Without a burst or
//! queue, a bucket holds what one period brings.

use std::str::FromStr;
use std::time::Duration;

use super::amount::unit_us;
use super::{Algorithm, Limit, LimitError, Rate};

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
        // 0.001/s is 1 per 1000 s: the shortest period that makes the amount whole.
        let shared = gcd(self.digits, self.scale);
        let (digits, scale) = match shared {
            0 => (self.digits, 1),
            _ => (self.digits / shared, self.scale / shared),
        };
        let scale = u32::try_from(scale).unwrap_or(u32::MAX);
        Rate::new(digits, period.saturating_mul(scale))
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
            |said: Option<(u64, _)>| said.map_or_else(|| amount.rounded_up(), |(n, _)| n);
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
        let plain: String = run.chars().filter(|c| !matches!(c, '_' | ',')).collect();
        let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
        if whole.is_empty() {
            return Err(before.expected("a positive number, as in 10/s"));
        }
        if fraction.contains('.') {
            return Err(before.expected("a number with one decimal point"));
        }
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
        let plain: String = run.chars().filter(char::is_ascii_digit).collect();
        plain.parse().map_err(|_| {
            before.expected(match plain.is_empty() {
                true => format!("a whole number after {name:?}, as in {name} 50"),
                false => format!("a smaller {name}: at most 4,000,000,000"),
            })
        })
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

fn option_for(got: &str) -> String {
    let mut names = vec!["burst", "queue"];
    names.extend(Algorithm::ALL.map(Algorithm::name));
    match crate::nearest::nearest(got, &names) {
        Some(name) => format!("{name:?}"),
        None => format!("one of {}", names.join(", ")),
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str) -> Limit {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
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
            ("0.000000001/s", "longer than 400 days"),
            ("1000001/s sliding_log", "at most 1,000,000"),
            ("1/day burst 4000000000", "at most 36,525 tokens"),
            ("10/s €", "expected"),
        ] {
            let error = text.parse::<Limit>().expect_err(text).to_string();
            assert!(error.contains(hint), "{text:?} said: {error}");
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
