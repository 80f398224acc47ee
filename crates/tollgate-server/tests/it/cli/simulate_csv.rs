//! Arrivals from a file.

use tollgate_testing::program::stderr;

use super::{figures, figures_of, simulate_failure};
use crate::kit::program;

#[test]
fn costs_in_the_second_column_are_honoured() {
    let program = program();
    program.write(
        "costs.csv",
        "time,cost\n100.0,4\n100.1,4\n100.2,4\n100.3,2\n",
    );
    let report = figures(
        &program,
        &["--csv", "costs.csv", "--limit", "10/min sliding_log"],
    );
    let log = figures_of(&report, "sliding_log");
    assert_eq!(
        (&log["offered"], &log["admitted"], &log["denied"]),
        (&14.into(), &10.into(), &4.into())
    );
    assert_eq!(
        (&log["requests"]["offered"], &log["requests"]["admitted"]),
        (&4.into(), &3.into())
    );
    assert_eq!(log["worst_window"], 10);
}

#[test]
fn stdin_is_read_for_a_dash() {
    let program = program();
    let args = [
        "simulate",
        "--csv",
        "-",
        "--limit",
        "1/min",
        "--json",
        "--no-chart",
    ];
    let output = program.run_with_stdin(&args, "1767610800000\n1767610801000\n");
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(figures_of(&report, "fixed_window")["admitted"], 1);
}

#[test]
fn a_malformed_line_is_refused_and_nothing_is_written() {
    let program = program();
    program.write("bad.csv", "1\n2\nthree\n4\n");
    let error = simulate_failure(&program, 2, &["--csv", "bad.csv", "--limit", "1/s"]);
    assert!(
        error.contains("bad.csv, line 3: found \"three\", expected seconds"),
        "{error}"
    );
    assert_eq!(program.files(), ["bad.csv"]);
}

#[test]
fn times_out_of_order_are_refused_without_sort() {
    let program = program();
    program.write("mixed.csv", "2\n1\n3\n");
    let error = simulate_failure(&program, 2, &["--csv", "mixed.csv", "--limit", "1/s"]);
    assert!(
        error.contains("mixed.csv, line 2") && error.contains("--sort"),
        "{error}"
    );
    let report = figures(
        &program,
        &["--csv", "mixed.csv", "--limit", "1/s", "--sort"],
    );
    assert_eq!(figures_of(&report, "sliding_log")["admitted"], 3);
}

#[test]
fn empty_and_missing_files_are_refused() {
    let program = program();
    program.write("empty.csv", "time,cost\n\n");
    let error = simulate_failure(&program, 2, &["--csv", "empty.csv", "--limit", "1/s"]);
    assert!(error.contains("empty.csv has no requests"), "{error}");
    let error = simulate_failure(&program, 2, &["--csv", "missing.csv", "--limit", "1/s"]);
    assert!(error.contains("cannot read missing.csv"), "{error}");
}
