//! Reading values out of a tree: each reader gives a value, or says what is wrong and goes on.
//!
//! `None` always means that a problem was added, so whoever gets it needs not add another.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::mask;
use super::nearest::nearest;
use super::problem::{Problem, Problems, Spot};
use super::{Entry, Node, Scalar, Value};

/// A node, and the way to it.
#[derive(Clone, Debug)]
pub(crate) struct Place<'a> {
    node: &'a Node,
    path: String,
}

impl<'a> Place<'a> {
    /// The whole document, under this name; the document of a file has none.
    pub(crate) fn root(node: &'a Node, path: impl Into<String>) -> Self {
        Self {
            node,
            path: path.into(),
        }
    }

    pub(crate) fn spot(&self) -> Spot {
        Spot {
            at: self.node.at,
            path: self.path.clone(),
        }
    }

    pub(crate) fn error<'p>(
        &self,
        problems: &'p mut Problems,
        message: impl Into<String>,
    ) -> &'p mut Problem {
        problems.error(self.spot(), message)
    }

    fn field(&self, entry: &'a Entry) -> Self {
        let path = match &*self.path {
            "" => entry.key.clone(),
            path => format!("{path}.{}", entry.key),
        };
        Self {
            node: &entry.value,
            path,
        }
    }

    fn at(&self, nth: usize, node: &'a Node) -> Self {
        Self {
            node,
            path: format!("{}[{nth}]", self.path),
        }
    }

    /// The scalar, for readers that look at its form.
    pub(crate) fn peek(&self) -> Option<&'a Scalar> {
        match &self.node.value {
            Value::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self.node.value, Value::Map(_))
    }

    /// A single value that is there.
    pub(crate) fn scalar(&self, expected: &str, problems: &mut Problems) -> Option<&'a Scalar> {
        match &self.node.value {
            Value::Unknown => None,
            Value::Scalar(scalar) if scalar.is_null() => {
                self.error(problems, format!("this is empty; expected {expected}"))
                    .help("write a value, or leave the whole field out");
                None
            }
            Value::Scalar(scalar) => Some(scalar),
            Value::List(_) | Value::Map(_) => {
                let got = self.node.kind();
                let problem = self.error(problems, format!("expected {expected}, got {got}"));
                if self.node.kind() == "a map" {
                    problem.help("a value that begins with \"{\" needs quotes");
                }
                None
            }
        }
    }

    /// The items of a list. A single value is a list of one.
    pub(crate) fn items(&self, expected: &str, problems: &mut Problems) -> Option<Vec<Place<'a>>> {
        match &self.node.value {
            Value::Unknown => None,
            Value::List(items) => {
                let items = items.iter().enumerate();
                Some(items.map(|(nth, item)| self.at(nth, item)).collect())
            }
            Value::Scalar(scalar) if !scalar.is_null() => Some(vec![self.clone()]),
            Value::Scalar(_) | Value::Map(_) => {
                let got = self.node.kind();
                let message = format!("expected a list of {expected}, got {got}");
                let problem = self.error(problems, message);
                match self.node.value {
                    Value::Map(_) => problem.help("begin each of the list with \"- \""),
                    _ => problem.help("write a list, [] for an empty one, or leave the field out"),
                };
                None
            }
        }
    }

    /// The entries of a map whose keys are free to choose: where the key is, the key, the value.
    pub(crate) fn entries(
        &self,
        expected: &str,
        problems: &mut Problems,
    ) -> Option<Vec<(Spot, &'a str, Place<'a>)>> {
        let Value::Map(entries) = &self.node.value else {
            if self.node.value != Value::Unknown {
                let got = self.node.kind();
                self.error(problems, format!("expected {expected}, got {got}"));
            }
            return None;
        };
        let entry = |entry: &'a Entry| {
            let place = self.field(entry);
            let spot = Spot {
                at: entry.key_at,
                path: place.path.clone(),
            };
            (spot, &*entry.key, place)
        };
        Some(entries.iter().map(entry).collect())
    }
}

/// A map whose keys are known.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    place: Place<'a>,
    entries: &'a [Entry],
    known: &'static [&'static str],
}

