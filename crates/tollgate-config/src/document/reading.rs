//! Reading values out of a tree. A reader returns a value, or reports what is wrong and returns `None`.
//!
//! `None` always means that a problem was reported, so callers need not report another.

mod scalars;

pub(crate) use scalars::{boolean, choice, duration, number, or_word, parsed, size, text};
pub use scalars::{listed, parsed_duration, shortened, whole_number};

#[cfg(test)]
pub(crate) use scalars::{duration_text, size_text};

use std::cell::{RefCell, RefMut};

use super::problem::{Location, Problem, Problems};
use super::{Entry, Node, Scalar, Value, joined};
use crate::text::nearest;

/// A node to read, the path to it, and where to report problems.
#[derive(Clone, Debug)]
pub(crate) struct Input<'a> {
    node: &'a Node,
    path: String,
    problems: &'a RefCell<Problems>,
}

impl<'a> Input<'a> {
    /// A whole document. The document of a file has an empty path.
    pub(crate) fn root(
        node: &'a Node,
        path: impl Into<String>,
        problems: &'a RefCell<Problems>,
    ) -> Self {
        Self {
            node,
            path: path.into(),
            problems,
        }
    }

    pub(crate) fn location(&self) -> Location {
        Location {
            span: self.node.span,
            path: self.path.clone(),
        }
    }

    /// The location of a key, such as `admin.token`; where it is absent, that of the last key on the way there.
    pub(crate) fn location_of(&self, keys: &str) -> Location {
        let (mut location, mut input) = (self.location(), self.clone());
        for key in keys.split('.') {
            let Some(entry) = input.node.entry(key) else {
                break;
            };
            location = input.location_of_entry(entry);
            input = input.below(entry);
        }
        location
    }

    fn location_of_entry(&self, entry: &Entry) -> Location {
        Location {
            span: entry.key_span,
            path: joined(&self.path, &entry.key),
        }
    }

    /// The value of a key, such as `admin.token`.
    pub(crate) fn field(&self, keys: &str) -> Option<Self> {
        let mut keys = keys.split('.');
        keys.try_fold(self.clone(), |input, key| {
            Some(input.below(input.node.entry(key)?))
        })
    }

    fn below(&self, entry: &'a Entry) -> Self {
        Self {
            node: &entry.value,
            path: joined(&self.path, &entry.key),
            problems: self.problems,
        }
    }

