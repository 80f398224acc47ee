use super::*;
use crate::document::Value;

fn none(_: &str) -> Option<String> {
    None
}

fn json(text: &str) -> serde_json::Value {
    let document = parse(text, &none);
    assert!(!document.problems.has_errors(), "{}", document.problems);
    document.root.unwrap().to_json()
}

fn problems(text: &str) -> String {
    parse(text, &none).problems.to_string()
}

#[test]
fn yaml_and_json_are_the_same_tree() {
    let yaml = "a: 1\nb:\n  - x\n  - { c: true, d: \"2\" }\n";
    let expected = serde_json::json!({ "a": 1, "b": ["x", { "c": true, "d": "2" }] });
    assert_eq!(json(yaml), expected);
    assert_eq!(json(&expected.to_string()), expected);
}

#[test]
fn every_key_and_value_has_its_position() {
    let text = "größe: 1\nlist:\n  - [ä, { k: \"v w\" }]\n";
    fn walk(text: &str, node: &Node) {
        let at = node.span.unwrap();
        match &node.value {
            Value::Scalar(scalar) => {
                assert_eq!(text[at.start..at.end].trim_matches('"'), scalar.text);
                let line = text.lines().nth(at.line - 1).unwrap();
                let from_column: String = line.chars().skip(at.column - 1).collect();
                assert!(text[at.start..].starts_with(&from_column));
            }
            Value::List(items) => items.iter().for_each(|item| walk(text, item)),
            Value::Map(entries) => {
                for entry in entries {
                    let key = entry.key_span.unwrap();
                    assert_eq!(&text[key.start..key.end], entry.key);
                    walk(text, &entry.value);
                }
            }
            Value::Unknown => unreachable!(),
        }
    }
    walk(text, &parse(text, &none).root.unwrap());
}

#[test]
fn a_duplicate_key_names_both_positions() {
    let document = parse("a:\n  b: 1\n  c: 2\n  b: 3\n", &none);
    let problem = document.problems.sorted()[0].clone();
    assert_eq!(
        problem.to_string(),
        "line 4, column 3: a.b: \"b\" is set twice, first in line 2 (keep one of them)"
    );
    assert_eq!(problem.related.unwrap().0.line, 2);
}

#[test]
fn unsupported_and_invalid_yaml_is_rejected_in_words() {
    for (text, expected) in [
        (
            "a: &x 1\nb: 2\n",
            "line 1, column 4: a: anchors (&name) are not supported",
        ),
        (
            "a: &x 1\nb: *x\n",
            "line 2, column 4: b: aliases (*name) are not supported",
        ),
        ("a: !!int 1\n", "a: tags (!name) are not supported"),
        (
            "a: 1\n---\nb: 2\n",
            "line 2, column 1: a second document begins here",
        ),
        ("? [a, b]\n: 1\n", "a key must be a word"),
        (": 1\n", "a key is missing before the \":\""),
        (
            "a:\n\tb: 1\n",
            "line 2, column 1: a: a tab in the indentation; YAML allows only spaces there",
        ),
        ("host: *.example.com\n", "\"*\" begins an alias"),
        ("a: b: c\n", "line 1, column 5: a second \":\" in this line"),
        (
            "a: [1, 2\nb: 3\n",
            "line 2, column 2: a[1]: unexpected \":\": a \"[\" or \"{\" before it is not closed",
        ),
        ("a: { path: /v1/{id} }\n", "needs quotes"),
        ("a: \"open\nb: 1\n", "never closed"),
    ] {
        let found = problems(text);
        assert!(found.contains(expected), "{text:?} gave: {found}");
    }
}

#[test]
fn nesting_is_bounded() {
    let deep = "[".repeat(100_000);
    assert!(problems(&deep).contains("nested more than 32 levels deep"));
    let bomb = "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n";
    assert!(problems(bomb).contains("aliases (*name) are not supported"));
}

#[test]
fn only_utf_8_text_is_read() {
    assert_eq!(decode(b"\xef\xbb\xbfa: 1"), Ok("a: 1"));
    let found = decode("a: 1\nb: ä\u{e9}".as_bytes().split_last().unwrap().1).unwrap_err();
    assert!(
        found
            .to_string()
            .starts_with("line 2, column 5: this byte is not UTF-8 text"),
        "{found}"
    );
    let found = decode(b"\xff\xfea\0").unwrap_err().to_string();
    assert!(found.contains("UTF-16"), "{found}");
    let found = decode(&vec![b'#'; MAX_BYTES + 1]).unwrap_err().to_string();
    assert!(found.contains("larger than 16 MiB"), "{found}");
}

