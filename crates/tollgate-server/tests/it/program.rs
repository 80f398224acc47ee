//! Runs the real binary in a temporary folder.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A folder to run in, gone when the test ends.
pub(crate) struct Program(TempDir);

impl Program {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Any command of the program.
    pub(crate) fn bare(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.current_dir(self.folder()).args(args);
        command
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command
            .current_dir(self.folder())
            .arg("simulate")
            .args(args);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// What it prints; it must succeed.
    pub(crate) fn text(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The figures, without a chart.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let text = self.text(&[args, &["--json", "--no-chart"]].concat());
        serde_json::from_str(&text).unwrap()
    }

    /// What it says when it refuses, which must be with this exit code.
    pub(crate) fn refusal(&self, exit_code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(
            output.status.code(),
            Some(exit_code),
            "{args:?}: {}",
            stderr(&output)
        );
        assert!(output.stdout.is_empty(), "an error belongs on stderr");
        stderr(&output)
    }

    /// Runs with this on stdin.
    pub(crate) fn run_with_stdin(&self, args: &[&str], stdin: &str) -> Output {
        let mut command = self.command(args);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(stdin.as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        // At once, as editors do it: a program that watches the file is not to see the half of it.
        let whole = self.folder().join(format!(".{name}.new"));
        std::fs::write(&whole, content).unwrap();
        std::fs::rename(whole, self.folder().join(name)).unwrap();
    }

    /// The names in the folder, in order.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// One algorithm's part of a report.
pub(crate) fn of<'a>(report: &'a Value, algorithm: &str) -> &'a Value {
    let algorithms = report["algorithms"].as_array().unwrap();
    let found = algorithms
        .iter()
        .find(|part| part["algorithm"] == algorithm);
    found.unwrap_or_else(|| panic!("{algorithm} is not in the report"))
}
