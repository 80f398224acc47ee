//! Readers of values that several sections have in common.

use std::fmt::Display;
use std::str::FromStr;

use tollgate::Name;

use crate::document::Problems;
use crate::document::reading::{Place, shown, text};

/// A value that says itself what is wrong with its text. The text must not be shown if it came from the environment.
pub(super) fn parsed<T: FromStr<Err: Display>>(
    expected: &'static str,
) -> impl Fn(&Place<'_>, &mut Problems) -> Option<T> {
    move |place, problems| {
        let scalar = place.scalar(expected, problems)?;
        match scalar.text.parse() {
            Ok(value) => return Some(value),
            Err(_) if scalar.is_from_environment() => {
                place.error(problems, format!("{} is not {expected}", shown(scalar)));
            }
            Err(error) => {
                place.error(problems, error.to_string());
            }
        }
        None
    }
}

/// A name of ours: of a rule, a scope, an attribute.
pub(super) fn name(place: &Place<'_>, problems: &mut Problems) -> Option<Name> {
    let expected = "a name of 1 to 64 of A-Z a-z 0-9 _ - . :";
    let scalar = place.scalar(expected, problems)?;
    let name = Name::new(&scalar.text).ok();
    if name.is_none() {
        place.error(problems, format!("{} is not {expected}", shown(scalar)));
    }
    name
}

/// The name of a plan.
pub(super) fn plan(place: &Place<'_>, problems: &mut Problems) -> Option<String> {
    text(64, "the name of a plan")(place, problems)
}

/// A list of values, in which an empty one would mean nothing.
pub(super) fn list<T>(
    expected: &'static str,
    read: impl Fn(&Place<'_>, &mut Problems) -> Option<T>,
) -> impl Fn(&Place<'_>, &mut Problems) -> Option<Vec<T>> {
    move |place, problems| {
        let items = place.items(expected, problems)?;
        if items.is_empty() {
            place
                .error(problems, "an empty list meets no request")
                .help(format!(
                    "name {expected}, or leave the field out to mean all"
                ));
            return None;
        }
        // All of them are looked at, and one that is wrong makes the list wrong.
        let read: Vec<Option<T>> = items.iter().map(|item| read(item, problems)).collect();
        read.into_iter().collect()
    }
}
