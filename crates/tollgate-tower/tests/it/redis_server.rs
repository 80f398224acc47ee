//! A real Redis behind a socket file in a folder of its own, ended when the test is.

use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub(crate) struct RedisServer {
    process: Child,
    folder: TempDir,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("redis");
        let mut command = Command::new("redis-server");
        command
            .current_dir(folder.path())
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&socket);
        let process = command
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server must be installed: `make test` sees to that");
        let patience = Instant::now() + Duration::from_secs(30);
        while UnixStream::connect(&socket).is_err() {
            assert!(Instant::now() < patience, "redis does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { process, folder }
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.folder.path().join("redis").display())
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
