//! Real servers, each in a folder of its own, ended when the test is.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate::store::{
    Charge, RedisClock, RedisConfig, RedisError, RedisStore, Refund, Store, Taken,
};
use tollgate::{Bucket, Clock};

/// A redis-server behind a socket file, so that no two tests fight for a port.
pub(crate) struct Server {
    process: Child,
    folder: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let process = spawn(folder.path());
        let server = Self { process, folder };
        server.wait_until_it_listens();
        server
    }

    /// Ends it as a crash would, and starts it again with nothing in it.
    pub(crate) fn restart(&mut self) {
        self.kill();
        // What is left of the one before would look like a server.
        let _ = std::fs::remove_file(self.socket());
        self.process = spawn(self.path());
        self.wait_until_it_listens();
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// SIGSTOP or SIGCONT.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Runs a command on a connection of its own.
    pub(crate) fn tell(&self, words: &str) {
        self.ask::<redis::Value>(words);
    }

    pub(crate) fn ask<T: redis::FromRedisValue>(&self, words: &str) -> T {
        ask(&self.url(), words)
    }

    fn wait_until_it_listens(&self) {
        let patience = Instant::now() + Duration::from_secs(20);
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            assert!(Instant::now() < patience, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn socket(&self) -> std::path::PathBuf {
        self.path().join("redis.sock")
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(folder: &Path) -> Child {
    Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no"])
        .args(["--unixsocket", "redis.sock", "--logfile", "log"])
        .args(["--enable-debug-command", "yes"])
        .current_dir(folder)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server must be installed: `make test` sees to that")
}

/// A primary, a replica and three sentinels.
pub(crate) struct Guarded {
    primary: TcpServer,
    /// Held so that they go on.
    _others: Vec<TcpServer>,
    sentinels: Vec<u16>,
}

/// A process that listens on a port of its own.
struct TcpServer {
    process: Child,
    port: u16,
    _folder: TempDir,
}

impl Guarded {
    pub(crate) fn start() -> Self {
        let primary = TcpServer::start("", &[]);
        let primary_port = primary.port.to_string();
        let replica = TcpServer::start("", &["--replicaof", "127.0.0.1", &primary_port]);
        let config = format!(
            "sentinel monitor gate 127.0.0.1 {primary_port} 2\n\
             sentinel down-after-milliseconds gate 500\n\
             sentinel failover-timeout gate 3000\n"
        );
        let sentinels = [(); 3].map(|()| TcpServer::start(&config, &["--sentinel"]));
        let guarded = Self {
            sentinels: sentinels.iter().map(|sentinel| sentinel.port).collect(),
            primary,
            _others: sentinels.into_iter().chain([replica]).collect(),
        };
        guarded.wait_until_they_know_each_other();
        guarded
    }

    fn wait_until_they_know_each_other(&self) {
        let patience = Instant::now() + Duration::from_secs(30);
        let knows_all = |port: &u16| {
            let about: HashMap<String, String> = ask_at(*port, "SENTINEL MASTER gate");
            about["num-slaves"] == "1" && about["num-other-sentinels"] == "2"
        };
        while !self.sentinels.iter().all(knows_all) {
            assert!(Instant::now() < patience, "the sentinels do not meet");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> = (self.sentinels.iter())
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        format!("redis+sentinel://{}/gate", hosts.join(","))
    }

    pub(crate) fn kill_the_primary(&mut self) {
        let _ = self.primary.process.kill();
    }
}

impl TcpServer {
    fn start(config: &str, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config"), config).unwrap();
        // Free a moment ago; servers of other tests ask the system in the same way and get others.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let process = Command::new("redis-server")
            .arg("config")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--logfile", "log"])
            .args(args)
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server must be installed: `make test` sees to that");
        let server = Self {
            process,
            port,
            _folder: folder,
        };
        let patience = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < patience, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(2));
        }
        server
    }
}

impl Drop for TcpServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn ask_at<T: redis::FromRedisValue>(port: u16, words: &str) -> T {
    ask(&format!("redis://127.0.0.1:{port}"), words)
}

fn ask<T: redis::FromRedisValue>(url: &str, words: &str) -> T {
    let client = redis::Client::open(url).unwrap();
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    for word in words {
        command.arg(word);
    }
    command
        .query(&mut client.get_connection().unwrap())
        .unwrap()
}

/// A store and the server it is alone on.
pub(crate) struct OwnRedis {
    store: RedisStore,
    server: Server,
}

impl OwnRedis {
    pub(crate) fn start(clock: Clock) -> Self {
        let server = Server::start();
        Self {
            store: RedisStore::open(&server.url(), config(clock)).unwrap(),
            server,
        }
    }

    /// One with a bug: a place in its scripts, and what is there instead.
    pub(crate) fn start_with_bug(clock: Clock, bug: (&str, &str)) -> Self {
        let server = Server::start();
        Self {
            store: RedisStore::open_with_bug(&server.url(), config(clock), bug).unwrap(),
            server,
        }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }
}

fn config(clock: Clock) -> RedisConfig {
    RedisConfig {
        clock: RedisClock::Simulated(clock),
        // What a decision is does not depend on how busy the machine is.
        deadline: Duration::from_secs(30),
        ..RedisConfig::default()
    }
}

impl Store for OwnRedis {
    type Error = RedisError;

    async fn take(&self, charges: &[Charge<'_>]) -> Result<Taken, RedisError> {
        self.store.take(charges).await
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Taken, RedisError> {
        self.store.peek(charges).await
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<(), RedisError> {
        self.store.refund(refunds).await
    }

    async fn reset(&self, buckets: &[Bucket<'_>]) -> Result<(), RedisError> {
        self.store.reset(buckets).await
    }
}
