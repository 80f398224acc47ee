//! Arbitrary files: no panic, and every problem has a location within the file.

use proptest::prelude::*;
use tollgate_config::document::{self, Problems};
use tollgate_config::parse;

const GOOD: &str = include_str!("../../../tollgate-server/assets/tollgate.yaml");

fn env(name: &str) -> Option<String> {
    name.len().is_multiple_of(2).then(|| name.to_lowercase())
}

fn check(text: &str) {
    let problems = match parse(text, &env) {
        Ok(config) => config.warnings,
        Err(problems) => {
            assert!(problems.has_errors(), "rejected without a reason: {text:?}");
            problems
        }
    };
    check_locations(text, &problems);
    let _ = problems.render("tollgate.yaml", text);
    let _ = problems.to_json("tollgate.yaml");
}

fn check_locations(text: &str, problems: &Problems) {
    let lines: Vec<&str> = text.split('\n').collect();
    for problem in problems.sorted() {
        let related = problem.related.as_ref().map(|(span, _)| *span);
        for span in problem.location.span.into_iter().chain(related) {
            assert!(
                span.start <= span.end && span.end <= text.len(),
                "{problem:?}"
            );
            assert!(
                text.is_char_boundary(span.start) && text.is_char_boundary(span.end),
                "{problem:?}"
            );
            assert!(span.line >= 1 && span.line <= lines.len(), "{problem:?}");
            let columns = lines[span.line - 1].chars().count() + 1;
            assert!(
                span.column >= 1 && span.column <= columns,
                "{problem:?} in {text:?}"
            );
        }
    }
}

/// A change of a text at a byte.
#[derive(Clone, Debug)]
enum Change {
    Remove(usize),
    Insert(&'static str),
    Repeat(usize),
    Swap(usize),
}

fn change() -> impl Strategy<Value = (usize, Change)> {
    let pieces = [
        ":",
        ": ",
        "\n",
        "\n  ",
        "- ",
        "{",
        "}",
        "[",
        "]",
        ",",
        "\"",
        "'",
        "#",
        " #",
        "&a ",
        "*a",
        "!",
        "|\n",
        ">\n",
        "\t",
        "\r\n",
        "---\n",
        "...\n",
        "${",
        "${X}",
        "$$",
        "}",
        "ä",
        "\u{feff}",
        "\u{0}",
        "0",
        "-1",
        "99999999999999999999",
        "null",
        "~",
        "rules",
        "per",
        "? ",
        "%",
        "@",
        "`",
        "\\",
        "🦀",
    ];
    let change = prop_oneof![
        (1..40_usize).prop_map(Change::Remove),
        proptest::sample::select(pieces.to_vec()).prop_map(Change::Insert),
        (1..200_usize).prop_map(Change::Repeat),
        (1..40_usize).prop_map(Change::Swap),
    ];
    (0..GOOD.len(), change)
}

fn changed(mut text: String, (at, change): (usize, Change)) -> String {
    let boundary = |text: &str, at: usize| {
        let at = at.min(text.len());
        (0..=at)
            .rev()
            .find(|at| text.is_char_boundary(*at))
            .unwrap()
    };
    let from = boundary(&text, at);
    match change {
        Change::Remove(length) => {
            let to = boundary(&text, from + length);
            text.replace_range(from..to.max(from), "");
        }
        Change::Insert(piece) => text.insert_str(from, piece),
        Change::Repeat(length) => {
            let to = boundary(&text, from + length);
            let piece = text[from..to.max(from)].to_owned();
            text.insert_str(from, &piece);
        }
        Change::Swap(length) => {
            let to = boundary(&text, from + length);
            let reversed: String = text[from..to.max(from)].chars().rev().collect();
            text.replace_range(from..to.max(from), &reversed);
        }
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_rejected_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        match document::decode(&bytes) {
            Ok(text) => check(text),
            Err(problems) => prop_assert!(problems.has_errors()),
        }
    }

    #[test]
    fn any_text_is_rejected_or_read(text in "[ \\t\\n:{}\\[\\]\\-a-c\"'#&*!|>%@`$,0-9äß🦀]{0,120}") {
        check(&text);
    }

    #[test]
    fn a_valid_file_with_changes_is_rejected_or_read(changes in proptest::collection::vec(change(), 1..6)) {
        let text = changes.into_iter().fold(GOOD.to_owned(), changed);
        check(&text);
    }
}
