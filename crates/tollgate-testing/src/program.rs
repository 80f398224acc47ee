//! The built program in a folder of its own: run once, or serving until the test ends.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tempfile::TempDir;

use crate::client::{Response, request};
use crate::wait::until_value;

/// The program, with a folder to run in that is removed with it.
/// A clone shares the folder.
#[derive(Clone, Debug)]
pub struct Program {
    binary: PathBuf,
    folder: Arc<TempDir>,
}

impl Program {
    /// The program at this path, usually `env!("CARGO_BIN_EXE_tollgate")`.
    #[must_use]
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self {
            // It does not run where this process does.
            binary: std::path::absolute(binary.into()).unwrap(),
            folder: Arc::new(tempfile::tempdir().unwrap()),
        }
    }

    /// The folder it runs in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A command of the program.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.current_dir(self.folder()).args(args);
        command
    }

    /// Runs a command.
    #[must_use]
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// What a command prints. It must succeed.
    #[must_use]
    pub fn stdout(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command prints, read as JSON. It must succeed.
    #[must_use]
    pub fn json(&self, args: &[&str]) -> Value {
        let stdout = self.stdout(args);
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
    }

    /// What a command reports on stderr. It must fail with this exit code and print nothing.
    #[must_use]
    pub fn failure(&self, exit_code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        let stderr = stderr(&output);
        assert_eq!(output.status.code(), Some(exit_code), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty(), "an error belongs on stderr");
        stderr
    }

    /// Runs a command with this on stdin.
    #[must_use]
    pub fn run_with_stdin(&self, args: &[&str], stdin: &str) -> Output {
        let mut command = self.command(args);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(stdin.as_bytes()).unwrap();
        drop(pipe);
        child.wait_with_output().unwrap()
    }

    /// Writes a file in the folder.
    pub fn write(&self, name: &str, content: &str) {
        // Renamed into place, as editors do: a program that watches the file must not see half of it.
        let whole = self.folder().join(format!(".{name}.new"));
        std::fs::write(&whole, content).unwrap();
        std::fs::rename(whole, self.folder().join(name)).unwrap();
    }

    /// The content of a file in the folder.
    #[must_use]
    pub fn read(&self, name: &str) -> String {
        let file = self.folder().join(name);
        std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    }

    /// The names of the files in the folder, sorted.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Serves by this configuration, and waits until it is ready. The log must be in JSON if addresses are asked for.
    #[must_use]
    pub fn serve(self, config: &str) -> Running {
        self.serve_with(config, |_| {})
    }

    /// The same, with changes to the command.
    #[must_use]
    pub fn serve_with(self, config: &str, prepare: impl FnOnce(&mut Command)) -> Running {
        self.write("tollgate.yaml", config);
        let running = Running::spawn(self, prepare);
        running.wait_for_log("ready");
        running
    }

    /// Serves by this configuration without waiting: it may never become ready.
    #[must_use]
    pub fn serve_without_waiting(self, config: &str) -> Running {
        self.write("tollgate.yaml", config);
        Running::spawn(self, |_| {})
    }

    /// Serves the demo, because there is no configuration.
    #[must_use]
    pub fn serve_demo(self) -> Running {
        let running = Running::spawn(self, |_| {});
        running.wait_for_log("ready");
        running
    }
}

/// What a command reported on stderr.
#[must_use]
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The program while it serves. It is killed when dropped, and so are the processes that replaced it.
#[derive(Debug)]
pub struct Running {
    /// The program and its folder.
    pub program: Program,
    child: Child,
    log: Arc<Mutex<String>>,
    stdout: Arc<Mutex<String>>,
}

impl Running {
    fn spawn(program: Program, prepare: impl FnOnce(&mut Command)) -> Self {
        let mut command = program.command(&["serve"]);
        prepare(&mut command);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let log = gathered(child.stderr.take().unwrap());
        let stdout = gathered(child.stdout.take().unwrap());
        Self {
            program,
            child,
            log,
            stdout,
        }
    }

