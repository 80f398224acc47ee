//! The ways in which servers read a path that is not plain.
//!
//! A server may decode escapes or not, merge doubled slashes or not, resolve dot segments (also encoded ones) or not, cut off what
//! follows a `;` or not, and do so in any order. Behind two slashes at the beginning, one that makes a URL of the path finds a host. Where a backslash or an escape that is encoded twice was
//! [accepted](super::PathClass), it may also take that for what it stands for.
//!
//! Escapes need no more than two readings, all as they came and all decoded: the name in a pattern is in its normal form, which an
//! escape that can be decoded never equals. So a reading that decodes some of them meets no pattern that decoding all does not.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::{PathRules, spelling};

/// More segments in a path with more than one structure are not looked at: the path is ambiguous then.
const MAX_SEGMENTS: usize = 256;

/// A path that was forwarded, in the texts that servers may make of it before they look for segments.
pub(crate) struct Readings<'a> {
    texts: SmallVec<[Cow<'a, str>; 6]>,
    rules: PathRules,
}

/// What a server does about the structure of a path, in this order.
type Steps = SmallVec<[Step; 3]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Merges doubled slashes.
    Merge,
    /// Resolves `.` and `..`, or encoded ones as well.
    Dots { encoded: bool },
    /// Cuts off what follows a `;`.
    Strip,
}

/// What stands between two slashes.
struct Part<'t> {
    /// As it came.
    literal: Cow<'t, str>,
    /// In its normal form.
    decoded: Cow<'t, str>,
}

/// A part as a reading sees it.
#[derive(Clone, Copy)]
struct Seen<'t> {
    /// What is matched.
    text: &'t str,
    /// As it is in the path, for dots.
    literal: &'t str,
    decoded: &'t str,
}

impl<'a> Readings<'a> {
    pub(super) fn of(forwarded: &'a str, rules: &PathRules) -> Self {
        let mut texts: SmallVec<[Cow<'a, str>; 6]> = SmallVec::new();
        texts.push(forwarded.into());
        if contains_escape(forwarded, "25") {
            let once = spelling::decoded_once(forwarded);
            texts.push(with_slashes(&once, "2F").into());
        }
        for nth in 0..texts.len() {
            let text = &texts[nth];
            let slashes = text.replace('\\', "/");
            if contains_escape(text, "5C") {
                texts.push(with_slashes(&slashes, "5C").into());
            }
            // Node's URL takes a backslash for a slash, and its escape for a letter.
            if slashes != texts[nth] {
                texts.push(slashes.into());
            }
        }
        for nth in 0..texts.len() {
            if let Some(path) = behind_host(&texts[nth]) {
                texts.push(path.to_owned().into());
            }
        }
        Self {
            texts,
            rules: *rules,
        }
    }

    /// Whether all readings have the property of their segments that `is_same` looks for; false also if there are too many segments.
    pub(crate) fn all(&self, mut is_same: impl FnMut(&[&str]) -> bool) -> bool {
        (self.texts.iter()).all(|text| self.all_of(text, &mut is_same))
    }

    fn all_of(&self, text: &str, is_same: &mut impl FnMut(&[&str]) -> bool) -> bool {
        let parts = self.parts(text);
        let orders = orders(&parts);
        if orders.len() > 1 && parts.len() > MAX_SEGMENTS {
            return false;
        }
        [false, true]
            .into_iter()
            .all(|decodes| (orders.iter()).all(|steps| is_same(&read(&parts, steps, decodes))))
    }

    /// The segments. One that is empty at the end is none, as a slash there does not matter.
    fn parts<'t>(&self, text: &'t str) -> Vec<Part<'t>> {
        let inner = text.strip_prefix('/').unwrap_or(text);
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        let part = |segment: &'t str| Part {
            literal: self.in_case(segment.into()),
            decoded: self.in_case(self.decoded(segment)),
        };
        match inner {
            "" if text.len() < 2 => Vec::new(),
            inner => inner.split('/').map(part).collect(),
        }
    }

    fn decoded<'t>(&self, segment: &'t str) -> Cow<'t, str> {
        let decoded = spelling::decode(segment.as_bytes(), &self.rules);
        // What cannot be decoded is refused, or the second layer of an escape.
        decoded.map_or(segment.into(), Cow::Owned)
    }

    fn in_case<'t>(&self, text: Cow<'t, str>) -> Cow<'t, str> {
        match self.rules.ignore_case {
            true => text.to_ascii_lowercase().into(),
            false => text,
        }
    }
}

