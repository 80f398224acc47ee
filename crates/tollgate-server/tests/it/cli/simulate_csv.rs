//! Arrivals from a file.

use crate::program::{Program, of, stderr};

#[test]
fn costs_in_the_second_column_are_honoured() {
    let program = Program::new();
    program.write(
        "costs.csv",
        "time,cost\n100.0,4\n100.1,4\n100.2,4\n100.3,2\n",
    );
    let report = program.json(&["--csv", "costs.csv", "--limit", "10/min sliding_log"]);
    let log = of(&report, "sliding_log");
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
    let program = Program::new();
    let args = ["--csv", "-", "--limit", "1/min", "--json", "--no-chart"];
    let output = program.run_with_stdin(&args, "1767610800000\n1767610801000\n");
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(of(&report, "fixed_window")["admitted"], 1);
}

#[test]
fn a_malformed_line_is_refused_with_its_number_and_nothing_is_written() {
    let program = Program::new();
    program.write("bad.csv", "1\n2\nthree\n4\n");
    let said = program.refusal(2, &["--csv", "bad.csv", "--limit", "1/s"]);
    assert!(
        said.contains("bad.csv, line 3: found \"three\", expected seconds"),
        "{said}"
    );
    assert_eq!(program.files(), ["bad.csv"]);
}

#[test]
fn times_out_of_order_are_refused_unless_they_are_to_be_sorted() {
    let program = Program::new();
    program.write("mixed.csv", "2\n1\n3\n");
    let said = program.refusal(2, &["--csv", "mixed.csv", "--limit", "1/s"]);
    assert!(
        said.contains("mixed.csv, line 2") && said.contains("--sort"),
        "{said}"
    );
    let report = program.json(&["--csv", "mixed.csv", "--limit", "1/s", "--sort"]);
    assert_eq!(of(&report, "sliding_log")["admitted"], 3);
}

#[test]
fn a_file_without_requests_or_that_is_not_there_is_refused() {
    let program = Program::new();
    program.write("empty.csv", "time,cost\n\n");
    let said = program.refusal(2, &["--csv", "empty.csv", "--limit", "1/s"]);
    assert!(said.contains("empty.csv has no requests"), "{said}");
    let said = program.refusal(2, &["--csv", "missing.csv", "--limit", "1/s"]);
    assert!(said.contains("cannot read missing.csv"), "{said}");
}