    /// Reports an error. No other may be reported while the result is in use.
    pub(crate) fn error(&self, message: impl Into<String>) -> RefMut<'_, Problem> {
        self.error_at(self.location(), message)
    }

    pub(crate) fn error_at(
        &self,
        location: Location,
        message: impl Into<String>,
    ) -> RefMut<'_, Problem> {
        RefMut::map(self.problems.borrow_mut(), |problems| {
            problems.error(location, message)
        })
    }

    /// Reports an error and what to do. Returns `None`, which a reader returns in turn.
    pub(crate) fn reject<T>(&self, message: impl Into<String>, help: &str) -> Option<T> {
        self.error(message).help(help);
        None
    }

    /// Reports that another value was expected.
    pub(crate) fn reject_value<T>(&self, expected: &str, help: &str) -> Option<T> {
        let text = self.as_scalar().map_or("", Scalar::shown);
        let message = format!("expected {expected}, got {}", shortened(text));
        self.reject(message, help)
    }

    /// Reports that another kind of value was expected, such as a list.
    fn reject_kind<T>(&self, expected: &str, help: &str) -> Option<T> {
        let message = format!("expected {expected}, got {}", self.node.kind());
        self.reject(message, help)
    }

    /// Adds help to the problem that was reported last, if it has none.
    fn help_last(&self, help: &str) {
        if let Some(problem) = self.problems.borrow_mut().last_mut() {
            problem.help.get_or_insert_with(|| help.to_owned());
        }
    }

    pub(crate) fn problems(&self) -> &'a RefCell<Problems> {
        self.problems
    }

    pub(crate) fn errors(&self) -> usize {
        self.problems.borrow().errors()
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self.node.value, Value::Map(_))
    }

    pub(crate) fn as_scalar(&self) -> Option<&'a Scalar> {
        match &self.node.value {
            Value::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    /// Whether a part of it came from the environment and must not be shown.
    pub(crate) fn is_from_environment(&self) -> bool {
        self.as_scalar().is_some_and(Scalar::is_from_environment)
    }

    /// The text of a single value; empty if it came from the environment and must not be shown.
    pub(crate) fn visible_text(&self) -> &'a str {
        let visible = self.as_scalar().filter(|_| !self.is_from_environment());
        visible.map_or("", |scalar| &scalar.text)
    }

    /// A single value that is not null.
    pub(crate) fn scalar(&self, expected: &str) -> Option<&'a Scalar> {
        match &self.node.value {
            Value::Unknown => None,
            Value::Scalar(scalar) if scalar.is_null() => {
                let message = format!("this is empty; expected {expected}");
                self.reject(message, "write a value, or remove the field")
            }
            Value::Scalar(scalar) => Some(scalar),
            Value::List(_) => self.reject_kind(expected, ""),
            Value::Map(_) => {
                self.reject_kind(expected, "a value that begins with \"{\" needs quotes")
            }
        }
    }

    /// A single value that `parse` understands.
    pub(crate) fn parse<T>(
        &self,
        expected: &str,
        parse: impl FnOnce(&'a str) -> Option<T>,
    ) -> Option<T> {
        let value = parse(&self.scalar(expected)?.text);
        value.or_else(|| self.reject_value(expected, ""))
    }

    /// The items of a list. A single value counts as a list of one.
    pub(crate) fn items(&self, expected: &str) -> Option<Vec<Self>> {
        let help = match &self.node.value {
            Value::Unknown => return None,
            Value::List(items) => {
                let item = |(nth, node)| Self {
                    node,
                    path: format!("{}[{nth}]", self.path),
                    problems: self.problems,
                };
                return Some(items.iter().enumerate().map(item).collect());
            }
            Value::Scalar(scalar) if !scalar.is_null() => return Some(vec![self.clone()]),
            Value::Scalar(_) => "write a list, or [] for an empty one, or remove the field",
            Value::Map(_) => "begin each item with \"- \"",
        };
        self.reject_kind(&format!("a list of {expected}"), help)
    }

    /// The entries of a map with arbitrary keys: the location of the key, the key, and the value.
    pub(crate) fn entries(&self, expected: &str) -> Option<Vec<(Location, &'a str, Self)>> {
        match &self.node.value {
            Value::Map(entries) => {
                let entry = |entry: &'a Entry| {
                    let location = self.location_of_entry(entry);
                    (location, &*entry.key, self.below(entry))
                };
                Some(entries.iter().map(entry).collect())
            }
            Value::Unknown => None,
            Value::Scalar(_) | Value::List(_) => self.reject_kind(expected, ""),
        }
    }
}

/// The items of a list that `read` accepts. Others are reported and left out.
pub(crate) fn list<'a, T>(
    expected: &str,
    read: impl Fn(&Input<'a>) -> Option<T>,
) -> impl Fn(&Input<'a>) -> Option<Vec<T>> {
    move |input| Some(input.items(expected)?.iter().filter_map(&read).collect())
}

/// A map that `read` takes its fields from. A field that it does not ask for is unknown, which is an error.
pub(crate) fn map<'a, T>(
    read: impl Fn(&Fields<'a>) -> Option<T>,
) -> impl Fn(&Input<'a>) -> Option<T> {
    map_with_hints("", read)
}

/// A map as above, with help for unknown fields that people may expect: a line `field: help` for each.
pub(crate) fn map_with_hints<'a, T>(
    hints: &'static str,
    read: impl Fn(&Fields<'a>) -> Option<T>,
) -> impl Fn(&Input<'a>) -> Option<T> {
    move |input| Fields::read_all(input, hints, &read)
}

/// Maximum number of unknown fields that are reported for one map.
const MAX_UNKNOWN: usize = 50;

/// The fields of a map. It notes which ones are asked for.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    input: Input<'a>,
    asked: RefCell<Vec<&'static str>>,
    /// Required fields that are absent, with an example of each.
    missing: RefCell<Vec<(&'static str, &'static str)>>,
    errors_before: usize,
}

impl<'a> Fields<'a> {
    fn read_all<T>(
        input: &Input<'a>,
        hints: &str,
        read: impl FnOnce(&Self) -> Option<T>,
    ) -> Option<T> {
        let fields = Self {
            input: input.clone(),
            asked: RefCell::default(),
            missing: RefCell::default(),
            errors_before: input.errors(),
        };
        if input.is_map() {
            let value = read(&fields);
            fields.report_unknown(hints);
            return value;
        }
        // Anything else is read as an empty map, only to learn which fields were expected.
        let problems = input.problems.borrow().clone();
        read(&fields);
        input.problems.replace(problems);
        fields.reject_other()
    }

