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

    pub(crate) fn signal(&self, signal: &str) {
        send_signal(self.process.id(), signal);
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

/// SIGSTOP or SIGCONT.
pub(crate) fn send_signal(process: u32, signal: &str) {
    let process = process.to_string();
    let sent = Command::new("kill").args([signal, &process]).status();
    assert!(sent.unwrap().success());
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

/// Three primaries that share the slots, each with a replica if that is wanted.
pub(crate) struct Clustered {
    nodes: Vec<TcpServer>,
}

impl Clustered {
    pub(crate) fn start() -> Self {
        Self::start_with_replicas(0)
    }

    /// Each primary with so many.
    pub(crate) fn start_with_replicas(replicas: usize) -> Self {
        let config = "cluster-enabled yes\ncluster-node-timeout 1000\n\
                      repl-diskless-sync-delay 0\nappendonly no\nsave \"\"\n";
        let nodes: Vec<TcpServer> = (0..3 * (1 + replicas))
            .map(|_| TcpServer::start(config, &[]))
            .collect();
        let clustered = Self { nodes };
        let made = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(clustered.addresses())
            .args(["--cluster-replicas", &replicas.to_string(), "--cluster-yes"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        clustered.wait_until_all_are_well();
        clustered
    }

    fn wait_until_all_are_well(&self) {
        let patience = Instant::now() + Duration::from_secs(30);
        let is_well = |node: &TcpServer| {
            let about: String = ask_at(node.port, "CLUSTER INFO");
            let replication: String = ask_at(node.port, "INFO replication");
            // A replica that never heard its primary will not take over.
            about.contains("cluster_state:ok") && !replication.contains("master_link_status:down")
        };
        while !self.nodes.iter().all(is_well) {
            assert!(Instant::now() < patience, "the cluster does not come up");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn addresses(&self) -> Vec<String> {
        let address = |node: &TcpServer| format!("127.0.0.1:{}", node.port);
        self.nodes.iter().map(address).collect()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+cluster://{}", self.addresses().join(","))
    }

    /// The node with this slot, and another one.
    fn owner_and_other(&self, slot: u16) -> (&TcpServer, &TcpServer) {
        let owns = |node: &&TcpServer| {
            let mine: Vec<u16> = (slots_of(node.port).into_iter())
                .filter(|known| *known == slot)
                .collect();
            !mine.is_empty()
        };
        let owner = self.nodes.iter().find(owns).unwrap();
        let other = self.nodes.iter().find(|node| node.port != owner.port);
        (owner, other.unwrap())
    }

    /// Moves a slot to another node while it is used, in the steps that resharding takes; `between` runs when it is half-way.
    pub(crate) fn move_slot(&self, slot: u16, mut between: impl FnMut()) {
        let (from, to) = self.owner_and_other(slot);
        let (from_id, to_id): (String, String) = (
            ask_at(from.port, "CLUSTER MYID"),
            ask_at(to.port, "CLUSTER MYID"),
        );
        let tell = |port, words: String| drop(ask_at::<redis::Value>(port, &words));
        tell(
            to.port,
            format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"),
        );
        tell(
            from.port,
            format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"),
        );
        between();
        let keys: Vec<String> = ask_at(from.port, &format!("CLUSTER GETKEYSINSLOT {slot} 100"));
        for key in keys {
            tell(
                from.port,
                format!("MIGRATE 127.0.0.1 {} {key} 0 1000", to.port),
            );
        }
        between();
        for node in [to, from] {
            tell(node.port, format!("CLUSTER SETSLOT {slot} NODE {to_id}"));
        }
    }

    pub(crate) fn slot_of(&self, key: &str) -> u16 {
        ask_at(self.nodes[0].port, &format!("CLUSTER KEYSLOT {key}"))
    }

    /// The process that has this slot.
    pub(crate) fn owner_of(&self, slot: u16) -> u32 {
        self.owner_and_other(slot).0.process.id()
    }

    /// Takes a slot away from its owner, so that nobody has it, and gives it back.
    pub(crate) fn without_slot(&self, slot: u16, meanwhile: impl FnOnce()) {
        let (owner, _) = self.owner_and_other(slot);
        let tell = |words: &str| {
            ask_at::<redis::Value>(owner.port, &format!("{words} {slot}"));
        };
        tell("CLUSTER DELSLOTS");
        meanwhile();
        tell("CLUSTER ADDSLOTS");
    }
}

/// The slots a node says are its own.
fn slots_of(port: u16) -> Vec<u16> {
    let nodes: String = ask_at(port, "CLUSTER NODES");
    let own = nodes.lines().find(|line| line.contains("myself")).unwrap();
    (own.split(' ').skip(8))
        .filter(|range| !range.starts_with('['))
        .flat_map(|range| {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            from.parse::<u16>().unwrap()..=to.parse().unwrap()
        })
        .collect()
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
        let port = free_port();
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

/// Free a moment ago, as is the one 10,000 above on which the nodes of a cluster talk.
fn free_port() -> u16 {
    let is_free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    loop {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        // The system's own choice is above 32,768, and so would be that of another test: below is ours.
        let port = 10_000 + port % 20_000;
        if is_free(port) && is_free(port + 10_000) {
            return port;
        }
    }
}

fn ask_at<T: redis::FromRedisValue>(port: u16, words: &str) -> T {
    ask(&format!("redis://127.0.0.1:{port}"), words)
}

fn ask<T: redis::FromRedisValue>(url: &str, words: &str) -> T {
    let client = redis::Client::open(url).unwrap();
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    // An empty word is an empty argument.
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

/// A store on a cluster, under a name of its own.
pub(crate) fn store_on(clustered: &Clustered, prefix: &str, clock: Clock) -> RedisStore {
    let config = RedisConfig {
        prefix: prefix.to_owned(),
        ..config(clock)
    };
    RedisStore::open(&clustered.url(), config).unwrap()
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

    /// To be shared with a limiter.
    pub(crate) fn store(&self) -> RedisStore {
        self.store.clone()
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
