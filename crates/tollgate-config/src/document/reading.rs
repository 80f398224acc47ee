//! Reading values out of a tree: each reader gives a value, or says what is wrong and goes on.
//!
//! `None` always means that a problem was added, so whoever gets it needs not add another.

mod scalars;

pub(crate) use scalars::{choice, duration, number, shown, text, truth};
pub use scalars::{listed, parsed_duration, shortened, whole_number};

#[cfg(test)]
pub(crate) use scalars::duration_text;

use super::problem::{Problem, Problems, Spot};
use super::{Entry, Node, Scalar, Value};
use tollgate::words::nearest;

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

    /// Whether its text, or a part of it, came from the environment, and must not be shown.
    pub(crate) fn is_from_environment(&self) -> bool {
        self.peek().is_some_and(Scalar::is_from_environment)
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

/// Of more unknown fields in one map, nobody needs to hear.
const MOST_UNKNOWN: usize = 50;

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
        let unknown = entries.iter().filter(|entry| !known.contains(&&*entry.key));
        for entry in unknown.take(MOST_UNKNOWN) {
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

    /// Whether the value of one of them came from the environment, and must not be shown.
    pub(crate) fn any_from_environment(&self) -> bool {
        let mut places = self.entries.iter().map(|entry| self.place.field(entry));
        places.any(|place| place.is_from_environment())
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
            let unknown = unknown.filter(|key| !self.known.contains(key));
            if !unknown
                .take(MOST_UNKNOWN)
                .any(|key| nearest(key, self.known) == Some(name))
            {
                self.place
                    .error(problems, format!("the field {name:?} is missing"))
                    .help(format!("such as {example}"));
            }
            return None;
        };
        read(&place, problems)
    }
}
