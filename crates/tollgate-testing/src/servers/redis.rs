//! A real Redis server in a folder of its own, ended with its owner.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::process::Process;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisAddress {
    /// At a socket file in its folder, so that no two tests fight for a port.
    Socket,
    /// At this port of 127.0.0.1.
    Port(u16),
    /// At this port of 127.0.0.1, over TLS.
    TlsPort(u16),
}

/// A redis-server.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    program: PathBuf,
    args: Vec<String>,
    address: RedisAddress,
    folder: TempDir,
}

impl RedisServer {
    /// Starts one that keeps nothing, and waits until it answers.
    #[must_use]
    pub fn start() -> Self {
        Self::start_at(RedisAddress::Socket)
    }

    /// The same at another address.
    #[must_use]
    pub fn start_at(address: RedisAddress) -> Self {
        let args = ["--save", "", "--appendonly", "no"];
        Self::start_with("redis-server", &args, address, tempfile::tempdir().unwrap())
    }

    /// Starts this program in this folder, with arguments beside those for the address. The first may be a configuration file.
    #[must_use]
    pub fn start_with(
        program: impl Into<PathBuf>,
        args: &[&str],
        address: RedisAddress,
        folder: TempDir,
    ) -> Self {
        let program = program.into();
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let server = Self {
            process: spawn(&program, &args, address, folder.path()),
            program,
            args,
            address,
            folder,
        };
        server.wait_until_it_answers();
        server
    }

    /// Kills it, as a crash would.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again, as after a crash. What it did not save is lost. Returns when it answered.
    pub fn restart(&mut self) -> Instant {
        self.kill();
        // What is left of the one before would look like a server.
        let _ = std::fs::remove_file(self.socket());
        self.process = spawn(&self.program, &self.args, self.address, self.folder());
        self.wait_until_it_answers()
    }

    /// Starts another program in its place, with other arguments.
    pub fn restart_with(&mut self, program: impl Into<PathBuf>, args: &[&str]) {
        self.program = program.into();
        self.args = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.restart();
    }

    /// Stops it with SIGSTOP, so that it accepts connections and never answers.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Sends it a signal, such as `-STOP`.
    pub fn signal(&self, signal: &str) {
        let id = self.process_id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().unwrap();
        assert!(sent.success(), "redis cannot be sent {signal}");
    }

    /// Its process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    fn wait_until_it_answers(&self) -> Instant {
        let deadline = Instant::now() + PATIENCE;
        while !self.answers() {
            assert!(Instant::now() < deadline, "redis does not answer");
            std::thread::sleep(Duration::from_millis(2));
        }
        Instant::now()
    }

    /// Whether it replies to PING, be it with an error. Over TLS, whether it listens.
    fn answers(&self) -> bool {
        match self.address {
            RedisAddress::Socket => UnixStream::connect(self.socket()).and_then(ping),
            RedisAddress::Port(_) => TcpStream::connect(self.socket_addr()).and_then(ping),
            RedisAddress::TlsPort(_) => TcpStream::connect(self.socket_addr()).map(drop),
        }
        .is_ok()
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        match self.address {
            RedisAddress::Socket => format!("unix://{}", self.socket().display()),
            RedisAddress::Port(port) => format!("redis://127.0.0.1:{port}"),
            RedisAddress::TlsPort(port) => format!("rediss://127.0.0.1:{port}"),
        }
    }

    /// The folder it runs in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its socket file, if it has one.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder().join("redis")
    }

    /// Its address, if it has a port.
    ///
    /// # Panics
    /// If it listens at a socket file.
    #[must_use]
    pub fn socket_addr(&self) -> SocketAddr {
        match self.address {
            RedisAddress::Socket => panic!("it has no port"),
            RedisAddress::Port(port) | RedisAddress::TlsPort(port) => {
                (Ipv4Addr::LOCALHOST, port).into()
            }
        }
    }

    /// Runs a command with redis-cli.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> String {
        let mut cli = Command::new("redis-cli");
        match self.address {
            RedisAddress::Socket => cli.arg("-s").arg(self.socket()),
            _ => cli.arg("-p").arg(self.socket_addr().port().to_string()),
        };
        cli.args(words);
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

fn ping(mut stream: impl Read + Write) -> io::Result<()> {
    stream.write_all(b"PING\r\n")?;
    stream.read_exact(&mut [0])
}

fn spawn(program: &Path, args: &[String], address: RedisAddress, folder: &Path) -> Process {
    let address = match address {
        RedisAddress::Socket => "--port 0 --unixsocket redis".to_owned(),
        RedisAddress::Port(port) => format!("--bind 127.0.0.1 --port {port}"),
        RedisAddress::TlsPort(port) => format!("--bind 127.0.0.1 --port 0 --tls-port {port}"),
    };
    // A configuration file comes first.
    let has_file = args.first().is_some_and(|arg| !arg.starts_with("--"));
    let (file, args) = args.split_at(usize::from(has_file));
    let mut command = Command::new(program);
    command.args(file).args(address.split(' ')).args(args);
    Process::spawn(command.current_dir(folder).stdout(Stdio::null())).unwrap()
}