    /// The log so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.lock().clone()
    }

    /// What it printed so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.lock().clone()
    }

    /// Waits until these words are in the log.
    pub fn wait_for_log(&self, words: &str) {
        let what = format!("{words:?} in the log");
        until_value(&what, || self.log(), |log| log.contains(words));
    }

    /// Where a listener listens, by the log.
    #[must_use]
    pub fn address(&self, listener: &str) -> SocketAddr {
        let log = self.log();
        let forms = [
            format!("\"listener\":\"{listener}\""),
            format!("listener=\"{listener}\""),
        ];
        let mut lines = log.lines();
        let line = lines.find(|line| forms.iter().any(|form| line.contains(form)));
        let line = line.unwrap_or_else(|| panic!("{listener} is not in the log: {log}"));
        let (_, address) = line.split_once("address").unwrap();
        let is_part = |c: &char| c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '[' | ']');
        let address: String = address
            .chars()
            .skip_while(|c| !c.is_ascii_digit() && *c != '[')
            .take_while(is_part)
            .collect();
        address.parse().unwrap()
    }

    /// The response of a listener to one GET. `headers` are whole lines.
    #[must_use]
    pub fn get(&self, listener: &str, path: &str, headers: &[&str]) -> Response {
        request(self.address(listener), "GET", path, headers, "").unwrap()
    }

    /// The response of the service to a POST of JSON. `headers` are whole lines.
    #[must_use]
    pub fn post(&self, path: &str, headers: &[&str], body: &str) -> Response {
        request(self.address("service"), "POST", path, headers, body).unwrap()
    }

    /// The result of `/v1/check`, which must answer 200.
    #[must_use]
    pub fn check(&self, body: &Value) -> Value {
        let response = self.post("/v1/check", &[], &body.to_string());
        assert_eq!(response.status, 200, "{response:?}");
        response.json()
    }

    /// The page of metrics.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.get("admin", "/metrics", &[]).text()
    }

    /// The value of a metric, with its labels if it has any.
    #[must_use]
    pub fn metric(&self, name: &str) -> f64 {
        let page = self.metrics();
        metric(&page, name).unwrap_or_else(|| panic!("there is no {name} in\n{page}"))
    }

    /// The value of a metric that is a whole number, with its labels if it has any.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        let page = self.metrics();
        let value = value(&page, name).unwrap_or_else(|| panic!("there is no {name} in\n{page}"));
        value.parse().unwrap()
    }

    /// Waits until a metric has an expected value, and returns it.
    pub fn until_metric(&self, name: &str, is_expected: impl Fn(f64) -> bool) -> f64 {
        until_value(name, || self.metric(name), |value| is_expected(*value))
    }

    /// How many decisions there were, by any rule with any outcome.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counters are whole"
    )]
    pub fn decisions(&self) -> u64 {
        let page = self.metrics();
        let counts = (page.lines())
            .filter(|line| line.starts_with("tollgate_decisions_total{"))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        counts.sum::<f64>() as u64
    }

    /// Sends it a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it has ended by itself.
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        let log = Arc::clone(&self.log);
        let look = || (self.child.try_wait().unwrap(), log.lock().len());
        let ended = until_value("the end of the program", look, |(status, _)| {
            status.is_some()
        });
        ended.0.unwrap()
    }

    /// Stops it with SIGTERM, and waits until it has ended well.
    pub fn stop(&mut self) {
        self.signal("TERM");
        let status = self.wait_for_exit();
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// All processes that logged their start.
    fn all_pids(&self) -> Vec<u32> {
        let log = self.log();
        let starts = log
            .lines()
            .filter(|line| line.contains("starting") && line.contains("pid"));
        let pid = |line: &str| -> Option<u32> {
            let (_, rest) = line.split_once("pid")?;
            let digits = rest.chars().skip_while(|c| !c.is_ascii_digit());
            let digits: String = digits.take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        };
        starts.filter_map(pid).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let has_ended = matches!(self.child.try_wait(), Ok(Some(_)));
        let own = self.child.id();
        // Processes that replaced it are not its children, so they are ended by their ids.
        for pid in self.all_pids() {
            if pid != own {
                signal(pid, "KILL");
            }
        }
        if !has_ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The value of a metric in a page of metrics.
#[must_use]
pub fn metric(page: &str, name: &str) -> Option<f64> {
    value(page, name)?.parse().ok()
}

fn value<'p>(page: &'p str, name: &str) -> Option<&'p str> {
    let mut lines = page.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

fn gathered(stream: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let gathering = Arc::clone(&text);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut text = gathering.lock();
            text.push_str(&line);
            text.push('\n');
        }
    });
    text
}

/// Sends a signal to a process.
pub fn signal(pid: u32, name: &str) {
    let kill = format!("kill -{name} {pid} 2>/dev/null");
    Command::new("sh").args(["-c", &kill]).status().unwrap();
}
