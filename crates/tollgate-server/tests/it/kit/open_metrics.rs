//! A strict reader of OpenMetrics pages.

use std::collections::{HashMap, HashSet};

/// Requests the format that [`check_open_metrics`] reads.
pub(crate) const OPEN_METRICS: &str = "accept: application/openmetrics-text; version=1.0.0";

/// Values by name and labels as written.
pub(crate) type Samples = HashMap<String, f64>;

/// Checks a page line by line against the rules of OpenMetrics, and returns its samples.
pub(crate) fn check_open_metrics(text: &str) -> Samples {
    let body = text
        .strip_suffix("# EOF\n")
        .expect("the page must end with # EOF");
    let documented = include_str!("../../../../../docs/operating.md");
    let (mut families, mut samples) = (HashSet::new(), Samples::new());
    let (mut family, mut kind) = (String::new(), String::new());
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let [word, name, rest] = comment.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            assert!(name.starts_with("tollgate_") && is_name(name), "{line}");
            match word {
                "HELP" => {
                    assert!(families.insert(name.to_owned()), "duplicate: {line}");
                    assert!(!rest.is_empty(), "{line}");
                    assert!(
                        documented.contains(name),
                        "not in docs/operating.md: {line}"
                    );
                    family = name.to_owned();
                }
                "TYPE" => {
                    assert_eq!(name, family, "{line}");
                    assert!(
                        ["counter", "gauge", "histogram", "info"].contains(&rest),
                        "{line}"
                    );
                    kind = rest.to_owned();
                }
                "UNIT" => assert!(
                    name == family && name.ends_with(&format!("_{rest}")),
                    "{line}"
                ),
                _ => panic!("{line}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let name = series.split('{').next().unwrap();
        let suffix = name
            .strip_prefix(&family)
            .unwrap_or_else(|| panic!("{line} is not of {family}"));
        let suffixes: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            "info" => &["_info"],
            _ => &[""],
        };
        assert!(suffixes.contains(&suffix), "{line}");
        check_labels(series.strip_prefix(name).unwrap());
        let value: f64 = value
            .parse()
            .unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(value >= 0.0, "{line}");
        assert!(
            samples.insert(series.to_owned(), value).is_none(),
            "duplicate: {line}"
        );
    }
    samples
}

fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.chars().all(allowed)
}

/// `{name="value",…}` with the three escapes of the format.
fn check_labels(labels: &str) {
    if labels.is_empty() {
        return;
    }
    let inner = labels
        .strip_prefix('{')
        .and_then(|inner| inner.strip_suffix('}'));
    let mut rest = inner.unwrap_or_else(|| panic!("{labels}"));
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("{labels}"));
        assert!(is_name(name) && !name.is_empty(), "{labels}");
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next() {
                Some((_, '\\')) => assert!(
                    matches!(chars.next(), Some((_, '\\' | '"' | 'n'))),
                    "{labels}"
                ),
                Some((at, '"')) => break at,
                Some((_, c)) => assert!(!c.is_control(), "{labels}"),
                None => panic!("{labels}"),
            }
        };
        rest = &value[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}
