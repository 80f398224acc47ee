//! The mistakes in `mistakes.txt` and their messages, word by word.
//!
//! After a change of messages: `UPDATE_MESSAGES=1 cargo test -p tollgate-config --test it mistake`, and read the diff.

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

fn message_of(text: &str) -> String {
    match parse(text, &env) {
        Ok(_) => panic!("nothing is wrong with:\n{text}"),
        Err(problems) => problems.render("tollgate.yaml", text),
    }
}

#[test]
fn every_mistake_has_its_message() {
    let file = std::fs::read_to_string(FILE).unwrap();
    let mistakes = mistakes(&file);
    assert!(mistakes.len() >= 80, "{} mistakes", mistakes.len());
    if std::env::var_os("UPDATE_MESSAGES").is_some() {
        let mut updated = String::new();
        for Mistake { name, text, .. } in &mistakes {
            let message = message_of(text);
            writeln!(
                updated,
                "=== {name}\n{text}--- says\n{}\n",
                message.trim_end()
            )
            .unwrap();
        }
        std::fs::write(FILE, updated).unwrap();
        return;
    }
    for Mistake { name, text, says } in mistakes {
        let message = message_of(text);
        assert_eq!(message.trim_end(), says.trim_end(), "{name}");
    }
}

#[test]
fn no_message_contains_a_secret() {
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
