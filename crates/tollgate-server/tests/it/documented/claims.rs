//! What pages claim: tests by their names, targets of make, other pages.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::page::{Page, ROOT, names};

/// All text of each module's files of tests and sources, by the module's name.
fn modules() -> HashMap<String, String> {
    let mut modules: HashMap<String, String> = HashMap::new();
    let mut folders = vec![PathBuf::from(ROOT).join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                modules.entry(name).or_default().push_str(&text);
            }
        }
    }
    modules
}

fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let ends = |rest: &str| !rest.starts_with(part);
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(part) && ends(&text[at + word.len()..]))
}

/// Names of tests as pages write them: `module::name`, `module::…::name`, `…::name`, `module::…`, or a name of four words and more.
fn named_tests(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let is_name = |word: &&str| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:…".contains(c);
        word.chars().all(plain) && (word.contains("::") || word.matches('_').count() >= 4)
    };
    quoted.filter(is_name).collect()
}

fn is_there(modules: &HashMap<String, String>, test: &str) -> bool {
    let parts: Vec<&str> = test.split("::").filter(|part| *part != "…").collect();
    match parts[..] {
        // All tests of a module.
        [module] if test.ends_with('…') => modules.contains_key(module),
        [name] => modules.values().any(|text| has_word(text, name)),
        [module, .., name] => modules.get(module).is_some_and(|text| has_word(text, name)),
        [] => false,
    }
}

/// Paragraphs, bullets and rows that promise something, each with its line.
fn promises(text: &str) -> Vec<(usize, String)> {
    let mut promises: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (line, said) in (1..).zip(text.lines()) {
        if said.starts_with("- **") {
            promises.push((line, said.to_owned()));
            open = true;
        } else if open && said.starts_with("  ") {
            let (_, last) = promises.last_mut().unwrap();
            last.push_str(said);
        } else {
            open = false;
        }
    }
    promises
}

#[test]
fn every_test_that_a_page_names_exists() {
    let modules = modules();
    let mut named = 0;
    for name in ["docs/guarantees.md", "docs/security.md"] {
        let page = Page::read(name);
        let tests = named_tests(&page.text);
        named += tests.len();
        let missing: Vec<_> = tests
            .into_iter()
            .filter(|test| !is_there(&modules, test))
            .collect();
        assert!(
            missing.is_empty(),
            "{name} names no such tests: {missing:?}"
        );
        let bare: Vec<_> = promises(&page.text)
            .into_iter()
            .filter(|(_, promise)| named_tests(promise).is_empty() && !promise.contains("`make "))
            .collect();
        assert!(bare.is_empty(), "{name} promises without a test: {bare:#?}");
    }
    assert!(named > 100, "{named}");
}

#[test]
fn a_missing_test_is_found() {
    let modules = HashMap::from([("contract".to_owned(), "fn it_holds() {}".to_owned())]);
    assert!(is_there(&modules, "contract::…::it_holds") && is_there(&modules, "contract::…"));
    assert!(!is_there(&modules, "contract::it_hold") && !is_there(&modules, "faults::…"));
    assert_eq!(
        named_tests("`a::b`, `Limiter::inspect`, `make test`"),
        ["a::b"]
    );
}

#[test]
fn every_target_of_make_that_a_page_names_exists() {
    let makefile = std::fs::read_to_string(format!("{ROOT}/Makefile")).unwrap();
    for name in names() {
        let page = Page::read(&name);
        let shown = page.blocks().filter(|block| block.language == "sh");
        let in_blocks = shown.flat_map(|block| block.text.lines());
        let in_text = page.text.split('`').skip(1).step_by(2);
        for words in in_blocks.chain(in_text) {
            let Some(target) = words.trim().strip_prefix("make ") else {
                continue;
            };
            let target = target.split_whitespace().next().unwrap_or_default();
            assert!(
                target.contains('=') || makefile.contains(&format!("\n{target}:")),
                "{name}: there is no `make {target}`"
            );
        }
    }
}

fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|heading| {
            let kept = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = kept
                .chars()
                .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
            kept.collect::<String>().replace(' ', "-")
        })
        .collect()
}

#[test]
fn every_link_leads_somewhere() {
    for name in names() {
        let page = Page::read(&name);
        let folder = Path::new(ROOT).join(&name);
        let folder = folder.parent().unwrap();
        for link in page.text.split("](").skip(1) {
            let link = link.split(')').next().unwrap();
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                Path::new(ROOT).join(&name)
            } else {
                folder.join(path)
            };
            assert!(target.exists(), "{name}: {link} leads nowhere");
            if !anchor.is_empty() {
                let text = std::fs::read_to_string(&target).unwrap();
                assert!(
                    anchors(&text).iter().any(|known| known == anchor),
                    "{name}: {link}: there is no such section"
                );
            }
        }
    }
}

/// `make bench-peers` builds a workspace of its own, by its lock file and nothing else.
#[test]
fn the_lock_file_of_the_peers_knows_all_that_we_depend_on() {
    let read = |file: &str| std::fs::read_to_string(format!("{ROOT}/{file}")).unwrap();
    let lock = read("bench/peers/Cargo.lock");
    for ours in ["tollgate", "tollgate-tower"] {
        let begin = format!("[[package]]\nname = \"{ours}\"\n");
        let package = lock.split_once(&begin).unwrap().1;
        let known = package.split("[[package]]").next().unwrap();
        let manifest = read(&format!("crates/{ours}/Cargo.toml"));
        let needs = manifest.split_once("\n[dependencies]\n").unwrap().1;
        let needs = needs.split("\n[").next().unwrap().lines();
        let needs = needs.filter(|line| !line.is_empty() && !line.contains("optional = true"));
        for need in needs {
            let name = need.split(['.', ' ']).next().unwrap();
            let has = known.contains(&format!("\n \"{name}\""))
                || known.contains(&format!("\n \"{name} "));
            assert!(
                has,
                "{ours} needs {name}: run `cargo metadata` in bench/peers once it is installed"
            );
        }
    }
}
