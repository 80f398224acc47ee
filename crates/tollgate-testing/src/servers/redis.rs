//! A real Redis server behind a socket file in a folder of its own, ended with the test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A redis-server.
#[derive(Debug)]
pub struct RedisServer {
    process: Child,
    folder: TempDir,
}

impl RedisServer {
    /// Starts one, and waits until it answers.
    #[must_use]
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let process = spawn(folder.path());
        let server = Self { process, folder };
        server.wait_until_it_answers();
        server
    }

    /// Kills it, as a crash would.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts it again after a [`kill`](Self::kill), at the same address and empty.
    pub fn restart(&mut self) {
        self.process = spawn(self.folder.path());
        self.wait_until_it_answers();
    }

    /// Stops it with SIGSTOP, so that it accepts connections and never answers.
    pub fn pause(&self) {
        let id = self.process.id().to_string();
        let paused = Command::new("kill").args(["-STOP", &id]).status().unwrap();
        assert!(paused.success(), "redis cannot be paused");
    }

    fn wait_until_it_answers(&self) {
        let patience = Instant::now() + Duration::from_secs(30);
        while self.command(&["PING"]) != "PONG" {
            assert!(Instant::now() < patience, "redis does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Its socket file.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("redis")
    }

    /// Runs a command with redis-cli.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> String {
        let mut cli = Command::new("redis-cli");
        cli.arg("-s").arg(self.socket()).args(words);
        let output = cli.output().unwrap();
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// Everything it holds: all keys and values, as text.
    #[must_use]
    pub fn everything(&self) -> String {
        let keys = self.command(&["--scan"]);
        let values = keys
            .lines()
            .map(|key| self.command(&["--no-raw", "DUMP", key]));
        let values: String = values.collect();
        keys + &values
    }
}

fn spawn(folder: &Path) -> Child {
    let mut command = Command::new("redis-server");
    command
        .current_dir(folder)
        .args(["--port", "0", "--save", "", "--unixsocket"])
        .arg(folder.join("redis"));
    command
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server must be installed: `make test` sees to that")
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
