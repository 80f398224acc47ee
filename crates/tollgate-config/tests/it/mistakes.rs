//! Every mistake in `mistakes.txt`, and what is said about it, word by word.
//!
//! After a change of words: `UPDATE_MESSAGES=1 cargo test -p tollgate-config --test it messages`, and read what changed.

use std::fmt::Write as _;

use tollgate_config::parse;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/mistakes.txt");

fn env(name: &str) -> Option<String> {
    match name {
        "WORD" => Some("hunter2".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

struct Mistake<'a> {
    name: &'a str,
    text: &'a str,
    says: &'a str,
}

fn mistakes(file: &str) -> Vec<Mistake<'_>> {
    let parts = file.split("=== ").filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, rest) = part.split_once('\n').unwrap();
            let (text, says) = rest.split_once("--- says\n").unwrap();
            Mistake { name, text, says }
        })
        .collect()
}

fn said(text: &str) -> String {
    match parse(text, &env) {
        Ok(_) => panic!("nothing is wrong with:\n{text}"),
        Err(problems) => problems.render("tollgate.yaml", text),
    }
}

#[test]
fn the_messages_are_these() {
    let file = std::fs::read_to_string(FILE).unwrap();
    let mistakes = mistakes(&file);
    assert!(mistakes.len() >= 80, "{} mistakes", mistakes.len());
    if std::env::var_os("UPDATE_MESSAGES").is_some() {
        let mut updated = String::new();
        for Mistake { name, text, .. } in &mistakes {
            let said = said(text);
            writeln!(updated, "=== {name}\n{text}--- says\n{}\n", said.trim_end()).unwrap();
        }
        std::fs::write(FILE, updated).unwrap();
        return;
    }
    for Mistake { name, text, says } in mistakes {
        let said = said(text);
        assert_eq!(said.trim_end(), says.trim_end(), "{name}");
    }
}

#[test]
fn what_is_secret_is_not_in_any_message() {
    let file = std::fs::read_to_string(FILE).unwrap();
    for Mistake { name, text, .. } in mistakes(&file) {
        let problems = parse(text, &env).unwrap_err();
        let json = problems.to_json("tollgate.yaml").to_string();
        for shown in [
            problems.render("tollgate.yaml", text),
            problems.to_string(),
            json,
        ] {
            assert!(!shown.contains("hunter2"), "{name}: {shown}");
        }
    }
}
