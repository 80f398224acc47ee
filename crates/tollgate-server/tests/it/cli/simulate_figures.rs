//! What the scenarios show is what the algorithms promise.

use std::process::Stdio;

use super::{figures, figures_of, simulate};
use crate::kit::program;

const ALGORITHMS: [&str; 5] = [
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_log",
    "sliding_counter",
];

#[test]
fn at_a_boundary_only_the_fixed_window_admits_twice_its_limit() {
    let report = figures(&program(), &["boundary"]);
    let figure = |algorithm, name: &str| figures_of(&report, algorithm)[name].as_u64().unwrap();
    for algorithm in ALGORITHMS {
        assert_eq!(figure(algorithm, "offered"), 400);
    }
    assert_eq!(figure("fixed_window", "admitted"), 400);
    assert_eq!(figure("fixed_window", "worst_window"), 400);
    assert_eq!(figure("sliding_log", "admitted"), 200);
    assert_eq!(figure("sliding_log", "worst_window"), 200);
    // The burst of 200, and what two seconds at 200/min bring: 6.67, of which only whole tokens count.
    assert_eq!(figure("token_bucket", "admitted"), 206);
    assert!(figure("leaky_bucket", "worst_window") <= 200);
    assert!(figure("sliding_counter", "worst_window") <= 200);
}

#[test]
fn idle_time_earns_at_most_the_capacity() {
    let report = figures(&program(), &["burst-idle"]);
    // Full, then 6 after 0.6 s, then 10 after 1 s, 1.8 s and 5 s alike.
    assert_eq!(
        figures_of(&report, "token_bucket")["admitted"],
        10 + 6 + 10 + 10 + 10
    );
    assert_eq!(figures_of(&report, "leaky_bucket")["admitted"], 46);
    assert_eq!(figures_of(&report, "leaky_bucket")["worst_window"], 10);
}

#[test]
fn a_surge_passes_at_the_rate_and_no_window_breaks_its_promise() {
    let report = figures(&program(), &["surge"]);
    let worst = |algorithm| {
        figures_of(&report, algorithm)["worst_window"]
            .as_u64()
            .unwrap()
    };
    assert!(worst("token_bucket") <= 200 + 100);
    assert!(worst("leaky_bucket") <= 100);
    assert!(worst("fixed_window") <= 2 * 100);
    assert!(worst("sliding_log") <= 100);
}

#[test]
fn the_leaky_bucket_never_exceeds_its_drain_rate() {
    let report = figures(&program(), &["drivers"]);
    let leaky = figures_of(&report, "leaky_bucket");
    assert_eq!(leaky["offered"], 300_000);
    assert!(leaky["worst_window"].as_u64().unwrap() <= 3_000);
    let max_delay = leaky["max_delay_seconds"].as_f64().unwrap();
    assert!(
        max_delay > 1.0 && max_delay <= 5_000.0 / 3_000.0,
        "{max_delay}"
    );
    assert!(
        figures_of(&report, "sliding_log")["worst_window"]
            .as_u64()
            .unwrap()
            <= 3_000
    );
    assert!(
        figures_of(&report, "token_bucket")["worst_window"]
            .as_u64()
            .unwrap()
            <= 5_000 + 3_000
    );
    assert!(figures_of(&report, "token_bucket")["max_delay_seconds"].is_null());
}

#[test]
fn every_request_is_admitted_or_denied() {
    for scenario in ["boundary", "burst-idle", "surge", "drivers"] {
        let report = figures(&program(), &[scenario]);
        for algorithm in ALGORITHMS {
            let part = figures_of(&report, algorithm);
            let figure = |name: &str| part[name].as_u64().unwrap();
            assert_eq!(
                figure("offered"),
                figure("admitted") + figure("denied"),
                "{scenario} {algorithm}"
            );
            assert!(
                figure("largest_burst") <= figure("worst_window"),
                "{scenario} {algorithm}"
            );
        }
    }
}

#[test]
fn figures_depend_on_the_seed_alone() {
    let program = program();
    let with = |seed| figures(&program, &["surge", "--seed", seed]);
    assert_eq!(with("7"), with("7"));
    assert_ne!(with("7")["algorithms"], with("8")["algorithms"]);
}

#[test]
fn all_five_are_derived_from_the_limit_that_is_given() {
    let report = figures(&program(), &["boundary", "--limit", "100/min burst 20"]);
    assert_eq!(
        figures_of(&report, "token_bucket")["limit"],
        "100/m burst 20"
    );
    assert_eq!(
        figures_of(&report, "leaky_bucket")["limit"],
        "100/m queue 20"
    );
    assert_eq!(figures_of(&report, "fixed_window")["admitted"], 200);
    assert_eq!(figures_of(&report, "sliding_log")["admitted"], 100);
}

#[test]
fn json_is_one_document_and_nothing_else() {
    let program = program();
    let text = simulate(&program, &["--json"]);
    let mut documents = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>();
    let report = documents.next().unwrap().unwrap();
    assert!(documents.next().is_none());
    assert_eq!(report["scenario"], "boundary");
    assert_eq!(report["limit"], "200/m burst 200");
    assert_eq!(report["window_seconds"], 60.0);
    assert_eq!(report["chart"]["svg"], "simulation-boundary.svg");
}

#[test]
fn the_table_has_a_row_per_algorithm_and_no_colour_in_a_pipe() {
    let text = simulate(&program(), &["drivers", "--no-chart"]);
    for algorithm in ALGORITHMS {
        assert!(
            text.lines()
                .any(|line| line.trim_start().starts_with(algorithm)),
            "{text}"
        );
    }
    assert!(
        text.contains("300,000")
            && text.contains("worst second")
            && text.contains("most in 100 ms")
    );
    assert!(!text.contains('\x1b'));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let program = program();
    let mut command = program.command(&["simulate", "--no-chart"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(output.stderr.is_empty());
}
