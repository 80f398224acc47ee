//! Which requests a rule or a cost is for.

use tollgate::{Match, Name, Pattern};

use super::values::{list, parsed, plan};
use crate::document::reading::{Fields, Place, shortened, shown, text};
use crate::document::{Problems, Spot};

pub(super) const MATCH: &[&str] = &["methods", "host", "path", "headers", "plan", "attributes"];

/// The conditions as they were said, so that they can be compared with each other.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    pub(super) compiled: Match,
    pub(super) methods: Vec<String>,
    pub(super) host: Option<String>,
    pub(super) path: Option<Pattern>,
    pub(super) path_spot: Spot,
    pub(super) plans: Vec<String>,
    /// Any value, if there are none.
    pub(super) attributes: Vec<(Name, Vec<String>)>,
}

pub(super) fn conditions(place: &Place<'_>, problems: &mut Problems) -> Option<Conditions> {
    let foreign = [
        ("method", "did you mean \"methods\"?"),
        ("plans", "did you mean \"plan\"?"),
        ("query", "the query is not part of what is matched"),
    ];
    let fields = Fields::of_with(place, MATCH, &foreign, problems)?;
    let before = problems.errors();
    let methods = fields.optional("methods", problems, list("methods such as GET", method));
    let host = fields.optional("host", problems, host);
    let path = fields.optional("path", problems, parsed("a path such as /v1/charges/{id}"));
    let plans = fields.optional("plan", problems, list("plans", plan));
    let mut attributes = Vec::new();
    if let Some(place) = fields.get("headers") {
        attributes
            .extend(named_values(&place, "header:", header_name, problems).unwrap_or_default());
    }
    if let Some(place) = fields.get("attributes") {
        attributes.extend(named_values(&place, "", attribute_name, problems).unwrap_or_default());
    }
    if problems.errors() > before {
        return None;
    }
    let mut said = Conditions {
        compiled: Match::new(),
        methods: methods.unwrap_or_default(),
        host,
        path,
        path_spot: fields.spot_of("path"),
        plans: plans.unwrap_or_default(),
        attributes,
    };
    match said.compile() {
        Ok(compiled) => said.compiled = compiled,
        // Each was looked at already; what is left has no place of its own.
        Err(_) => {
            place.error(problems, "no request can meet these conditions");
            return None;
        }
    }
    Some(said)
}

impl Conditions {
    fn compile(&self) -> Result<Match, tollgate::MatchError> {
        let mut compiled = Match::new();
        if !self.methods.is_empty() {
            compiled = compiled.methods(self.methods.iter().map(String::as_str))?;
        }
        if let Some(host) = &self.host {
            compiled = compiled.host(host)?;
        }
        if let Some(path) = &self.path {
            compiled = compiled.path(path.clone());
        }
        compiled = compiled.plans(self.plans.iter().map(String::as_str));
        for (name, values) in &self.attributes {
            let values = match values.is_empty() {
                true => vec!["*"],
                false => values.iter().map(String::as_str).collect(),
            };
            compiled = compiled.attribute(*name, values);
        }
        Ok(compiled)
    }

    /// Whether a request may meet both, as far as can be said without one.
    pub(super) fn overlap(&self, other: &Self) -> bool {
        let share = |a: &[String], b: &[String]| {
            a.is_empty() || b.is_empty() || a.iter().any(|value| b.contains(value))
        };
        let hosts = match (&self.host, &other.host) {
            (Some(a), Some(b)) => hosts_overlap(a, b),
            _ => true,
        };
        let paths = match (&self.path, &other.path) {
            (Some(a), Some(b)) => patterns_overlap(a.as_str(), b.as_str()),
            _ => true,
        };
        let clashes = |(name, values): &(Name, Vec<String>)| {
            let other = other.attributes.iter().find(|(other, _)| other == name);
            other.is_some_and(|(_, others)| !share(values, others))
        };
        share(&self.methods, &other.methods)
            && share(&self.plans, &other.plans)
            && hosts
            && paths
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

/// Whether a path may belong to both patterns.
pub(super) fn patterns_overlap(a: &str, b: &str) -> bool {
    let segments = |pattern: &str| -> Vec<String> {
        let segments = pattern.split('/').filter(|segment| !segment.is_empty());
        segments.map(str::to_lowercase).collect()
    };
    let (a, b) = (segments(a), segments(b));
    let takes_rest = |segment: Option<&String>| segment.is_some_and(|s| s.starts_with("{*"));
    let is_any = |segment: &str| segment.starts_with('{');
    for nth in 0.. {
        let (left, right) = (a.get(nth), b.get(nth));
        if takes_rest(left) || takes_rest(right) {
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

fn method(place: &Place<'_>, problems: &mut Problems) -> Option<String> {
    let scalar = place.scalar("a method such as GET", problems)?;
    match Match::new().methods([&*scalar.text]) {
        Ok(_) => Some(scalar.text.to_ascii_uppercase()),
        Err(_) => {
            let got = shown(scalar);
            place.error(
                problems,
                format!("{got} is not a method; use names such as GET or POST"),
            );
            None
        }
    }
}

fn host(place: &Place<'_>, problems: &mut Problems) -> Option<String> {
    let expected = "a host such as api.example.com, or *.example.com for all below it";
    let scalar = place.scalar(expected, problems)?;
    match Match::new().host(&scalar.text) {
        Ok(_) => Some(scalar.text.to_ascii_lowercase()),
        Err(_) => {
            place.error(problems, format!("{} is not {expected}", shown(scalar)));
            None
        }
    }
}

/// Names, each with a value, several values, or `*` for any.
fn named_values(
    place: &Place<'_>,
    prefix: &str,
    is_name: fn(&str) -> bool,
    problems: &mut Problems,
) -> Option<Vec<(Name, Vec<String>)>> {
    let entries = place.entries("a map of names and values", problems)?;
    let mut all = Vec::new();
    for (spot, key, value) in entries {
        let name = match prefix {
            "" => key.to_owned(),
            _ => format!("{prefix}{}", key.to_ascii_lowercase()),
        };
        let name = Name::new(&name).ok().filter(|_| is_name(key));
        let values = list("values", text(1_024, "a value"))(&value, problems);
        let Some(name) = name else {
            let message = format!(
                "{} cannot be a name here; use letters, digits, - and _",
                shortened(key)
            );
            problems.error(spot, message);
            continue;
        };
        let values = values.unwrap_or_default();
        let is_any = values.iter().any(|value| value == "*");
        all.push((name, if is_any { Vec::new() } else { values }));
    }
    Some(all)
}

pub(super) fn header_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.chars().all(allowed)
}

pub(super) fn attribute_name(text: &str) -> bool {
    !text.starts_with("header:") && Name::new(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_overlap_if_a_path_may_belong_to_both() {
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
    fn hosts_overlap_by_their_ends() {
        assert!(hosts_overlap("*.example.com", "api.example.com"));
        assert!(hosts_overlap("*.example.com", "*.eu.example.com"));
        assert!(!hosts_overlap("*.example.com", "example.com"));
        assert!(!hosts_overlap("a.com", "b.com"));
    }
}
