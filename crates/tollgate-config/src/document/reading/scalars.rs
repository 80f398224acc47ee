//! Readers of single values, and the words in which values are shown.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::Place;
use crate::document::problem::Problems;
use crate::document::{Scalar, mask};
use tollgate::words::{grouped, nearest};

/// Words as a list, such as `a, b and c`.
#[must_use]
pub fn listed(words: &[&str], and: &str) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} {and} {last}", first.join(", ")),
    }
}

/// Text from a user, to be shown in a message: in quotes, without control characters or passwords, at most 60 characters of it.
#[must_use]
pub fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    let text = mask::without_password(text);
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

/// What a scalar may be shown as.
pub(crate) fn shown(scalar: &Scalar) -> String {
    shortened(scalar.shown())
}

/// Text of 1 to `most` characters, none of them control characters.
pub(crate) fn text(
    most: usize,
    expected: &'static str,
) -> impl Fn(&Place<'_>, &mut Problems) -> Option<String> {
    move |place, problems| {
        let scalar = place.scalar(expected, problems)?;
        let length = scalar.text.chars().count();
        let wrong = if length == 0 {
            format!("this is empty; expected {expected}")
        } else if length > most {
            format!("this has {length} characters; {expected} has at most {most}")
        } else if scalar.text.contains(char::is_control) {
            format!("this has control characters in it; {expected} has none")
        } else {
            return Some(scalar.text.clone());
        };
        place.error(problems, wrong);
        None
    }
}

/// A whole number as it is written: digits, with `_` between any two of them.
#[must_use]
pub fn whole_number(text: &str) -> Option<u64> {
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    text.split('_')
        .all(is_digits)
        .then(|| text.replace('_', "").parse().ok())
        .flatten()
}

/// A [whole number](whole_number) within a range.
pub(crate) fn number(
    range: RangeInclusive<u64>,
) -> impl Fn(&Place<'_>, &mut Problems) -> Option<u64> {
    move |place, problems| {
        let scalar = place.scalar("a whole number", problems)?;
        let number = whole_number(&scalar.text);
        if let Some(number) = number.filter(|number| range.contains(number)) {
            return Some(number);
        }
        let (least, most) = (grouped(*range.start()), grouped(*range.end()));
        let got = shown(scalar);
        place.error(
            problems,
            format!("expected a whole number from {least} to {most}, got {got}"),
        );
        None
    }
}

/// True or false.
pub(crate) fn truth(place: &Place<'_>, problems: &mut Problems) -> Option<bool> {
    let truth = choice(&[("true", true), ("false", false)])(place, problems);
    let said = place.peek().map(|scalar| scalar.text.to_ascii_lowercase());
    let meant = match said.as_deref() {
        Some("yes" | "on" | "y" | "1") => "true",
        Some("no" | "off" | "n" | "0") => "false",
        _ => return truth,
    };
    problems.last_help(format!("did you mean {meant:?}?"));
    truth
}

/// One of a few words.
pub(crate) fn choice<T: Copy>(
    words: &[(&'static str, T)],
) -> impl Fn(&Place<'_>, &mut Problems) -> Option<T> {
    move |place, problems| {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        let expected = listed(&names, "or");
        let scalar = place.scalar(&expected, problems)?;
        let found = words.iter().find(|(name, _)| *name == scalar.text);
        if let Some((_, value)) = found {
            return Some(*value);
        }
        let message = format!("expected {expected}, got {}", shown(scalar));
        let problem = place.error(problems, message);
        let meant = nearest(&scalar.text, &names);
        if let Some(meant) = meant.filter(|_| !scalar.is_from_environment()) {
            problem.help(format!("did you mean {meant:?}?"));
        }
        None
    }
}

const UNITS: [(&str, u64); 6] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 604_800_000),
];

/// A time such as `10ms`, `1m` or `30d`.
pub(crate) fn duration(
    range: RangeInclusive<Duration>,
) -> impl Fn(&Place<'_>, &mut Problems) -> Option<Duration> {
    move |place, problems| {
        let expected = "a time such as 10ms, 5s, 1m, 2h or 30d";
        let scalar = place.scalar(expected, problems)?;
        let Some(duration) = parsed_duration(&scalar.text) else {
            let message = format!("expected {expected}, got {}", shown(scalar));
            let problem = place.error(problems, message);
            let is_bare = scalar.text.bytes().all(|b| b.is_ascii_digit());
            if is_bare && !scalar.is_from_environment() {
                problem.help(format!("say the unit: {0}ms or {0}s", scalar.text));
            }
            return None;
        };
        if range.contains(&duration) {
            return Some(duration);
        }
        let (least, most) = (duration_text(*range.start()), duration_text(*range.end()));
        let message = format!(
            "expected a time from {least} to {most}, got {}",
            shown(scalar)
        );
        place.error(problems, message);
        None
    }
}

/// A time span such as `250ms`, `10s` or `1h`.
#[must_use]
pub fn parsed_duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = text.split_at(unit_at);
    let unit = unit.trim_start();
    let (_, length) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let count: u64 = count.parse().ok()?;
    Some(Duration::from_millis(count.checked_mul(*length)?))
}

/// A time in the largest unit that divides it; weeks are said in days.
pub(crate) fn duration_text(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut units = UNITS.iter().rev().skip(1);
    let fits = units.find(|(_, length)| ms > 0 && ms.is_multiple_of(*length));
    match fits {
        Some((unit, length)) => format!("{}{unit}", ms / length),
        None => format!("{ms}ms"),
    }
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
    fn numbers_have_their_separators_between_digits() {
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
    fn what_is_shown_is_short_and_has_no_password() {
        assert_eq!(shortened("redis://u:pw@h\n"), "\"redis://u:***@h\\n\"");
        assert!(shortened(&"x".repeat(1_000)).len() < 80);
    }
}
