//! Real servers, each in a folder of its own, ended when the test is.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(feature = "tls")]
use tollgate::store::RedisIdentity;
use tollgate::store::contract::{Charge, Refund, StoreOperations as Store, Taken};
use tollgate::store::{RedisClock, RedisConfig, RedisError, RedisStore, RedisTls};
use tollgate::{Bucket, Clock};
use tollgate_testing::ports::free_port;
use tollgate_testing::servers::{RedisAddress, RedisServer};

#[cfg(feature = "tls")]
use crate::certificates::Authority;

/// A redis-server behind a socket file, so that no two tests fight for a port.
pub(crate) struct Server(RedisServer);

impl Deref for Server {
    type Target = RedisServer;

    fn deref(&self) -> &RedisServer {
        &self.0
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut RedisServer {
        &mut self.0
    }
}

/// Which server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// The system's Redis, 7 or later.
    Current,
    /// The last before scripts had flags.
    SixTwo,
    Valkey,
}

impl Version {
    fn program(self) -> PathBuf {
        let name = match self {
            Self::Current => return "redis-server".into(),
            Self::SixTwo => "redis-6.2",
            Self::Valkey => "valkey",
        };
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/servers");
        let program = folder.join(name);
        assert!(
            program.exists(),
            "there is no {program:?}: run `make needs`"
        );
        program
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_version(Version::Current)
    }

    pub(crate) fn start_version(version: Version) -> Self {
        let (args, folder) = (args(version, &[]), tempfile::tempdir().unwrap());
        let program = version.program();
        Self(RedisServer::start_with(
            program,
            &args,
            RedisAddress::Socket,
            folder,
        ))
    }

    /// The same as another version, or with other settings. What it saved is still there.
    pub(crate) fn restart_as(&mut self, version: Version, settings: &[&str]) {
        self.restart_with(version.program(), &args(version, settings));
    }

    /// Runs a command on a connection of its own.
    pub(crate) fn tell(&self, words: &str) {
        self.ask::<redis::Value>(words);
    }

    pub(crate) fn ask<T: redis::FromRedisValue>(&self, words: &str) -> T {
        ask(&redis::Client::open(self.url()).unwrap(), words)
    }

    /// Whether it still reads its file.
    pub(crate) fn is_loading(&self) -> bool {
        self.ask::<String>("INFO persistence")
            .contains("\nloading:1")
    }
}

/// Runs a script that does not end by itself, so that the server answers nobody else but with BUSY.
pub(crate) fn keep_busy(server: &mut Server) {
    server.tell("CONFIG SET busy-reply-threshold 20");
    let url = server.url();
    std::thread::spawn(move || {
        let client = redis::Client::open(url).unwrap();
        let mut connection = client.get_connection().unwrap();
        // Ends when it is killed.
        let _ = redis::cmd("EVAL")
            .arg("while true do end")
            .arg(0)
            .query::<()>(&mut connection);
    });
}

/// SIGSTOP or SIGCONT.
pub(crate) fn send_signal(process: u32, signal: &str) {
    let process = process.to_string();
    let sent = Command::new("kill").args([signal, &process]).status();
    assert!(sent.unwrap().success());
}

fn args<'a>(version: Version, settings: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["--save", "", "--appendonly", "no", "--logfile", "log"];
    // 6.2 allows that without being asked.
    if version != Version::SixTwo {
        args.extend(["--enable-debug-command", "yes"]);
    }
    args.extend(settings);
    args
}

