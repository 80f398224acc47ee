//! The chart: both files, complete, and where `--out` names them.

use std::fs;
use std::path::Path;

use super::simulate;
use crate::kit::program;

fn assert_is_png(path: &Path) {
    let png = fs::read(path).unwrap();
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    let side = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    // Two pixels for one.
    assert_eq!((side(16), side(20)), (2_400, 2_200));
    assert_eq!(&png[png.len() - 8..png.len() - 4], b"IEND");
}

/// All text in it, once it is known to be well-formed.
fn svg_text(path: &Path) -> String {
    let svg = fs::read_to_string(path).unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    assert_eq!(
        document.root_element().attribute("viewBox"),
        Some("0 0 1200 1100")
    );
    let texts = document
        .descendants()
        .filter(|node| node.has_tag_name("text"));
    texts
        .filter_map(|node| node.text())
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn every_scenario_draws_a_well_formed_chart() {
    let program = program();
    for scenario in ["boundary", "burst-idle", "surge", "drivers"] {
        simulate(&program, &[scenario]);
        let path = |ending: &str| {
            program
                .folder()
                .join(format!("simulation-{scenario}.{ending}"))
        };
        assert_is_png(&path("png"));
        let text = svg_text(&path("svg"));
        for name in [
            "Token bucket",
            "Leaky bucket",
            "Fixed window",
            "Sliding log",
            "Sliding counter",
        ] {
            assert!(text.contains(name), "{scenario}: {text}");
        }
        assert!(text.contains(&format!("tollgate simulate {scenario}")));
    }
    assert_eq!(program.files().len(), 8, "nothing else is left behind");
}

#[test]
fn the_boundary_chart_shows_the_time_and_the_figures() {
    let program = program();
    simulate(&program, &[]);
    let text = svg_text(&program.folder().join("simulation-boundary.svg"));
    for part in [
        "10:59:58",
        "11:00:00",
        "400 in the worst minute",
        "200 of 200",
        "0 of 200",
    ] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

#[test]
fn a_chart_is_written_to_out_and_folders_are_created() {
    let program = program();
    let text = simulate(&program, &["--out", "charts/2026/first.png"]);
    assert!(
        text.contains("charts/2026/first.svg and charts/2026/first.png"),
        "{text}"
    );
    assert_is_png(&program.folder().join("charts/2026/first.png"));
    simulate(&program, &["--out", "charts"]);
    svg_text(&program.folder().join("charts/simulation-boundary.svg"));
}

#[test]
fn without_a_chart_nothing_is_written() {
    let program = program();
    simulate(&program, &["--no-chart"]);
    assert!(program.files().is_empty());
}

#[test]
fn any_name_of_a_file_makes_a_well_formed_chart() {
    let program = program();
    let name = "a<b> & \"c\" 车.csv";
    program.write(name, "1\n2\n");
    simulate(&program, &["--csv", name, "--limit", "1/s"]);
    assert!(svg_text(&program.folder().join("simulation-csv.svg")).contains("a<b> & \"c\" 车.csv"));
    assert_is_png(&program.folder().join("simulation-csv.png"));
}

#[test]
fn odd_arrivals_make_a_chart_too() {
    let program = program();
    for (arrivals, limit) in [
        ("0\n", "1/s"),
        ("1767610800\n", "1000000 per 400d fixed_window"),
        ("0\n4503599627.370496\n", "7/ms"),
        ("1767610800,4000000000\n1767610800,4000000000\n", "1/day"),
        ("1.000001\n1.000002\n1.000003\n", "1 per 400d"),
    ] {
        program.write("odd.csv", arrivals);
        simulate(&program, &["--csv", "odd.csv", "--limit", limit]);
        assert_is_png(&program.folder().join("simulation-csv.png"));
        svg_text(&program.folder().join("simulation-csv.svg"));
    }
}
