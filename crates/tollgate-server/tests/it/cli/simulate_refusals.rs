//! What `tollgate simulate` refuses, and with which message.

use super::simulate_failure;
use crate::kit::program;

#[test]
fn an_unknown_scenario_is_refused_with_suggestions() {
    let error = simulate_failure(&program(), 2, &["boundry"]);
    for part in [
        "similar value exists: 'boundary'",
        "burst-idle",
        "surge",
        "drivers",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_limit_out_of_range_is_refused_with_the_engine_message() {
    for (limit, hint) in [
        (
            "99999999999/s",
            "99,999,999,999/s is faster than 10,000,000/s; use at most 10,000,000/s",
        ),
        (
            "10/s burst 99999999999999999999",
            "a smaller burst: at most 4,000,000,000",
        ),
        (
            "10/s burst 0",
            "the burst is 0 and would let nothing through; use at least 1",
        ),
        ("10/fortnight", "column 4, expected a unit of time"),
        ("2000000/s", "it can be at most 1,000,000"),
    ] {
        let program = program();
        let error = simulate_failure(&program, 2, &["--limit", limit]);
        assert!(error.contains(hint), "{limit}: {error}");
        assert!(program.files().is_empty());
    }
}

#[test]
fn an_unwritable_path_is_named() {
    let program = program();
    program.write("file", "");
    let error = simulate_failure(&program, 1, &["--out", "file/chart"]);
    assert!(error.contains("cannot write file/chart.svg"), "{error}");
    assert_eq!(program.files(), ["file"]);
}

#[test]
fn a_csv_needs_a_limit_and_excludes_a_scenario() {
    let program = program();
    program.write("a.csv", "1\n");
    assert!(simulate_failure(&program, 2, &["--csv", "a.csv"]).contains("--limit"));
    let error = simulate_failure(&program, 2, &["surge", "--csv", "a.csv", "--limit", "1/s"]);
    assert!(error.contains("cannot be used with"), "{error}");
}