/// A primary, a replica and three sentinels.
pub(crate) struct Guarded {
    primary: TcpServer,
    replica: TcpServer,
    sentinels: [TcpServer; 3],
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
        Self::start_speaking(&Speech::Plain, replicas)
    }

    pub(crate) fn start_speaking(speech: &Speech, replicas: usize) -> Self {
        // Nodes that take longer than their time-out to greet each other, on a busy machine, never meet, and are waited for without end.
        let config = "cluster-enabled yes\ncluster-node-timeout 20000\n\
                      repl-diskless-sync-delay 0\nappendonly no\nsave \"\"\n";
        let nodes: Vec<TcpServer> = (0..3 * (1 + replicas))
            .map(|_| TcpServer::start_speaking(speech, config, &[]))
            .collect();
        let clustered = Self { nodes };
        let made = Command::new("timeout")
            .args(["60", "redis-cli"])
            .args(speech.cli_args())
            .current_dir(clustered.nodes[0].redis.folder())
            .args(["--cluster", "create"])
            .args(clustered.addresses())
            .args(["--cluster-replicas", &replicas.to_string(), "--cluster-yes"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        clustered.wait_until_all_are_well();
        clustered.tell_all("CONFIG SET cluster-node-timeout 1000");
        clustered
    }

    fn wait_until_all_are_well(&self) {
        let patience = Instant::now() + Duration::from_secs(30);
        let is_well = |node: &TcpServer| {
            let about: String = node.ask("CLUSTER INFO");
            let replication: String = node.ask("INFO replication");
            // A replica that never heard its primary will not take over.
            about.contains("cluster_state:ok") && !replication.contains("master_link_status:down")
        };
        while !self.nodes.iter().all(is_well) {
            assert!(Instant::now() < patience, "the cluster does not come up");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn addresses(&self) -> Vec<String> {
        let address = |node: &TcpServer| node.place();
        self.nodes.iter().map(address).collect()
    }

    pub(crate) fn url(&self) -> String {
        let scheme = self.nodes[0].speech.scheme();
        format!("{scheme}+cluster://{}", self.addresses().join(","))
    }

    /// The node with this slot, and another one.
    fn owner_and_other(&self, slot: u16) -> (&TcpServer, &TcpServer) {
        let owns = |node: &&TcpServer| {
            let mine: Vec<u16> = (slots_of(node).into_iter())
                .filter(|known| *known == slot)
                .collect();
            !mine.is_empty()
        };
        let owner = self.nodes.iter().find(owns).unwrap();
        let other = self.nodes.iter().find(|node| node.port() != owner.port());
        (owner, other.unwrap())
    }

    /// Moves a slot to another node while it is used, in the steps that resharding takes; `between` runs when it is half-way.
    pub(crate) fn move_slot(&self, slot: u16, mut between: impl FnMut()) {
        let (from, to) = self.owner_and_other(slot);
        let (from_id, to_id): (String, String) = (from.ask("CLUSTER MYID"), to.ask("CLUSTER MYID"));
        let tell = |node: &TcpServer, words: String| drop(node.ask::<redis::Value>(&words));
        tell(to, format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"));
        tell(from, format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"));
        between();
        let keys: Vec<String> = from.ask(&format!("CLUSTER GETKEYSINSLOT {slot} 10000"));
        for key in keys {
            tell(
                from,
                format!("MIGRATE 127.0.0.1 {} {key} 0 1000", to.port()),
            );
        }
        between();
        for node in [to, from] {
            tell(node, format!("CLUSTER SETSLOT {slot} NODE {to_id}"));
        }
    }

    pub(crate) fn slot_of(&self, key: &str) -> u16 {
        self.nodes[0].ask(&format!("CLUSTER KEYSLOT {key}"))
    }

    /// Whether any value was ever written.
    pub(crate) fn was_written(&self) -> bool {
        let called = |node: &TcpServer| node.ask::<String>("INFO commandstats");
        (self.nodes.iter()).any(|node| called(node).contains("cmdstat_set:"))
    }

    /// How often nodes answered with this error.
    pub(crate) fn said(&self, error: &str) -> u64 {
        let count = |node: &TcpServer| {
            let errors: String = node.ask("INFO errorstats");
            let (_, count) = errors.split_once(&format!("errorstat_{error}:count="))?;
            count.lines().next()?.parse::<u64>().ok()
        };
        self.nodes.iter().filter_map(count).sum()
    }

    /// Runs a command on every node.
    pub(crate) fn tell_all(&self, words: &str) {
        for node in &self.nodes {
            node.ask::<redis::Value>(words);
        }
    }

    /// The process that has this slot.
    pub(crate) fn owner_of(&self, slot: u16) -> u32 {
        self.owner_and_other(slot).0.redis.process_id()
    }

    /// Kills a node that has this slot, and waits until another one has it.
    pub(crate) fn kill_and_wait_for_another(&self, process: u32, slot: u16) {
        send_signal(process, "-KILL");
        let patience = Instant::now() + Duration::from_secs(30);
        let has_it = |node: &TcpServer| slots_of(node).contains(&slot);
        let others = || (self.nodes.iter()).filter(|node| node.redis.process_id() != process);
        while !others().any(has_it) {
            assert!(Instant::now() < patience, "nobody takes over");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs a command on the node of this process.
    pub(crate) fn tell(&self, process: u32, words: &str) {
        let node = (self.nodes.iter()).find(|node| node.redis.process_id() == process);
        node.unwrap().ask::<redis::Value>(words);
    }
}

/// The slots a node says are its own.
fn slots_of(node: &TcpServer) -> Vec<u16> {
    let nodes: String = node.ask("CLUSTER NODES");
    let own = nodes.lines().find(|line| line.contains("myself")).unwrap();
    (own.split(' ').skip(8))
        .filter(|range| !range.starts_with('['))
        .flat_map(|range| {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            from.parse::<u16>().unwrap()..=to.parse().unwrap()
        })
        .collect()
}

/// How servers are spoken to.
#[derive(Clone)]
pub(crate) enum Speech {
    Plain,
    /// Over TLS, with certificates by this authority for 127.0.0.1.
    #[cfg(feature = "tls")]
    Tls(Arc<Authority>),
}

impl Speech {
    fn scheme(&self) -> &'static str {
        match self {
            Self::Plain => "redis",
            #[cfg(feature = "tls")]
            Self::Tls(_) => "rediss",
        }
    }

    fn address(&self) -> RedisAddress {
        match self {
            Self::Plain => RedisAddress::Port(free_port()),
            #[cfg(feature = "tls")]
            Self::Tls(_) => RedisAddress::TlsPort(free_port()),
        }
    }

    /// What a server in this folder has to be told.
    fn server_args(&self, folder: &Path) -> &'static [&'static str] {
        // Only TLS needs the folder.
        let _ = folder;
        match self {
            Self::Plain => &[],
            #[cfg(feature = "tls")]
            Self::Tls(authority) => {
                authority.write(folder, &authority.vouch_for("127.0.0.1"));
                &TLS_ARGS
            }
        }
    }

    fn cli_args(&self) -> &'static [&'static str] {
        match self {
            Self::Plain => &[],
            #[cfg(feature = "tls")]
            Self::Tls(_) => &["--tls", "--cacert", "ca.pem"],
        }
    }

    fn client(&self, url: &str) -> redis::Client {
        match self {
            Self::Plain => redis::Client::open(url).unwrap(),
            #[cfg(feature = "tls")]
            Self::Tls(authority) => authority.client(url),
        }
    }
}

#[cfg(feature = "tls")]
const TLS_ARGS: [&str; 12] = [
    "--tls-ca-cert-file",
    "ca.pem",
    "--tls-cert-file",
    "certificate.pem",
    "--tls-key-file",
    "key.pem",
    "--tls-auth-clients",
    "no",
    "--tls-replication",
    "yes",
    "--tls-cluster",
    "yes",
];

/// A process that listens on a port of its own.
pub(crate) struct TcpServer {
    redis: RedisServer,
    speech: Speech,
}

impl Guarded {
    pub(crate) fn start() -> Self {
        Self::start_speaking(&Speech::Plain)
    }

    pub(crate) fn start_speaking(speech: &Speech) -> Self {
        let primary = TcpServer::start_speaking(speech, "", &[]);
        let primary_port = primary.port().to_string();
        let replicates = ["--replicaof", "127.0.0.1", &primary_port];
        let replica = TcpServer::start_speaking(speech, "", &replicates);
        let config = format!(
            "sentinel monitor gate 127.0.0.1 {primary_port} 2\n\
             sentinel down-after-milliseconds gate 500\n\
             sentinel failover-timeout gate 3000\n"
        );
        let sentinel = || TcpServer::start_speaking(speech, &config, &["--sentinel"]);
        let guarded = Self {
            primary,
            replica,
            sentinels: [sentinel(), sentinel(), sentinel()],
        };
        guarded.wait_until_they_know_each_other();
        guarded
    }

    fn wait_until_they_know_each_other(&self) {
        let patience = Instant::now() + Duration::from_secs(30);
        let knows_all = |sentinel: &TcpServer| {
            let about: HashMap<String, String> = sentinel.ask("SENTINEL MASTER gate");
            about["num-slaves"] == "1" && about["num-other-sentinels"] == "2"
        };
        while !self.sentinels.iter().all(knows_all) {
            assert!(Instant::now() < patience, "the sentinels do not meet");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> = (self.sentinels.iter())
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
            .collect();
        let scheme = self.primary.speech.scheme();
        format!("{scheme}+sentinel://{}/gate", hosts.join(","))
    }

    pub(crate) fn tell_primary(&self, words: &str) {
        self.primary.ask::<redis::Value>(words);
    }

    pub(crate) fn kill_the_primary(&mut self) {
        self.primary.redis.kill();
    }

    /// Until every sentinel names another primary, which knows that it is one.
    pub(crate) fn wait_for_another_primary(&self) {
        let patience = Instant::now() + Duration::from_secs(30);
        let names_another = |sentinel: &TcpServer| {
            let (_, port): (String, u16) = sentinel.ask("SENTINEL GET-MASTER-ADDR-BY-NAME gate");
            port == self.replica.port()
        };
        let is_primary =
            || (self.replica.ask::<String>("INFO replication")).contains("role:master");
        while !(self.sentinels.iter().all(names_another) && is_primary()) {
            assert!(Instant::now() < patience, "nobody takes over");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl TcpServer {
    pub(crate) fn start_speaking(speech: &Speech, config: &str, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config"), config).unwrap();
        let speaking = speech.server_args(folder.path());
        let args = [&["config", "--logfile", "log"], speaking, args].concat();
        Self {
            redis: RedisServer::start_with("redis-server", &args, speech.address(), folder),
            speech: speech.clone(),
        }
    }

    fn port(&self) -> u16 {
        self.redis.socket_addr().port()
    }

    /// Its address without a scheme.
    pub(crate) fn place(&self) -> String {
        self.redis.socket_addr().to_string()
    }

    pub(crate) fn url(&self) -> String {
        self.redis.url()
    }

    /// Runs a command on a connection of its own.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, words: &str) -> T {
        ask(&self.speech.client(&self.url()), words)
    }

    /// Shows another certificate from now on.
    #[cfg(feature = "tls")]
    pub(crate) fn show(&self, authority: &Authority, shown: &RedisIdentity) {
        authority.write(self.redis.folder(), shown);
        // It reads them again.
        self.ask::<redis::Value>("CONFIG SET tls-cert-file certificate.pem tls-key-file key.pem");
    }
}

fn ask<T: redis::FromRedisValue>(client: &redis::Client, words: &str) -> T {
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

/// A store at this address, under a name of its own.
pub(crate) fn store_at(url: &str, tls: RedisTls, prefix: &str, clock: Clock) -> RedisStore {
    let config = config(clock).prefix(prefix.to_owned()).tls(tls);
    RedisStore::open(url, config).unwrap()
}

/// The same with a bug: a place in its scripts, and what is there instead.
pub(crate) fn store_with_bug_at(url: &str, clock: Clock, bug: (&str, &str)) -> RedisStore {
    RedisStore::open_with_bug(url, config(clock), bug).unwrap()
}

impl OwnRedis {
    pub(crate) fn start(clock: Clock) -> Self {
        let server = Server::start();
        Self {
            store: RedisStore::open(&server.url(), config(clock)).unwrap(),
            server,
        }
    }

    /// One with a bug.
    pub(crate) fn start_with_bug(clock: Clock, bug: (&str, &str)) -> Self {
        let server = Server::start();
        Self {
            store: store_with_bug_at(&server.url(), clock, bug),
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
    RedisConfig::default()
        .clock(RedisClock::Simulated(clock))
        // What a decision is does not depend on how busy the machine is.
        .deadline(Duration::from_secs(30))
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
