//! The examples, as programs that somebody runs.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use tokio::net::TcpStream;
use tollgate_testing::Process;

use crate::served::{fields, send_over};

/// Tests are built without examples, so it is built here if it is not as its source says: with the features of the whole workspace, as `make test` builds, so that all it depends on is there.
fn built(example: &str) -> PathBuf {
    let mut command = Command::new(env!("CARGO"));
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "build",
            "--quiet",
            "--locked",
            "--workspace",
            "--all-features",
        ])
        .args(["--message-format", "json", "--example", example]);
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    let lines = String::from_utf8(output.stdout).unwrap();
    let program = lines.lines().find_map(|line| {
        let said: Value = serde_json::from_str(line).unwrap();
        (said["target"]["name"] == example)
            .then(|| said["executable"].as_str().map(PathBuf::from))?
    });
    program.unwrap_or_else(|| panic!("{example} is not among what was built: {lines}"))
}

/// Ended when the test is.

#[tokio::test]
async fn the_example_for_axum_limits_a_caller() {
    let mut command = Command::new(built("axum"));
    let mut running = Process::spawn(command.stdout(Stdio::piped())).unwrap();
    // It says where it listens in what it tells people to try.
    let mut lines = BufReader::new(running.child().stdout.take().unwrap()).lines();
    let address: SocketAddr = lines
        .find_map(|line| {
            let line = line.unwrap();
            let (_, rest) = line.split_once("curl -i http://")?;
            rest.split('/').next()?.parse().ok()
        })
        .unwrap();
    let get = async |path| {
        let stream = TcpStream::connect(address).await.unwrap();
        send_over(stream, "GET", path, &[]).await
    };
    let first = get("/").await;
    assert_eq!(
        (first.status().as_u16(), &first.body()[..]),
        (200, &b"hello, 4 left\n"[..])
    );
    // One comes back each second: nobody is so slow that nothing is denied.
    let mut heard = Vec::new();
    for _ in 0..20 {
        heard.push(get("/report").await);
    }
    let passed = heard.iter().filter(|answer| answer.status() == 200);
    let denied: Vec<_> = heard
        .iter()
        .filter(|answer| answer.status() == 429)
        .collect();
    assert_eq!(passed.count() + denied.len(), heard.len());
    assert_eq!(heard[0].status(), 200, "it costs three of the four");
    assert!(denied.len() > 10, "{}", denied.len());
    for answer in denied {
        let wait = &fields(answer.headers(), "retry-after")[0];
        assert!(["1", "2", "3"].contains(&wait.as_str()), "{wait}");
    }
}

#[test]
fn the_example_for_tonic_limits_its_own_calls() {
    let output = Command::new(built("tonic")).output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 7, "{said}");
    for line in &lines[..5] {
        assert!(line.contains("it is well"), "{said}");
    }
    // One comes back each second, so the sixth may pass on a machine that is very busy.
    assert!(
        lines[6].contains("ResourceExhausted") && lines[6].contains("Try again in 1 second."),
        "{said}"
    );
}
