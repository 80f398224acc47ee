//! The documentation against the program: every command and configuration in every page is run, and every name in it is looked up.
//!
//! A page runs in its order, in a folder of its own, as a reader with a terminal would do it. Comments before a block say what a
//! test has to know: `<!-- file: NAME -->` (this is that file), `<!-- not run: WHY -->`, and `<!-- before: COMMAND -->` for what readers have
//! and a test has not. In `console` blocks, lines behind a `$` are commands, and the others what they must say.

mod claims;
mod page;
mod pictures;
mod stage;

use std::collections::BTreeMap;

use page::{Page, names};

/// Languages of blocks: those that are run or read, and those that are files or of others and have to be marked so.
const KNOWN: [&str; 6] = ["rust", "sh", "console", "yaml", "json", "text"];
const MARKED: [&str; 7] = ["toml", "sql", "js", "nginx", "ini", "lua", "csv"];

/// A test for each page, so that they run beside each other.
macro_rules! pages {
    ($($test:ident: $name:literal,)*) => {
        const PAGES: &[&str] = &[$($name),*];
        $(#[test]
        fn $test() {
            perform($name);
        })*
    };
}

pages! {
    readme: "README.md",
    architecture: "ARCHITECTURE.md",
    changelog: "CHANGELOG.md",
    contributing: "CONTRIBUTING.md",
    bench: "bench/README.md",
    deploy: "deploy/README.md",
    index: "docs/README.md",
    algorithms: "docs/algorithms.md",
    configuration: "docs/configuration.md",
    decision_service: "docs/decision-service.md",
    faq: "docs/faq.md",
    guarantees: "docs/guarantees.md",
    migration: "docs/migration.md",
    operating: "docs/operating.md",
    security: "docs/security.md",
    quick_library: "docs/quick-starts/library.md",
    quick_axum: "docs/quick-starts/axum.md",
    quick_gateway: "docs/quick-starts/gateway.md",
    quick_envoy: "docs/quick-starts/envoy.md",
    quick_nginx: "docs/quick-starts/nginx.md",
    quick_traefik_caddy: "docs/quick-starts/traefik-and-caddy.md",
    quick_postgresql: "docs/quick-starts/postgresql.md",
    quick_redis_cluster: "docs/quick-starts/redis-cluster.md",
}

#[expect(
    clippy::print_stdout,
    reason = "how much was run is what one wants to know"
)]
fn perform(name: &str) {
    let page = Page::read(name);
    let ran = stage::perform(&page);
    println!("{name}: {ran:?}");
}

/// New pages, until somebody lists them above.
#[test]
fn unlisted_pages_are_run() {
    for name in names()
        .iter()
        .filter(|name| !PAGES.contains(&name.as_str()))
    {
        perform(name);
    }
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "how much is run is what one wants to know"
)]
fn every_block_is_known_and_run_or_says_why_not() {
    let names = names();
    for listed in PAGES {
        assert!(
            names.iter().any(|name| name == listed),
            "there is no {listed}"
        );
    }
    let doc_tests = include_str!("../../../tollgate-tower/src/documentation.rs");
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for name in &names {
        let page = Page::read(name);
        for block in page.blocks() {
            let (line, language) = (block.line, block.language.as_str());
            let run = block.not_run.as_ref().map_or("", |_| ", not run");
            *counts.entry(format!("{language}{run}")).or_default() += 1;
            let marked = block.not_run.is_some() || block.file.is_some();
            assert!(
                KNOWN.contains(&language) || (MARKED.contains(&language) && marked),
                "{name}:{line}: {language:?} is not a language that is run, nor marked as one that is not"
            );
            assert!(
                language != "rust" || doc_tests.contains(&format!("/{name}\")")),
                "{name}:{line}: list the page in crates/tollgate-tower/src/documentation.rs, so that its examples are compiled"
            );
        }
    }
    println!("{} pages, blocks: {counts:?}", names.len());
    assert!(counts["sh"] + counts["console"] > 20, "{counts:?}");
}
