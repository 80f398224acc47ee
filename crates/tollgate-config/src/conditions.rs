//! The conditions of rules and costs.

use tollgate::{Match, MatchError, Name, Pattern};

use super::values::{any_of, plan};
use crate::document::reading::{Fields, Input, parsed, shortened, text};

/// Conditions, in a form that can be compared with others.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    pub(super) compiled: Match,
    methods: Vec<String>,
    host: Option<String>,
    pub(super) path: Option<Pattern>,
    pub(super) plans: Vec<String>,
    /// Each with its values; any value, if there are none.
    pub(super) attributes: Vec<(Name, Vec<String>)>,
}

pub(super) const HINTS: &str = "\
method: did you mean \"methods\"?
plans: did you mean \"plan\"?
query: rules do not look at the query
";

pub(super) fn conditions(fields: &Fields<'_>) -> Option<Conditions> {
    let mut conditions = Conditions::default();
    let methods = any_of("methods such as GET", method);
    fields.set("methods", &mut conditions.methods, methods);
    conditions.host = fields.read("host", host);
    conditions.path = fields.read("path", parsed("a path such as /v1/charges/{id}"));
    let attributes = &mut conditions.attributes;
    fields.set("headers", attributes, named_values(header_attribute));
    fields.set("plan", &mut conditions.plans, any_of("plans", plan));
    if let Some(others) = fields.read("attributes", named_values(attribute)) {
        attributes.extend(others);
    }
    if !fields.are_right() {
        return None;
    }
    // Each of them was checked, so this does not fail.
    let Ok(compiled) = conditions.compile() else {
        return (fields.input()).reject("no request can match these conditions", "");
    };
    conditions.compiled = compiled;
    Some(conditions)
}

impl Conditions {
    fn compile(&self) -> Result<Match, MatchError> {
        let mut compiled = Match::new().plans(self.plans.iter().map(String::as_str));
        if !self.methods.is_empty() {
            compiled = compiled.methods(self.methods.iter().map(String::as_str))?;
        }
        if let Some(host) = &self.host {
            compiled = compiled.host(host)?;
        }
        if let Some(path) = &self.path {
            compiled = compiled.path(path.clone());
        }
        for (name, values) in &self.attributes {
            let values = match values.is_empty() {
                true => vec!["*"],
                false => values.iter().map(String::as_str).collect(),
            };
            compiled = compiled.attribute(*name, values);
        }
        Ok(compiled)
    }

    /// Whether some request may match both.
    pub(super) fn overlap(&self, other: &Self) -> bool {
        let share = |a: &[String], b: &[String]| {
            a.is_empty() || b.is_empty() || a.iter().any(|value| b.contains(value))
        };
        let hosts = self.host.as_ref().zip(other.host.as_ref());
        let paths = self.path.as_ref().zip(other.path.as_ref());
        let clashes = |(name, values): &(Name, Vec<String>)| {
            let other = other.attributes.iter().find(|(other, _)| other == name);
            other.is_some_and(|(_, others)| !share(values, others))
        };
        share(&self.methods, &other.methods)
            && share(&self.plans, &other.plans)
            && hosts.is_none_or(|(a, b)| hosts_overlap(a, b))
            && paths.is_none_or(|(a, b)| patterns_overlap(a.as_str(), b.as_str()))
            && !self.attributes.iter().any(clashes)
    }
}

fn hosts_overlap(a: &str, b: &str) -> bool {
    match (a.strip_prefix('*'), b.strip_prefix('*')) {
        (None, None) => a == b,
        (Some(below), None) => b.ends_with(below),
        (None, Some(below)) => a.ends_with(below),
        (Some(a), Some(b)) => a.ends_with(b) || b.ends_with(a),
    }
}

/// Whether some path may match both patterns.
pub(super) fn patterns_overlap(a: &str, b: &str) -> bool {
    let segments = |pattern: &str| -> Vec<String> {
        let segments = pattern.split('/').filter(|segment| !segment.is_empty());
        segments.map(str::to_lowercase).collect()
    };
    let (a, b) = (segments(a), segments(b));
    let is_rest = |segment: Option<&String>| segment.is_some_and(|s| s.starts_with("{*"));
    let is_any = |segment: &str| segment.starts_with('{');
    for nth in 0.. {
        let (left, right) = (a.get(nth), b.get(nth));
        if is_rest(left) || is_rest(right) {
            return true;
        }
        match (left, right) {
            (None, None) => return true,
            (Some(left), Some(right)) if left == right || is_any(left) || is_any(right) => {}
            _ => return false,
        }
    }
    false
}

fn method(input: &Input<'_>) -> Option<String> {
    input.parse("a method such as GET or POST", |text| {
        let matched = Match::new().methods([text]);
        matched.is_ok().then(|| text.to_ascii_uppercase())
    })
}

fn host(input: &Input<'_>) -> Option<String> {
    let expected = "a host such as api.example.com, or *.example.com for all below it";
    input.parse(expected, |text| {
        let matched = Match::new().host(text);
        matched.is_ok().then(|| text.to_ascii_lowercase())
    })
}

/// Names, each with a value, several values, or `*` for any.
fn named_values(
    name: fn(&str) -> Option<Name>,
) -> impl Fn(&Input<'_>) -> Option<Vec<(Name, Vec<String>)>> {
    move |input| {
        let mut all = Vec::new();
        for (location, key, value) in input.entries("a map of names and values")? {
            let values = any_of("values", text(1_024, "a value"))(&value);
            let Some(name) = name(key) else {
                let message = format!("{} is not a name", shortened(key));
                (input.error_at(location, message)).help("use letters, digits, - and _");
                continue;
            };
            let mut values = values.unwrap_or_default();
            if values.iter().any(|value| value == "*") {
                values.clear();
            }
            all.push((name, values));
        }
        Some(all)
    }
}

/// The attribute of a header: `header:` and its name in lower case.
pub(super) fn header_attribute(text: &str) -> Option<Name> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_header = !text.is_empty() && text.chars().all(allowed);
    Name::new(&format!("header:{}", text.to_ascii_lowercase()))
        .ok()
        .filter(|_| is_header)
}

/// An attribute that is not a header.
pub(super) fn attribute(text: &str) -> Option<Name> {
    (Name::new(text).ok()).filter(|_| !text.starts_with("header:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_overlap_if_a_path_may_match_both() {
        for (a, b, expected) in [
            ("/v1/a", "/v1/a", true),
            ("/v1/a", "/v1/b", false),
            ("/v1/{id}", "/v1/b", true),
            ("/v1/{*rest}", "/v1", true),
            ("/{*rest}", "/x/y/z", true),
            ("/v1/{id}", "/v1/b/c", false),
            ("/v1/{*rest}", "/v2/{*rest}", false),
            ("/", "/v1", false),
        ] {
            assert_eq!(patterns_overlap(a, b), expected, "{a} and {b}");
            assert_eq!(patterns_overlap(b, a), expected, "{b} and {a}");
        }
    }

    #[test]
    fn hosts_overlap_by_their_suffixes() {
        assert!(hosts_overlap("*.example.com", "api.example.com"));
        assert!(hosts_overlap("*.example.com", "*.eu.example.com"));
        assert!(!hosts_overlap("*.example.com", "example.com"));
        assert!(!hosts_overlap("a.com", "b.com"));
    }
}