#[test]
fn variables_are_values_and_never_structure() {
    let env = |name: &str| (name == "X").then(|| "a: [1, 2]\nb: 3".to_owned());
    let document = parse("v: ${X}\nw: pre-${X}\n", &env);
    let root = document.root.unwrap();
    assert_eq!(root.to_json()["v"], "a: [1, 2]\nb: 3");
    assert!(format!("{root:?}").contains("${X}"));
    assert!(!format!("{root:?}").contains("[1, 2]"));
}

#[test]
fn all_unset_variables_are_reported() {
    let found = problems("a: ${ONE}\nb: [x, \"${TWO}\"]\nc: ${THREE:-3}\nd: ${\n");
    for part in [
        "line 1, column 4: a: the environment variable ONE is not set (set ONE, or give a default: ${ONE:-default})",
        "line 2, column 8: b[1]: the environment variable TWO is not set",
        "line 4, column 4: d: \"${\" begins a variable",
    ] {
        assert!(found.contains(part), "{found}");
    }
    assert!(!found.contains("THREE"), "{found}");
}

#[test]
fn the_number_of_values_is_bounded() {
    let many = format!("[{}]", "a,".repeat(1_100_000));
    assert!(problems(&many).contains("too many keys and values"));
}

#[test]
fn problems_after_a_break_are_reported_as_well() {
    for (text, expected) in [
        // An item of a list: the others keep their numbers.
        (
            "rules:\n  - a: b: c\n  - d: &x 1\n  - e: [1, 2\n  - f: *y\nlast: !t 1\n",
            "line 2, column 9: rules[0]: a second \":\" in this line\n\
             line 3, column 8: rules[1].d: anchors (&name)\n\
             line 5, column 6: rules[2].e[1]: unexpected \":\": a\n\
             line 5, column 8: rules[3].f: \"*\" begins an alias\n\
             line 6, column 7: last: tags (!name)",
        ),
        // A section that is no list.
        (
            "redis:\n  url: \"open\n  more: 1\nrules: &x 1\n",
            "line 2, column 8: redis.url: the quote that opens here is never closed\n\
             line 4, column 8: rules: anchors (&name)",
        ),
        // The last one, and nothing behind it.
        (
            "a: &x 1\nb: c: d\n",
            "line 1, column 4: a: anchors (&name)\nline 2, column 5: a second",
        ),
    ] {
        let found = problems(text);
        let short = |line: &str, expected: &str| {
            line.chars()
                .take(expected.chars().count())
                .collect::<String>()
        };
        let lines: Vec<String> = found
            .lines()
            .zip(expected.lines())
            .map(|(line, expected)| short(line, expected))
            .collect();
        assert_eq!(lines.join("\n"), expected, "{text:?} gave:\n{found}");
        assert_eq!(found.lines().count(), expected.lines().count(), "{found}");
    }
}

#[test]
fn a_break_without_recovery_is_reported_once() {
    for text in ["{ \"a\": [1, }\n", "- a: b: c\n- d\n", "\"a: 1\nb: c\n"] {
        let document = parse(text, &none);
        assert_eq!(
            document.problems.errors(),
            1,
            "{text:?} gave: {}",
            document.problems
        );
        assert_eq!(document.root, None);
    }
}

#[test]
fn a_broken_block_is_unknown() {
    let root = parse("a: b: c\nlist:\n  - 1\n  - x: y: z\n", &none)
        .root
        .unwrap();
    assert_eq!(root.get("a").unwrap().value, Value::Unknown);
    let Value::List(items) = &root.get("list").unwrap().value else {
        panic!("no list");
    };
    assert_eq!(items[1].value, Value::Unknown);
}

fn text(written: &str) -> Option<String> {
    let env = |name: &str| match name {
        "HOST" => Some("db.internal".to_owned()),
        "EMPTY" => Some(String::new()),
        "TRICKY" => Some("a: [b, ${HOST}] $$".to_owned()),
        _ => None,
    };
    replace_variables(written, &env)
        .ok()
        .map(|replaced| replaced.text)
}

#[test]
fn variables_defaults_and_dollars_are_replaced_once() {
    for (written, expected) in [
        ("plain", "plain"),
        ("redis://${HOST}:6379", "redis://db.internal:6379"),
        ("${NONE:-localhost}", "localhost"),
        ("${EMPTY:-full}", "full"),
        ("${EMPTY}", ""),
        ("$${HOST}", "${HOST}"),
        ("cost: 5$", "cost: 5$"),
        ("$HOST", "$HOST"),
        ("${TRICKY}", "a: [b, ${HOST}] $$"),
    ] {
        assert_eq!(text(written).as_deref(), Some(expected), "{written}");
    }
    for wrong in ["${NONE}", "${HOST", "${}", "${1A}", "${HO ST}"] {
        assert_eq!(text(wrong), None, "{wrong}");
    }
}
