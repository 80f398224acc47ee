//! The access log of the real program while its file is moved away under it, as logrotate does.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use serde_json::Value;

use crate::served::Upstream;
use crate::serving::{Serving, ask, until};

const ROTATIONS: usize = 8;

fn serving(upstream: &Upstream) -> Serving {
    let config = format!(
        "
gateway:
  listen: 127.0.0.1:0
  upstreams: [{{ to: \"http://{}\" }}]
  access_log: json
  access_log_file: logs/access.log
log: {{ format: json }}
rules: [{{ id: everyone, per: [], limit: \"1000000/s\" }}]
",
        upstream.address
    );
    Serving::started(&config, |command| {
        let folder = command.get_current_dir().unwrap();
        std::fs::create_dir(folder.join("logs")).unwrap();
    })
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with('\n'), "a line is cut");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn opened_anew(serving: &Serving) -> usize {
    serving.log().matches("opened anew, as told").count()
}

#[test]
fn a_log_that_is_rotated_under_traffic_loses_no_line() {
    let upstream = Upstream::start();
    let mut serving = serving(&upstream);
    let gateway = serving.address("gateway");
    let logs = serving.program.folder().join("logs");
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    assert_eq!(ask(gateway, "GET", "/", &[]).unwrap().status, 200);
                    asked.fetch_add(1, Relaxed);
                }
            });
        }
        let log = logs.join("access.log");
        for nth in 0..ROTATIONS {
            until("lines", || lines_so_far(&log), |count| *count > 5);
            std::fs::rename(&log, logs.join(format!("access.log.{nth}"))).unwrap();
            serving.signal("USR1");
            until(
                "the new file",
                || opened_anew(&serving),
                |count| *count == nth + 1,
            );
        }
        until(
            "lines in the last",
            || lines_so_far(&log),
            |count| *count > 5,
        );
        is_over.store(true, Relaxed);
    });
    // What it writes last, it writes before it ends.
    serving.signal("TERM");
    assert!(serving.ended().success());
    let files = (0..ROTATIONS).map(|nth| format!("access.log.{nth}"));
    let all = files.chain(["access.log".to_owned()]);
    let all: Vec<Value> = all.flat_map(|file| lines(&logs.join(file))).collect();
    let ids: HashSet<&str> = all
        .iter()
        .map(|line| line["request_id"].as_str().unwrap())
        .collect();
    assert_eq!(all.len(), asked.load(Relaxed), "a line for each request");
    assert_eq!(ids.len(), all.len(), "and none twice");
    for line in &all {
        let took = |name: &str| {
            line[name]
                .as_f64()
                .unwrap_or_else(|| panic!("{name}: {line}"))
        };
        assert!(took("upstream_seconds") <= took("seconds"), "{line}");
    }
}

/// Of a file that is written to, so the last line may be half there.
fn lines_so_far(file: &Path) -> usize {
    let text = std::fs::read(file).unwrap_or_default();
    text.iter().filter(|byte| **byte == b'\n').count()
}

#[test]
fn where_there_can_be_no_new_file_the_old_one_goes_on() {
    let upstream = Upstream::start();
    let serving = serving(&upstream);
    let folder = serving.program.folder();
    let moved = folder.join("moved");
    std::fs::rename(folder.join("logs"), &moved).unwrap();
    serving.signal("USR1");
    serving.wait_for("cannot be opened anew");
    let get = || assert_eq!(serving.get("gateway", "/", &[]).status, 200);
    get();
    until(
        "a line",
        || lines_so_far(&moved.join("access.log")),
        |count| *count == 1,
    );
    // Nobody asks for anything meanwhile, and it is opened all the same.
    std::fs::create_dir(folder.join("logs")).unwrap();
    serving.signal("USR1");
    let new = folder.join("logs/access.log");
    until("the new file", || new.exists(), |exists| *exists);
    get();
    until("a line in it", || lines_so_far(&new), |count| *count == 1);
    assert_eq!(lines_so_far(&moved.join("access.log")), 1);
}
