//! A real Redis behind a socket file in a folder of its own, ended when the test is.

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
        let mut command = Command::new("redis-server");
        command
            .current_dir(folder.path())
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(folder.path().join("redis"));
        let process = command
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server must be installed: `make test` sees to that");
        let server = Self { process, folder };
        let patience = Instant::now() + Duration::from_secs(30);
        while server.ask(&["PING"]) != "PONG" {
            assert!(Instant::now() < patience, "redis does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("unix://{}", self.folder.path().join("redis").display())
    }

    /// Asks it as somebody with a tool of their own would.
    #[must_use]
    pub fn ask(&self, words: &[&str]) -> String {
        let socket = self.folder.path().join("redis");
        let mut command = Command::new("redis-cli");
        let output = command.arg("-s").arg(socket).args(words).output().unwrap();
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// Everything it holds: all keys, and all values as they are.
    #[must_use]
    pub fn everything(&self) -> String {
        let keys = self.ask(&["--scan"]);
        let values = keys.lines().map(|key| self.ask(&["--no-raw", "DUMP", key]));
        let values: String = values.collect();
        keys + &values
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
