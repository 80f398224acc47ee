//! A redis-server on a loopback port, which can be killed and started again at the same address.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Result;
use crate::process::{Process, START_TIMEOUT, free_address};

/// A redis-server without persistence.
#[derive(Debug)]
pub(crate) struct Redis {
    process: Process,
    address: SocketAddr,
    folder: TempDir,
}

impl Redis {
    /// Starts a server and waits until it answers PING.
    pub(crate) fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let address = free_address()?;
        let process = spawn(address, &folder)?;
        let redis = Self {
            process,
            address,
            folder,
        };
        redis.wait_for_pong()?;
        Ok(redis)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Kills the server as a crash would. Its data is lost.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Starts an empty server at the same address. Returns when it first answered PING.
    pub(crate) fn start_again(&mut self) -> Result<Instant> {
        self.process = spawn(self.address, &self.folder)?;
        self.wait_for_pong()
    }

    fn wait_for_pong(&self) -> Result<Instant> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if ping(self.address).is_ok_and(|is_pong| is_pong) {
                return Ok(Instant::now());
            }
            if Instant::now() > deadline {
                return Err(format!("redis-server does not answer at {}", self.address).into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn spawn(address: SocketAddr, folder: &TempDir) -> Result<Process> {
    let mut command = Command::new("redis-server");
    command
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--port", &address.port().to_string()])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Process::spawn(&mut command)
}

fn ping(address: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"PING\r\n")?;
    let mut reply = [0; 7];
    stream.read_exact(&mut reply)?;
    Ok(&reply == b"+PONG\r\n")
}
