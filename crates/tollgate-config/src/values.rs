//! Readers of values that several sections have in common.

use std::path::PathBuf;
use std::time::Duration;

use tollgate::Name;

use crate::document::reading::{Input, text};

pub(super) const MILLISECOND: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3_600);
pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// The name of a rule, a scope or an attribute.
pub(super) fn name(input: &Input<'_>) -> Option<Name> {
    let expected = "a name (1 to 64 of A-Z a-z 0-9 _ - . :)";
    input.parse(expected, |text| Name::new(text).ok())
}

pub(super) fn plan(input: &Input<'_>) -> Option<String> {
    text(64, "the name of a plan")(input)
}

/// The path of a file, which need not exist.
pub(super) fn file(expected: &'static str) -> impl Fn(&Input<'_>) -> Option<PathBuf> {
    move |input| text(4_096, expected)(input).map(PathBuf::from)
}

/// A list of alternatives, one of which a request must match. It is not empty, because no request would match that.
pub(super) fn any_of<'a, T>(
    expected: &'static str,
    read: impl Fn(&Input<'a>) -> Option<T>,
) -> impl Fn(&Input<'a>) -> Option<Vec<T>> {
    move |input| {
        let items = input.items(expected)?;
        if items.is_empty() {
            let help = format!("name {expected}, or remove the field to match all");
            return input.reject("an empty list matches no request", &help);
        }
        // All of them are read, so that every problem is reported.
        let read: Vec<Option<T>> = items.iter().map(&read).collect();
        read.into_iter().collect()
    }
}
