//! The access log while its file is moved away, as logrotate does.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use serde_json::Value;
use tollgate_testing::gateway::PLENTY;
use tollgate_testing::wait::until;
use tollgate_testing::{Gateway, Upstream, client};

use crate::kit;

const ROTATIONS: usize = 8;

/// A gateway that logs to `logs/access.log`.
fn logging_gateway() -> Gateway {
    let program = kit::program();
    std::fs::create_dir(program.folder().join("logs")).unwrap();
    let fields = "access_log: json, access_log_file: logs/access.log";
    Gateway::in_folder(program, Upstream::start(), fields, PLENTY)
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        text.is_empty() || text.ends_with('\n'),
        "an incomplete line"
    );
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The number of complete lines in a file that is being written.
fn lines_so_far(file: &Path) -> usize {
    let text = std::fs::read(file).unwrap_or_default();
    text.iter().filter(|byte| **byte == b'\n').count()
}

fn reopened(gateway: &Gateway) -> usize {
    gateway.log().matches("reopened the access log").count()
}

#[test]
fn rotation_under_traffic_loses_no_line() {
    let mut gateway = logging_gateway();
    let logs = gateway.program.folder().join("logs");
    let (is_over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    assert_eq!(client::get(gateway.address, "/").status, 200);
                    served.fetch_add(1, Relaxed);
                }
            });
        }
        let log = logs.join("access.log");
        for nth in 0..ROTATIONS {
            until("lines", || lines_so_far(&log) > 5);
            std::fs::rename(&log, logs.join(format!("access.log.{nth}"))).unwrap();
            gateway.signal("USR1");
            until("the new file", || reopened(&gateway) == nth + 1);
        }
        until("lines in the last file", || lines_so_far(&log) > 5);
        is_over.store(true, Relaxed);
    });
    // The last lines are written before it exits.
    gateway.running.stop();
    let files = (0..ROTATIONS).map(|nth| format!("access.log.{nth}"));
    let all = files.chain(["access.log".to_owned()]);
    let all: Vec<Value> = all.flat_map(|file| lines(&logs.join(file))).collect();
    let ids: HashSet<&str> = all
        .iter()
        .map(|line| line["request_id"].as_str().unwrap())
        .collect();
    assert_eq!(all.len(), served.load(Relaxed), "a line for each request");
    assert_eq!(ids.len(), all.len(), "and none twice");
    for line in &all {
        let seconds = |name: &str| {
            line[name]
                .as_f64()
                .unwrap_or_else(|| panic!("{name}: {line}"))
        };
        assert!(seconds("upstream_seconds") <= seconds("seconds"), "{line}");
    }
}

#[test]
fn without_a_new_file_the_old_one_is_kept() {
    let gateway = logging_gateway();
    let folder = gateway.program.folder();
    let moved = folder.join("moved");
    std::fs::rename(folder.join("logs"), &moved).unwrap();
    gateway.signal("USR1");
    gateway.wait_for_log("cannot reopen the access log");
    let get = || assert_eq!(client::get(gateway.address, "/").status, 200);
    get();
    until("a line", || lines_so_far(&moved.join("access.log")) == 1);
    // The file is opened although no request comes meanwhile.
    std::fs::create_dir(folder.join("logs")).unwrap();
    gateway.signal("USR1");
    let new = folder.join("logs/access.log");
    until("the new file", || new.exists());
    get();
    until("a line in it", || lines_so_far(&new) == 1);
    assert_eq!(lines_so_far(&moved.join("access.log")), 1);
}
