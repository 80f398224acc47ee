//! What is refused, and how that is said.

use crate::program::Program;

#[test]
fn an_unknown_scenario_is_told_the_nearest_and_all_known_ones() {
    let said = Program::new().refusal(2, &["boundry"]);
    for part in [
        "similar value exists: 'boundary'",
        "burst-idle",
        "surge",
        "drivers",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_limit_that_is_out_of_range_is_refused_in_the_words_of_the_engine() {
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
        let program = Program::new();
        let said = program.refusal(2, &["--limit", limit]);
        assert!(said.contains(hint), "{limit}: {said}");
        assert!(program.files().is_empty());
    }
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let program = Program::new();
    program.write("file", "");
    let said = program.refusal(1, &["--out", "file/chart"]);
    assert!(said.contains("cannot write file/chart.svg"), "{said}");
    assert_eq!(program.files(), ["file"]);
}

#[test]
fn a_csv_needs_a_limit_and_excludes_a_scenario() {
    let program = Program::new();
    program.write("a.csv", "1\n");
    assert!(program.refusal(2, &["--csv", "a.csv"]).contains("--limit"));
    let said = program.refusal(2, &["surge", "--csv", "a.csv", "--limit", "1/s"]);
    assert!(said.contains("cannot be used with"), "{said}");
}
