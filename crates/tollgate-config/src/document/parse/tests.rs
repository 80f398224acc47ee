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
fn every_key_and_value_has_its_place() {
    let text = "größe: 1\nlist:\n  - [ä, { k: \"v w\" }]\n";
    fn walk(text: &str, node: &Node) {
        let at = node.at.unwrap();
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
                    let key = entry.key_at.unwrap();
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
fn a_key_said_twice_names_both_places() {
    let document = parse("a:\n  b: 1\n  c: 2\n  b: 3\n", &none);
    let problem = document.problems.sorted()[0].clone();
    assert_eq!(
        problem.to_string(),
        "line 4, column 3: a.b: \"b\" is said twice; it was said first in line 2 (keep one of them)"
    );
    assert_eq!(problem.also.unwrap().0.line, 2);
}

#[test]
fn what_yaml_can_and_we_do_not_is_refused_in_words() {
    for (text, expected) in [
        (
            "a: &x 1\nb: 2\n",
            "line 1, column 4: a: anchors (&name) are not understood here",
        ),
        (
            "a: &x 1\nb: *x\n",
            "line 2, column 4: b: aliases (*name) are not understood here",
        ),
        ("a: !!int 1\n", "a: tags (!name) are not understood here"),
        (
            "a: 1\n---\nb: 2\n",
            "line 2, column 1: a second document begins here",
        ),
        ("? [a, b]\n: 1\n", "a key has to be a word"),
        (": 1\n", "a key is missing before the \":\""),
        (
            "a:\n\tb: 1\n",
            "line 2, column 1: a: a tab in the indentation; YAML knows only spaces there",
        ),
        ("host: *.example.com\n", "\"*\" begins an alias"),
        ("a: b: c\n", "line 1, column 5: a second \":\" in this line"),
        (
            "a: [1, 2\nb: 3\n",
            "line 2, column 2: a[1]: this \":\" cannot stand here: a \"[\" or \"{\" before it is not closed",
        ),
        ("a: { path: /v1/{id} }\n", "needs quotes"),
        ("a: \"open\nb: 1\n", "never closed"),
    ] {
        let said = problems(text);
        assert!(said.contains(expected), "{text:?} said: {said}");
    }
}

#[test]
fn nesting_is_bounded() {
    let deep = "[".repeat(100_000);
    assert!(problems(&deep).contains("nested more than 32 levels deep"));
    let bomb = "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n";
    assert!(problems(bomb).contains("aliases (*name) are not understood"));
}

#[test]
fn only_text_in_utf_8_is_read() {
    assert_eq!(decode(b"\xef\xbb\xbfa: 1"), Ok("a: 1"));
    let said = decode("a: 1\nb: ä\u{e9}".as_bytes().split_last().unwrap().1).unwrap_err();
    assert!(
        said.to_string()
            .starts_with("line 2, column 5: this byte is not UTF-8 text"),
        "{said}"
    );
    let said = decode(b"\xff\xfea\0").unwrap_err().to_string();
    assert!(said.contains("UTF-16"), "{said}");
    let said = decode(&vec![b'#'; LONGEST + 1]).unwrap_err().to_string();
    assert!(said.contains("larger than 16 MiB"), "{said}");
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
fn all_variables_that_are_not_set_are_named() {
    let said = problems("a: ${ONE}\nb: [x, \"${TWO}\"]\nc: ${THREE:-3}\nd: ${\n");
    for part in [
        "line 1, column 4: a: the environment variable ONE is not set (set ONE, or give a default: ${ONE:-default})",
        "line 2, column 8: b[1]: the environment variable TWO is not set",
        "line 4, column 4: d: \"${\" begins a variable",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!said.contains("THREE"), "{said}");
}

#[test]
fn the_number_of_values_is_bounded() {
    let many = format!("[{}]", "a,".repeat(1_100_000));
    assert!(problems(&many).contains("too many keys and values"));
}

#[test]
fn what_is_wrong_behind_a_break_is_told_as_well() {
    for (text, expected) in [
        // An item of a list: the others keep their numbers.
        (
            "rules:\n  - a: b: c\n  - d: &x 1\n  - e: [1, 2\n  - f: *y\nlast: !t 1\n",
            "line 2, column 9: rules[0]: a second \":\" in this line\n\
             line 3, column 8: rules[1].d: anchors (&name)\n\
             line 5, column 6: rules[2].e[1]: this \":\" cannot stand\n\
             line 5, column 8: rules[3].f: \"*\" begins an alias\n\
             line 6, column 7: last: tags (!name)",
        ),
        // A section that is no list.
        (
            "redis:\n  url: \"open\n  more: 1\nrules: &x 1\n",
            "line 2, column 8: redis.url: the quote that is opened here is never closed\n\
             line 4, column 8: rules: anchors (&name)",
        ),
        // The last one, and nothing behind it.
        (
            "a: &x 1\nb: c: d\n",
            "line 1, column 4: a: anchors (&name)\nline 2, column 5: a second",
        ),
    ] {
        let said = problems(text);
        let short = |line: &str, expected: &str| {
            line.chars()
                .take(expected.chars().count())
                .collect::<String>()
        };
        let lines: Vec<String> = said
            .lines()
            .zip(expected.lines())
            .map(|(line, expected)| short(line, expected))
            .collect();
        assert_eq!(lines.join("\n"), expected, "{text:?} said:\n{said}");
        assert_eq!(said.lines().count(), expected.lines().count(), "{said}");
    }
}

#[test]
fn what_cannot_be_read_on_is_told_once() {
    for text in ["{ \"a\": [1, }\n", "- a: b: c\n- d\n", "\"a: 1\nb: c\n"] {
        let document = parse(text, &none);
        assert_eq!(
            document.problems.errors(),
            1,
            "{text:?} said: {}",
            document.problems
        );
        assert_eq!(document.root, None);
    }
}

#[test]
fn a_broken_block_is_unknown_and_nobody_misses_what_it_lacks() {
    let root = parse("a: b: c\nlist:\n  - 1\n  - x: y: z\n", &none)
        .root
        .unwrap();
    assert_eq!(root.get("a").unwrap().value, Value::Unknown);
    let Value::List(items) = &root.get("list").unwrap().value else {
        panic!("no list");
    };
    assert_eq!(items[1].value, Value::Unknown);
}