    pub(crate) fn input(&self) -> &Input<'a> {
        &self.input
    }

    /// The location of the key of a field; or of the map, if the field is absent.
    pub(crate) fn location_of(&self, name: &str) -> Location {
        self.input.location_of(name)
    }

    /// Reports an error at the key of a field.
    pub(crate) fn error_at(&self, name: &str, message: impl Into<String>) -> RefMut<'_, Problem> {
        self.input.error_at(self.location_of(name), message)
    }

    /// Whether all fields that were read so far are right.
    pub(crate) fn are_right(&self) -> bool {
        self.input.errors() == self.errors_before && self.missing.borrow().is_empty()
    }

    /// Whether the value of a field came from the environment and must not be shown.
    pub(crate) fn any_from_environment(&self) -> bool {
        let mut values = self.entries().iter().map(|entry| self.input.below(entry));
        values.any(|value| value.is_from_environment())
    }

    fn entries(&self) -> &'a [Entry] {
        match &self.input.node.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The names of the fields asked for so far.
    pub(crate) fn asked(&self) -> Vec<&'static str> {
        self.asked.borrow().clone()
    }

    pub(crate) fn get(&self, name: &'static str) -> Option<Input<'a>> {
        let mut asked = self.asked.borrow_mut();
        if !asked.contains(&name) {
            asked.push(name);
        }
        self.input.field(name)
    }

    pub(crate) fn has(&self, name: &'static str) -> bool {
        self.get(name).is_some()
    }

    /// Reads an optional field.
    pub(crate) fn read<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&Input<'a>) -> Option<T>,
    ) -> Option<T> {
        read(&self.get(name)?)
    }

    /// Reads a field into a setting, which keeps its default if the field is absent or wrong.
    pub(crate) fn set<T>(
        &self,
        name: &'static str,
        setting: &mut T,
        read: impl FnOnce(&Input<'a>) -> Option<T>,
    ) {
        if let Some(value) = self.read(name, read) {
            *setting = value;
        }
    }

    /// Reads an optional list, without the items that are wrong.
    pub(crate) fn list<T>(
        &self,
        name: &'static str,
        read: impl Fn(&Input<'a>) -> Option<T>,
    ) -> Vec<T> {
        self.read(name, list(name, read)).unwrap_or_default()
    }

    /// Reads an optional map of settings, which keep their defaults.
    pub(crate) fn section(&self, name: &'static str, read: impl FnOnce(&Self)) {
        self.read(name, |input| {
            Self::read_all(input, "", |fields| {
                read(fields);
                Some(())
            })
        });
    }

    /// Reads a required field; `example` is shown if it is absent.
    pub(crate) fn required<T>(
        &self,
        name: &'static str,
        example: &'static str,
        read: impl FnOnce(&Input<'a>) -> Option<T>,
    ) -> Option<T> {
        if !self.has(name) {
            self.missing.borrow_mut().push((name, example));
        }
        self.read(name, read)
    }

    fn report_unknown(&self, hints: &str) {
        let known = self.asked();
        #[cfg(test)]
        self.note_known(&known);
        let entries = self.entries().iter();
        let unknown = entries.filter(|entry| !known.contains(&&*entry.key));
        let mut meant = Vec::new();
        for entry in unknown.take(MAX_UNKNOWN) {
            let mut hints = hints.lines().filter_map(|line| line.split_once(": "));
            let hint = hints.find(|(name, _)| *name == entry.key);
            let similar = nearest(&entry.key, &known);
            let help = match (hint, similar) {
                (Some((_, hint)), _) => hint.to_owned(),
                (None, Some(similar)) => format!("did you mean {similar:?}?"),
                (None, None) => format!("the fields are {}", listed(&known, "and")),
            };
            let message = format!("there is no field {} here", shortened(&entry.key));
            let location = self.input.location_of_entry(entry);
            self.input.error_at(location, message).help(help);
            meant.extend(similar);
        }
        // A field whose name is mistyped is not missing as well.
        for (name, example) in self.missing.take() {
            if !meant.contains(&name) {
                let message = format!("the field {name:?} is missing");
                self.input.error(message).help(format!("such as {example}"));
            }
        }
    }

    fn reject_other<T>(&self) -> Option<T> {
        let expected = format!("a map with {}", listed(&self.asked(), "and"));
        match &self.input.node.value {
            Value::Unknown => None,
            Value::Scalar(scalar) if scalar.is_null() => self.input.reject(
                format!("this is empty; expected {expected}"),
                "indent its fields below it, write {} for all defaults, or remove it",
            ),
            _ => self.input.reject_kind(&expected, ""),
        }
    }

    #[cfg(test)]
    fn note_known(&self, names: &[&str]) {
        let digits = |c: char| c.is_ascii_digit();
        let path: String = self.input.path.split(digits).collect();
        let fields = names.iter().map(|name| joined(&path, name));
        self.input.problems.borrow_mut().known_fields.extend(fields);
    }
}