/// Every order of the steps that change something of these parts, the one without steps among them.
fn orders(parts: &[Part<'_>]) -> SmallVec<[Steps; 8]> {
    let has = |is: fn(&Part<'_>) -> bool| parts.iter().any(is);
    let mut steps: SmallVec<[Step; 4]> = SmallVec::new();
    let has_parameters = has(|part| part.literal.contains(';'));
    if has(|part| part.literal.is_empty() || part.literal.starts_with(';')) {
        steps.push(Step::Merge);
    }
    if has(|part| is_dots(name(&part.literal))) {
        steps.push(Step::Dots { encoded: false });
    }
    if has(|part| is_dots(name(&part.decoded)) && !is_dots(name(&part.literal))) {
        steps.push(Step::Dots { encoded: true });
    }
    if has_parameters {
        steps.push(Step::Strip);
    }
    let mut orders: SmallVec<[Steps; 8]> = SmallVec::new();
    extend(&Steps::new(), &steps, &mut orders);
    orders
}

fn extend(begun: &Steps, steps: &[Step], orders: &mut SmallVec<[Steps; 8]>) {
    orders.push(begun.clone());
    for step in steps {
        let is_done = |done: &Step| {
            done == step || matches!((done, step), (Step::Dots { .. }, Step::Dots { .. }))
        };
        if !begun.iter().any(is_done) {
            let mut longer = begun.clone();
            longer.push(*step);
            extend(&longer, steps, orders);
        }
    }
}

/// The segments as a server sees them that takes these steps.
fn read<'t>(parts: &'t [Part<'t>], steps: &Steps, decodes: bool) -> SmallVec<[&'t str; 16]> {
    let seen = |part: &'t Part<'t>| Seen {
        text: if decodes {
            &part.decoded
        } else {
            &part.literal
        },
        literal: &part.literal,
        decoded: &part.decoded,
    };
    let mut all: SmallVec<[Seen<'t>; 16]> = parts.iter().map(seen).collect();
    for step in steps {
        match step {
            Step::Merge => all.retain(|part| !part.literal.is_empty()),
            Step::Strip => (all.iter_mut()).for_each(|part| {
                part.text = name(part.text);
                part.literal = name(part.literal);
                part.decoded = name(part.decoded);
            }),
            Step::Dots { encoded } => all = resolved(&all, *encoded),
        }
    }
    let mut segments: SmallVec<[&'t str; 16]> = all.iter().map(|part| part.text).collect();
    // Nothing but parameters at the end: what is left is the slash before them.
    let ends_in_parameters = (parts.last()).is_some_and(|part| part.literal.starts_with(';'));
    if ends_in_parameters && segments.last() == Some(&"") {
        segments.pop();
    }
    segments
}

fn resolved<'t>(parts: &[Seen<'t>], encoded: bool) -> SmallVec<[Seen<'t>; 16]> {
    let mut resolved: SmallVec<[Seen<'t>; 16]> = SmallVec::new();
    for part in parts {
        match if encoded { part.decoded } else { part.literal } {
            "." => {}
            ".." => _ = resolved.pop(),
            _ => resolved.push(*part),
        }
    }
    resolved
}

fn name(segment: &str) -> &str {
    segment.split(';').next().unwrap_or_default()
}

/// What `new URL(path, base)` and the like take for the path of `//host/path`.
fn behind_host(text: &str) -> Option<&str> {
    let host = text.strip_prefix("//")?.trim_start_matches('/');
    Some(host.find('/').map_or("/", |at| &host[at..]))
}

fn is_dots(name: &str) -> bool {
    matches!(name, "." | "..")
}

/// Whether a text has this escape, in either case.
fn contains_escape(text: &str, digits: &str) -> bool {
    let mut escapes = text.split('%').skip(1);
    escapes.any(|rest| (rest.get(..2)).is_some_and(|two| two.eq_ignore_ascii_case(digits)))
}

/// The text with these escapes as slashes.
fn with_slashes(text: &str, digits: &str) -> String {
    let mut parts = text.split('%');
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (separator, rest) = match part.split_at_checked(2) {
            Some((two, rest)) if two.eq_ignore_ascii_case(digits) => ('/', rest),
            _ => ('%', part),
        };
        made.push(separator);
        made.push_str(rest);
    }
    made
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::PathClasses;
    use super::*;

    /// All readings of a path, joined by slashes.
    fn readings(raw: &str) -> BTreeSet<String> {
        let rules = PathRules {
            accept: PathClasses::all(),
            ..PathRules::default()
        };
        let mut all = BTreeSet::new();
        let seen = Readings::of(raw, &rules).all(|segments| {
            all.insert(segments.join("/"));
            true
        });
        assert!(seen);
        all
    }

    #[test]
    fn a_path_has_the_readings_that_servers_have() {
        for (raw, expected) in [
            ("/a/%62", &["a/%62", "a/b"][..]),
            ("/a//b/", &["a//b", "a/b"]),
            ("/a/../b", &["a/../b", "b"]),
            ("/a/%2e%2E/b", &["a/%2e%2E/b", "a/../b", "b"]),
            // Without merging, the dots take back the empty segment.
            ("/a//../b", &["a//../b", "a/../b", "a/b", "b"]),
            ("/a;x/b", &["a;x/b", "a/b"]),
            ("//a/b//c", &["/a/b//c", "a/b/c", "b//c", "b/c"]),
            ("///a", &["//a", "a", ""]),
            ("\\/a/b", &["b"]),
            ("/a/..;x/b", &["a/..;x/b", "a/../b", "b"]),
            ("/a/;x/b", &["a/;x/b", "a//b", "a/b"]),
            ("/a%5Cb", &["a%5Cb", "a/b"]),
            ("/a%252Fb", &["a%252Fb", "a/b"]),
            (
                "/a/%252e%252e/b",
                &["a/%252e%252e/b", "a/%2e%2e/b", "a/../b", "b"],
            ),
        ] {
            let found = readings(raw);
            for reading in expected {
                assert!(found.contains(*reading), "{raw}: {reading} of {found:?}");
            }
        }
    }

    #[test]
    fn a_path_of_very_many_segments_is_not_read_in_every_way() {
        let rules = PathRules::default();
        let long = "/a//".repeat(MAX_SEGMENTS);
        assert!(!Readings::of(&long, &rules).all(|_| true));
        let escaped = "/%61".repeat(MAX_SEGMENTS * 2);
        assert!(Readings::of(&escaped, &rules).all(|_| true));
    }
}