impl<'a> Fields<'a> {
    /// The fields of a map; unknown ones are problems, with the one that was meant.
    pub(crate) fn of(
        place: &Place<'a>,
        known: &'static [&'static str],
        problems: &mut Problems,
    ) -> Option<Self> {
        Self::of_with(place, known, &[], problems)
    }

    /// The same, with help for names that others use for something.
    pub(crate) fn of_with(
        place: &Place<'a>,
        known: &'static [&'static str],
        foreign: &[(&str, &str)],
        problems: &mut Problems,
    ) -> Option<Self> {
        let expected = || format!("a map with {}", listed(known, "and"));
        let entries = match &place.node.value {
            Value::Unknown => return None,
            Value::Map(entries) => entries,
            Value::Scalar(scalar) if scalar.is_null() => {
                place
                    .error(problems, format!("this is empty; expected {}", expected()))
                    .help("indent its fields below it, write {} for all defaults, or leave it out");
                return None;
            }
            Value::Scalar(_) | Value::List(_) => {
                let got = place.node.kind();
                let message = format!("expected {}, got {got}", expected());
                place.error(problems, message);
                return None;
            }
        };
        for entry in entries {
            if known.contains(&&*entry.key) {
                continue;
            }
            let spot = Spot {
                at: entry.key_at,
                path: place.field(entry).path,
            };
            let shown = shortened(&entry.key);
            let problem = problems.error(spot, format!("there is no field {shown} here"));
            let foreign = foreign.iter().find(|(name, _)| *name == entry.key);
            match (foreign, nearest(&entry.key, known)) {
                (Some((_, help)), _) => problem.help(*help),
                (None, Some(meant)) => problem.help(format!("did you mean {meant:?}?")),
                (None, None) => problem.help(format!("known are {}", listed(known, "and"))),
            };
        }
        Some(Self {
            place: place.clone(),
            entries,
            known,
        })
    }

    pub(crate) fn place(&self) -> &Place<'a> {
        &self.place
    }

    /// Where the key of a field stands, or else the map.
    pub(crate) fn spot_of(&self, name: &str) -> Spot {
        let entry = self.entries.iter().find(|entry| entry.key == name);
        match entry {
            Some(entry) => Spot {
                at: entry.key_at,
                path: self.place.field(entry).path,
            },
            None => self.place.spot(),
        }
    }

    /// Where the key of a field of a field stands, or else what it would be in.
    pub(crate) fn spot_within(&self, outer: &str, inner: &str) -> Spot {
        let entries = self.entries.iter().find(|entry| entry.key == outer);
        let entries = entries.map(|entry| (self.place.field(entry), &entry.value.value));
        let Some((place, Value::Map(entries))) = entries else {
            return self.spot_of(outer);
        };
        match entries.iter().find(|entry| entry.key == inner) {
            Some(entry) => Spot {
                at: entry.key_at,
                path: place.field(entry).path,
            },
            None => self.spot_of(outer),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn get(&self, name: &str) -> Option<Place<'a>> {
        debug_assert!(self.known.contains(&name), "{name} is not a known field");
        let entry = self.entries.iter().find(|entry| entry.key == name)?;
        Some(self.place.field(entry))
    }

    /// A field that may be left out.
    pub(crate) fn optional<T>(
        &self,
        name: &str,
        problems: &mut Problems,
        read: impl FnOnce(&Place<'a>, &mut Problems) -> Option<T>,
    ) -> Option<T> {
        read(&self.get(name)?, problems)
    }

    /// A field with a default, which also stands for a value that is wrong.
    pub(crate) fn or<T>(
        &self,
        name: &str,
        default: T,
        problems: &mut Problems,
        read: impl FnOnce(&Place<'a>, &mut Problems) -> Option<T>,
    ) -> T {
        self.optional(name, problems, read).unwrap_or(default)
    }

    /// A field that must be there, with an example of what could stand there.
    pub(crate) fn required<T>(
        &self,
        name: &str,
        example: &str,
        problems: &mut Problems,
        read: impl FnOnce(&Place<'a>, &mut Problems) -> Option<T>,
    ) -> Option<T> {
        let Some(place) = self.get(name) else {
            // With a mistyped name there, the field is not missing: that was said already.
            let unknown = self.entries.iter().map(|entry| &*entry.key);
            let mut unknown = unknown.filter(|key| !self.known.contains(key));
            if !unknown.any(|key| nearest(key, self.known) == Some(name)) {
                self.place
                    .error(problems, format!("the field {name:?} is missing"))
                    .help(format!("such as {example}"));
            }
            return None;
        };
        read(&place, problems)
    }
}

/// `a, b and c`.
pub(crate) fn listed(words: &[&str], and: &str) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} {and} {last}", first.join(", ")),
    }
}

/// Text of a user's in quotes: without control characters, passwords, and no longer than is good.
pub(crate) fn shortened(text: &str) -> String {
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

/// A whole number. Groups of digits may be set apart by `_`.
pub(crate) fn number(
    range: RangeInclusive<u64>,
) -> impl Fn(&Place<'_>, &mut Problems) -> Option<u64> {
    move |place, problems| {
        let scalar = place.scalar("a whole number", problems)?;
        let digits = scalar.text.replace('_', "");
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let number = digits.parse::<u64>().ok().filter(|_| is_number);
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

/// `1234567` as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
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

pub(crate) fn parsed_duration(text: &str) -> Option<Duration> {
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
    fn what_is_shown_is_short_and_has_no_password() {
        assert_eq!(shortened("redis://u:pw@h\n"), "\"redis://u:***@h\\n\"");
        assert!(shortened(&"x".repeat(1_000)).len() < 80);
    }
}
