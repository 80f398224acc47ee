//! Readers of single values, and the form in which messages show values.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use super::Input;
use crate::document::mask;
use crate::text::{grouped, nearest};

/// Words as a list, such as `a, b and c`.
#[must_use]
pub fn listed(words: &[&str], and: &str) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} {and} {last}", first.join(", ")),
    }
}

/// Text from a user as messages show it: quoted, without control characters and passwords, at most 60 characters of it.
#[must_use]
pub fn shortened(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    let text = mask::without_password(text);
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

/// Text of 1 to `max` characters, none of them control characters.
pub(crate) fn text(max: usize, expected: &'static str) -> impl Fn(&Input<'_>) -> Option<String> {
    move |input| {
        let text = &input.scalar(expected)?.text;
        let length = text.chars().count();
        let wrong = if length == 0 {
            format!("this is empty; expected {expected}")
        } else if length > max {
            format!("this has {length} characters; {expected} has at most {max}")
        } else if text.contains(char::is_control) {
            format!("this has control characters in it; {expected} has none")
        } else {
            return Some(text.clone());
        };
        input.reject(wrong, "")
    }
}

/// A value whose type says what is wrong with its text. That may not be shown if the text came from the environment.
pub(crate) fn parsed<T: FromStr<Err: Display>>(
    expected: &'static str,
) -> impl Fn(&Input<'_>) -> Option<T> {
    move |input| match input.scalar(expected)?.text.parse() {
        Ok(value) => Some(value),
        Err(_) if input.is_from_environment() => input.reject_value(expected, ""),
        Err(error) => input.reject(error.to_string(), ""),
    }
}

/// A whole number: digits, with `_` between any two of them.
#[must_use]
pub fn whole_number(text: &str) -> Option<u64> {
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    match text.split('_').all(is_digits) {
        true => text.replace('_', "").parse().ok(),
        false => None,
    }
}

/// Values within a range. `expected` describes them, and `show` writes them in messages.
fn ranged<T: Copy + PartialOrd>(
    expected: &'static str,
    kind: &'static str,
    parse: fn(&str) -> Option<T>,
    show: fn(T) -> String,
    range: RangeInclusive<T>,
) -> impl Fn(&Input<'_>) -> Option<T> {
    move |input| match parse(&input.scalar(expected)?.text) {
        Some(value) if range.contains(&value) => Some(value),
        Some(_) => {
            let (min, max) = (show(*range.start()), show(*range.end()));
            input.reject_value(&format!("{kind} from {min} to {max}"), "")
        }
        None => input.reject_value(expected, ""),
    }
}

/// The bounds of a range as the widest type.
fn wide<T: Copy + TryInto<u64>>(range: &RangeInclusive<T>) -> RangeInclusive<u64> {
    let bound = |bound: T| bound.try_into().unwrap_or(u64::MAX);
    bound(*range.start())..=bound(*range.end())
}

pub(crate) fn number<T>(range: RangeInclusive<T>) -> impl Fn(&Input<'_>) -> Option<T>
where
    T: Copy + TryFrom<u64> + TryInto<u64>,
{
    let range = wide(&range);
    move |input| {
        let (min, max) = (grouped(*range.start()), grouped(*range.end()));
        input.parse(&format!("a whole number from {min} to {max}"), |text| {
            let number = whole_number(text).filter(|number| range.contains(number));
            T::try_from(number?).ok()
        })
    }
}

pub(crate) fn boolean(input: &Input<'_>) -> Option<bool> {
    let value = choice(&[("true", true), ("false", false)])(input);
    match &*input.visible_text().to_ascii_lowercase() {
        "yes" | "on" | "y" | "1" => input.help_last("did you mean \"true\"?"),
        "no" | "off" | "n" | "0" => input.help_last("did you mean \"false\"?"),
        _ => {}
    }
    value
}

/// One of a few words.
pub(crate) fn choice<T: Copy>(words: &[(&'static str, T)]) -> impl Fn(&Input<'_>) -> Option<T> {
    move |input| {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        let expected = listed(&names, "or");
        let scalar = input.scalar(&expected)?;
        if let Some((_, value)) = words.iter().find(|(name, _)| *name == scalar.text) {
            return Some(*value);
        }
        let similar = nearest(input.visible_text(), &names);
        let help = similar.map(|similar| format!("did you mean {similar:?}?"));
        input.reject_value(&expected, &help.unwrap_or_default())
    }
}

/// A word with a meaning of its own, or else what `read` accepts.
pub(crate) fn or_word<'a, T: Clone>(
    word: &'static str,
    meaning: T,
    read: impl Fn(&Input<'a>) -> Option<T>,
) -> impl Fn(&Input<'a>) -> Option<T> {
    move |input| {
        if input.as_scalar().is_some_and(|scalar| scalar.text == word) {
            return Some(meaning.clone());
        }
        let value = read(input);
        if value.is_none() && input.as_scalar().is_some() {
            input.help_last(&format!("or write {word}"));
        }
        value
    }
}

const TIME_UNITS: [(&str, u64); 6] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 604_800_000),
];

const SIZE_UNITS: [(&str, u64); 4] = [
    ("", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// A number and a unit, with or without spaces between them.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit());
    let (count, unit) = text.split_at(unit_at.unwrap_or(text.len()));
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    count.parse::<u64>().ok()?.checked_mul(*factor)
}

/// An amount in the largest unit that divides it.
fn in_unit(amount: u64, units: &[(&str, u64)]) -> String {
    let divides = |(_, factor): &&(&str, u64)| amount > 0 && amount.is_multiple_of(*factor);
    let unit = units.iter().rev().find(divides).or(units.first());
    let (name, factor) = unit.copied().unwrap_or(("", 1));
    format!("{}{name}", amount / factor)
}

/// A time such as `10ms`, `1m` or `30d`.
pub(crate) fn duration(range: RangeInclusive<Duration>) -> impl Fn(&Input<'_>) -> Option<Duration> {
    let expected = "a time such as 10ms, 5s, 1m, 2h or 30d";
    let read = ranged(expected, "a time", parsed_duration, duration_text, range);
    move |input| {
        let value = read(input);
        if let Some(number) = whole_number(input.visible_text()) {
            input.help_last(&format!("add the unit: {number}ms or {number}s"));
        }
        value
    }
}

/// A time such as `250ms`, `10s` or `1h`.
#[must_use]
pub fn parsed_duration(text: &str) -> Option<Duration> {
    with_unit(text, &TIME_UNITS).map(Duration::from_millis)
}

/// A time in the largest unit that divides it; weeks as days.
pub(crate) fn duration_text(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let [to_days @ .., _weeks] = &TIME_UNITS;
    in_unit(ms, to_days)
}

/// A number of bytes such as `4096`, `32KiB` or `100MiB`.
pub(crate) fn size<T>(range: RangeInclusive<T>) -> impl Fn(&Input<'_>) -> Option<T>
where
    T: Copy + TryFrom<u64> + TryInto<u64>,
{
    let expected = "a size such as 32KiB, 100MiB or 1GiB";
    let parse = |text: &str| with_unit(text, &SIZE_UNITS);
    let read = ranged(expected, "a size", parse, size_text, wide(&range));
    move |input| T::try_from(read(input)?).ok()
}

/// A size in the largest unit that divides it.
pub(crate) fn size_text(bytes: u64) -> String {
    in_unit(bytes, &SIZE_UNITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        for (text, ms) in [
            ("10ms", 10),
            ("1m", 60_000),
            ("30d", 2_592_000_000),
            ("2 h", 7_200_000),
        ] {
            let duration = parsed_duration(text).unwrap();
            assert_eq!(duration, Duration::from_millis(ms));
            assert_eq!(duration_text(duration), text.replace(' ', ""));
        }
        assert_eq!(duration_text(Duration::from_secs(14 * 86_400)), "14d");
        assert_eq!(duration_text(Duration::ZERO), "0ms");
        for wrong in [
            "",
            "10",
            "ms",
            "-1s",
            "1.5s",
            "1 fortnight",
            "99999999999999999999s",
            "9999999999999999w",
        ] {
            assert_eq!(parsed_duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sizes_are_read_and_written() {
        let parsed = |text| with_unit(text, &SIZE_UNITS);
        for (text, bytes) in [
            ("0", 0),
            ("100", 100),
            ("32KiB", 32_768),
            ("100MiB", 104_857_600),
            ("2 GiB", 2_147_483_648),
        ] {
            assert_eq!(parsed(text), Some(bytes), "{text}");
            assert_eq!(size_text(bytes), text.replace(' ', ""));
        }
        for wrong in [
            "",
            "MiB",
            "-1",
            "1.5MiB",
            "1 MB",
            "99999999999999999999",
            "99999999999GiB",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn numbers_have_separators_only_between_digits() {
        for (text, number) in [("0", 0), ("1_000", 1_000), ("1_0_0", 100)] {
            assert_eq!(whole_number(text), Some(number), "{text}");
        }
        for wrong in [
            "",
            "_",
            "_1",
            "1_",
            "1__0",
            "1,5",
            "1,000",
            "1.5",
            "-1",
            "+1",
            "99999999999999999999",
        ] {
            assert_eq!(whole_number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn shortened_text_has_no_password() {
        assert_eq!(shortened("redis://u:pw@h\n"), "\"redis://u:***@h\\n\"");
        assert!(shortened(&"x".repeat(1_000)).len() < 80);
    }
}
