//! The collected attacks (bench/attack) in short: some cases of every list, with Node and Starlette behind the program.

use std::time::Duration;

use attack::Setting;

use crate::kit::TOLLGATE;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The lists from which cases must have been run.
const LISTS: [&str; 12] = [
    "identity", "proxies", "hosts", "headers", "methods", "paths", "trailers", "framing", "tokens",
    "json", "rls", "floods",
];

/// Maximum number of cases of each list, spread over all of it.
const CASES_PER_LIST: usize = 24;

/// Minimum number of cases of all lists together.
const MIN_CASES: usize = 200;

#[test]
fn no_collected_attack_passes_a_limit() {
    let setting = Setting {
        tollgate: TOLLGATE.into(),
        node: "node".into(),
        python: format!("{ROOT}/target/attack/bin/python").into(),
        cases_per_list: Some(CASES_PER_LIST),
        // A good client beside a flood is served, later on a busy machine than on others.
        patience: Duration::from_secs(10),
        only: Vec::new(),
    };
    let outcome = attack::run(&setting, |_| {}).unwrap();

    let lists = || outcome.lists.iter();
    let reports: Vec<String> = lists().map(ToString::to_string).collect();
    assert!(outcome.is_success(), "{}", reports.join("\n"));
    let names: Vec<&str> = lists().map(|list| list.name).collect();
    assert_eq!(names, LISTS);
    assert!(lists().all(|list| list.cases > 0), "{reports:#?}");
    let cases: usize = lists().map(|list| list.cases).sum();
    assert!(cases >= MIN_CASES, "{reports:#?}");
    let expected = format!("attack: cases={cases} bypassed=0 errors_to_envoy=0");
    assert_eq!(outcome.summary(), expected);
}
