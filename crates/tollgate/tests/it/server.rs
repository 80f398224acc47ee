//! Real servers, each in a folder of its own, ended when the test is.

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
        let process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .args(["--unixsocket", "redis.sock", "--logfile", "log"])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server must be installed: `make test` sees to that");
        let server = Self { process, folder };
        server.wait_until_it_listens();
        server
    }

    fn wait_until_it_listens(&self) {
        let patience = Instant::now() + Duration::from_secs(20);
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            assert!(Instant::now() < patience, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn socket(&self) -> std::path::PathBuf {
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
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A store and the server it is alone on.
pub(crate) struct OwnRedis {
    store: RedisStore,
    _server: Server,
}

impl OwnRedis {
    pub(crate) fn start(clock: Clock) -> Self {
        let server = Server::start();
        let config = RedisConfig {
            clock: RedisClock::Simulated(clock),
            // What a decision is does not depend on how busy the machine is.
            deadline: Duration::from_secs(30),
            ..RedisConfig::default()
        };
        Self {
            store: RedisStore::open(&server.url(), config).unwrap(),
            _server: server,
        }
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
