//! A limiter goes on while its Redis is in trouble, within the bounds that docs/guarantees.md states, and comes back by itself.
//!
//! Each test drives one key from many callers through a fault of a real server, and gives what was admitted to the referee.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use tokio::runtime::{Builder, Runtime};
use tollgate::store::{Charge, RedisClock, RedisConfig, RedisStore, Refund, Store as _};
use tollgate::{
    BreakerConfig, Bucket, Clock, Decision, Dimension, Limit, Limiter, Name, Request, Rule,
    SharedConfig, SharedStats, Source,
};
use tollgate_referee::{Bound, Log};

use crate::panics::Witness;
use crate::proxy::{Proxy, Wire};
use crate::server::{Clustered, Guarded, Server, Speech, TcpServer, Version, send_signal};
use crate::support::{clock, limit};

const CALLERS: usize = 16;
const BURST: u64 = 100;
const PER_SECOND: u64 = 200;
/// What the store lets through.
const STORE: (u64, u64) = (BURST, PER_SECOND);
/// What the store and all instances without it let through together, whenever and however often it fails.
const STORE_AND_LOCAL: (u64, u64) = (BURST * 18 / 10, PER_SECOND * 18 / 10);
/// The same, and a server that forgot what was used.
const AND_ONE_FORGOTTEN: (u64, u64) = (STORE_AND_LOCAL.0 + BURST, STORE_AND_LOCAL.1);
/// Long enough for a busy machine, short enough for many in a test.
const DEADLINE: Duration = Duration::from_millis(150);
/// For tests in which the store never fails, however busy the machine is.
const PATIENT: Duration = Duration::from_secs(10);
const OPEN_FOR: Duration = Duration::from_millis(300);

/// One decision, as the caller saw it.
struct Seen {
    began: Instant,
    took: Duration,
    at_us: u64,
    allowed: bool,
    source: Source,
    /// Whether it met the log that is judged by itself.
    is_logged: bool,
}

impl Seen {
    fn new(began: Instant, decision: &Decision) -> Self {
        let at = decision.at().duration_since(UNIX_EPOCH).unwrap();
        Self {
            began,
            took: began.elapsed(),
            at_us: u64::try_from(at.as_micros()).unwrap(),
            allowed: decision.allowed(),
            source: decision.source(),
            is_logged: false,
        }
    }
}

/// Where the limiter's tasks run. None of them may panic: its callers would decide without the store, and nobody would hear of it.
struct Watched {
    runtime: Runtime,
    /// Behind the runtime, so that it speaks when all of them have ended.
    _witness: Witness,
}

impl Deref for Watched {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        &self.runtime
    }
}

struct Scene {
    runtime: Watched,
    limiter: Arc<Limiter>,
    load: Load,
    seen: Vec<Seen>,
}

/// What callers ask for.
#[derive(Clone, Copy)]
enum Load {
    /// All of one key.
    OneKey,
    /// Of one client, whose buckets lie under several keys of one slot, new ones again and again.
    OneSlot,
}

impl Scene {
    /// A limiter whose store is at this address.
    fn at(runtime: Watched, url: &str, deadline: Duration) -> Self {
        let config = RedisConfig {
            deadline,
            ..RedisConfig::default()
        };
        let store = RedisStore::open(url, config).unwrap();
        let config = SharedConfig {
            breaker: BreakerConfig {
                open_for: OPEN_FOR,
                ..BreakerConfig::default()
            },
            ..SharedConfig::default()
        };
        Self {
            runtime,
            limiter: Arc::new(Limiter::over(store, config)),
            load: Load::OneKey,
            seen: Vec::new(),
        }
    }

    fn before(server: &Server, deadline: Duration) -> Self {
        Self::at(runtime(), &server.url(), deadline)
    }

    /// Many callers go on and on for a while.
    fn go_on_for(&mut self, time: Duration) -> &[Seen] {
        let from = self.seen.len();
        let is_over = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (limiter, is_over) = (Arc::clone(&self.limiter), Arc::clone(&is_over));
                self.runtime.spawn(call_until(limiter, self.load, is_over))
            })
            .collect();
        self.runtime.block_on(async {
            tokio::time::sleep(time).await;
            is_over.store(true, Ordering::Relaxed);
            for caller in callers {
                // A panic in a caller is a panic here.
                self.seen.extend(caller.await.unwrap());
            }
        });
        &self.seen[from..]
    }

    /// Goes on while the store is in trouble: within a second it is not asked any more.
    fn goes_on_without_the_store(&mut self) {
        let from = Instant::now();
        let seen = self.go_on_for(Duration::from_millis(1_500));
        // What was on its way when it began may still be the store's word; from a second on nothing is.
        let mut late = (seen.iter())
            .filter(|seen| seen.began > from + Duration::from_secs(1))
            .peekable();
        assert!(late.peek().is_some());
        assert!(late.all(|seen| seen.source == Source::Local));
        assert!(self.breaker_opened() >= 1);
    }

    /// Goes on until the store is not asked any more. When that was is for the log, as machines differ.
    fn goes_on_until_the_breaker_opens(&mut self) {
        let (from, before) = (Instant::now(), self.breaker_opened());
        let is_open = |stats: SharedStats| stats.breaker_is_open || stats.breaker_opened > before;
        while !is_open(self.limiter.shared_stats().unwrap()) {
            assert!(
                from.elapsed() < Duration::from_secs(20),
                "the breaker never opened"
            );
            self.go_on_for(Duration::from_millis(10));
        }
        eprintln!("the breaker was open after {:?}", from.elapsed());
    }

    /// Goes on until the store decides again; says what was seen on the way.
    fn go_on_until_the_store_is_back(&mut self) {
        let patience = Instant::now() + OPEN_FOR + Duration::from_secs(20);
        while self
            .go_on_for(Duration::from_millis(200))
            .last()
            .is_none_or(|seen| !by_store(seen))
        {
            assert!(Instant::now() < patience, "the store was never asked again");
        }
    }

    /// The referee's word: never more than this burst and the rate.
    fn admitted_no_more_than(&self, (burst, count): (u64, u64)) {
        self.kept_within(Bound::Bucket {
            burst,
            count,
            period_us: 1_000_000,
        });
    }

    fn kept_within(&self, bound: Bound) {
        let admitted = self.seen.iter().filter(|seen| seen.allowed);
        let log = Log::new(admitted.map(|seen| (seen.at_us, 1)));
        let excess = log.excess(bound);
        assert_eq!(excess.tokens, 0, "{excess} beyond {bound:?}");
    }

    /// Nobody waited much longer than the deadline; how much exactly is for the log, as machines differ.
    fn nobody_waited(&self) {
        let mut took: Vec<Duration> = self.seen.iter().map(|seen| seen.took).collect();
        took.sort_unstable();
        let most = took[took.len() - 1];
        eprintln!(
            "{} decisions, p99.9 {:?}, longest {most:?}, deadline {DEADLINE:?}",
            took.len(),
            took[took.len() * 999 / 1_000],
        );
        assert!(most < DEADLINE + Duration::from_secs(2), "{most:?}");
    }

    fn check(&self, key: &str, limit: &Limit, cost: u64) -> Decision {
        (self.runtime).block_on(self.limiter.check(key, limit, cost))
    }

    /// A check for the referee's eyes, and who decided it.
    fn see(&mut self, key: &str, limit: &Limit) -> Source {
        let began = Instant::now();
        let seen = Seen::new(began, &self.check(key, limit, 1));
        let source = seen.source;
        self.seen.push(seen);
        source
    }

    fn breaker_opened(&self) -> u64 {
        self.limiter.shared_stats().unwrap().breaker_opened
    }
}

async fn call_until(limiter: Arc<Limiter>, load: Load, is_over: Arc<AtomicBool>) -> Vec<Seen> {
    let limit = the_limit();
    let mut seen = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let (decision, is_logged) = match load {
            Load::OneKey => (limiter.check("key", &limit, 1).await, false),
            Load::OneSlot => ask_for_one_slot(&limiter).await,
        };
        seen.push(Seen {
            is_logged,
            ..Seen::new(began, &decision)
        });
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    seen
}

fn the_limit() -> Limit {
    limit(&format!("{PER_SECOND}/s burst {BURST}"))
}

fn runtime() -> Watched {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let threads = format!("fault-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let mut builder = Builder::new_multi_thread();
    Watched {
        runtime: (builder.worker_threads(2).thread_name(&threads))
            .enable_all()
            .build()
            .unwrap(),
        _witness: Witness::of(&threads),
    }
}

fn by_store(seen: &Seen) -> bool {
    matches!(seen.source, Source::Store | Source::Remembered)
}

/// A server in trouble for a while: `trouble` begins it, `mend` ends it. The store fails in between.
fn through(
    server: &mut Server,
    trouble: impl FnOnce(&mut Server),
    mend: impl FnOnce(&mut Server),
    bound: (u64, u64),
) {
    let mut scene = Scene::before(server, DEADLINE);
    scene.go_on_until_the_store_is_back();
    trouble(server);
    scene.goes_on_without_the_store();
    mend(server);
    scene.go_on_until_the_store_is_back();
    scene.admitted_no_more_than(bound);
    scene.nobody_waited();
}

#[test]
fn sigkill_and_a_restart_with_nothing() {
    through(
        &mut Server::start(),
        Server::kill,
        Server::restart,
        AND_ONE_FORGOTTEN,
    );
}

/// Reads its file for some seconds, in which it answers LOADING; and then knows what was used before.
#[test]
fn loading_after_a_restart() {
    const KEYS: u64 = 5_000;
    let mut server = Server::start();
    server.tell(&format!("DEBUG POPULATE {KEYS} padding 100"));
    let mut scene = Scene::before(&server, DEADLINE);
    scene.go_on_until_the_store_is_back();
    // What has to be there afterwards, long after the callers' own bucket is full again.
    let hourly = limit("1/h burst 10");
    let all = scene.check("spent", &hourly, 10);
    assert_eq!((all.allowed(), all.source()), (true, Source::Store));
    server.tell("SAVE");
    let slowly = [
        ("--key-load-delay", "1000"),
        ("--loading-process-events-interval-bytes", "1024"),
    ];
    let settings: Vec<&str> = slowly
        .iter()
        .flat_map(|(name, value)| [*name, *value])
        .collect();
    server.restart_as(Version::Current, &settings);
    assert!(server.is_loading());
    scene.goes_on_without_the_store();
    // It did so all the time.
    assert!(server.is_loading());
    scene.go_on_until_the_store_is_back();
    assert!(!server.is_loading());
    scene.admitted_no_more_than(STORE_AND_LOCAL);
    scene.nobody_waited();
    // A single answer, which may take long on a busy machine.
    let more = Scene::before(&server, PATIENT).check("spent", &hourly, 1);
    assert_eq!((more.allowed(), more.source()), (false, Source::Store));
}

#[test]
fn sigstop_and_sigcont() {
    through(
        &mut Server::start(),
        |server| server.signal("-STOP"),
        |server| server.signal("-CONT"),
        STORE_AND_LOCAL,
    );
}

#[test]
fn out_of_memory() {
    through(
        &mut Server::start(),
        |server| server.tell("CONFIG SET maxmemory 1"),
        |server| server.tell("CONFIG SET maxmemory 0"),
        STORE_AND_LOCAL,
    );
}

#[test]
fn readonly() {
    through(
        &mut Server::start(),
        |server| server.tell("REPLICAOF 127.0.0.1 1"),
        |server| server.tell("REPLICAOF NO ONE"),
        STORE_AND_LOCAL,
    );
}

/// Where a server is that takes nothing down any more, another may be: its address is asked again, also if it is one whose scripts
/// wrap what they are told.
#[test]
fn readonly_and_another_in_its_place() {
    for version in [Version::Current, Version::SixTwo] {
        let (before, after) = (
            Server::start_version(version),
            Server::start_version(version),
        );
        let mut scene = Scene::before(&before, PATIENT);
        // Of a key by itself, as what was denied is not asked for.
        let source = |scene: &Scene| scene.check("another", &the_limit(), 1).source();
        assert_eq!(source(&scene), Source::Store);
        scene.go_on_for(Duration::from_millis(300));
        before.tell("REPLICAOF 127.0.0.1 1");
        std::fs::rename(after.socket(), before.socket()).unwrap();
        assert_eq!(source(&scene), Source::Local);
        assert_eq!(source(&scene), Source::Store);
        scene.go_on_for(Duration::from_millis(300));
        // The other one never heard of what was used.
        scene.admitted_no_more_than((STORE.0 + BURST, STORE.1));
    }
}

#[test]
fn noreplicas() {
    through(
        &mut Server::start(),
        |server| server.tell("CONFIG SET min-replicas-to-write 1"),
        |server| server.tell("CONFIG SET min-replicas-to-write 0"),
        STORE_AND_LOCAL,
    );
}

#[test]
fn busy() {
    let mut server = Server::start();
    server.tell("CONFIG SET busy-reply-threshold 20");
    let url = server.url();
    through(
        &mut server,
        |_| {
            std::thread::spawn(move || {
                let client = redis::Client::open(url).unwrap();
                let mut connection = client.get_connection().unwrap();
                // Ends when it is killed.
                let _ = redis::cmd("EVAL")
                    .arg("while true do end")
                    .arg(0)
                    .query::<()>(&mut connection);
            });
        },
        |server| server.tell("SCRIPT KILL"),
        STORE_AND_LOCAL,
    );
}

#[test]
fn script_flush_is_not_noticed() {
    let server = Server::start();
    let mut scene = Scene::before(&server, PATIENT);
    for _ in 0..5 {
        scene.go_on_for(Duration::from_millis(100));
        server.tell("SCRIPT FLUSH");
    }
    scene.go_on_for(Duration::from_millis(100));
    assert!(scene.seen.iter().all(by_store));
    scene.admitted_no_more_than(STORE);
}

#[test]
fn flushall_forgets_one_burst() {
    let server = Server::start();
    let mut scene = Scene::before(&server, PATIENT);
    scene.go_on_for(Duration::from_millis(400));
    server.tell("FLUSHALL");
    scene.go_on_for(Duration::from_millis(400));
    assert!(scene.seen.iter().all(by_store));
    scene.admitted_no_more_than((STORE.0 + BURST, STORE.1));
}

#[test]
fn flapping_admits_no_more_than_one_outage() {
    let mut server = Server::start();
    let mut scene = Scene::before(&server, DEADLINE);
    for _ in 0..4 {
        scene.go_on_for(Duration::from_millis(150));
        server.signal("-STOP");
        scene.goes_on_until_the_breaker_opens();
        scene.go_on_for(Duration::from_millis(200));
        server.signal("-CONT");
    }
    scene.go_on_until_the_store_is_back();
    scene.admitted_no_more_than(STORE_AND_LOCAL);
    scene.nobody_waited();
    server.kill();
}

#[test]
fn sentinel_failover_under_load() {
    let mut guarded = Guarded::start();
    let mut scene = Scene::at(runtime(), &guarded.url(), DEADLINE);
    scene.go_on_until_the_store_is_back();
    guarded.kill_the_primary();
    scene.goes_on_until_the_breaker_opens();
    scene.go_on_until_the_store_is_back();
    // What the replica had not heard of is forgotten.
    scene.admitted_no_more_than(AND_ONE_FORGOTTEN);
    scene.nobody_waited();
}

/// A cluster, and the slot of the key that all callers use.
fn on(clustered: Clustered, deadline: Duration) -> (Clustered, u16, Scene) {
    let slot = clustered.slot_of("tollgate:{key:key}");
    let mut scene = Scene::at(runtime(), &clustered.url(), deadline);
    scene.go_on_until_the_store_is_back();
    (clustered, slot, scene)
}

#[test]
fn cluster_node_stopped_under_load() {
    let (clustered, slot, mut scene) = on(Clustered::start(), DEADLINE);
    let owner = clustered.owner_of(slot);
    send_signal(owner, "-STOP");
    scene.goes_on_without_the_store();
    send_signal(owner, "-CONT");
    scene.go_on_until_the_store_is_back();
    scene.admitted_no_more_than(STORE_AND_LOCAL);
    scene.nobody_waited();
}

#[test]
fn cluster_node_killed_under_load() {
    let (clustered, slot, mut scene) = on(Clustered::start_with_replicas(1), DEADLINE);
    send_signal(clustered.owner_of(slot), "-KILL");
    scene.goes_on_until_the_breaker_opens();
    scene.go_on_until_the_store_is_back();
    // What the replica had not heard of is forgotten.
    scene.admitted_no_more_than(AND_ONE_FORGOTTEN);
    scene.nobody_waited();
}

/// One that says nothing any more, as when its machine is gone, and whose replica takes over. Asked so seldom that nobody is there when
/// connecting to it fails.
#[test]
fn cluster_node_gone_without_a_word() {
    let clustered = Clustered::start_with_replicas(1);
    clustered.tell_all("CONFIG SET cluster-require-full-coverage no");
    let (hung, well) = ("key", "other");
    let slot = |key: &str| clustered.slot_of(&format!("tollgate:{{key:{key}}}"));
    let owner = clustered.owner_of(slot(hung));
    assert_ne!(owner, clustered.owner_of(slot(well)));
    let mut scene = Scene::at(runtime(), &clustered.url(), DEADLINE);
    let (few, many) = (limit("1/h burst 10"), limit("1/s burst 1000"));
    let is_well = |scene: &Scene| scene.check(well, &many, 1).source() == Source::Store;
    let patience = Instant::now() + Duration::from_secs(20);
    while !(scene.see(hung, &few) == Source::Store && is_well(&scene)) {
        assert!(Instant::now() < patience, "the cluster does not answer");
    }
    let spend = |scene: &mut Scene| {
        for _ in 0..20 {
            scene.see(hung, &few);
        }
    };
    spend(&mut scene);
    send_signal(owner, "-STOP");
    let patience = Instant::now() + Duration::from_secs(30);
    while scene.see(hung, &few) != Source::Store {
        assert!(Instant::now() < patience, "who took over was never asked");
        assert!(is_well(&scene), "one node took another along");
        let rest = async { tokio::time::sleep(Duration::from_millis(1_300)).await };
        scene.runtime.block_on(rest);
    }
    spend(&mut scene);
    // 1.8 times the limit, and what the replica had not heard of.
    scene.kept_within(Bound::Bucket {
        burst: 18 + 10,
        count: 18,
        period_us: 36_000_000_000,
    });
    send_signal(owner, "-CONT");
}

/// Nodes say where slots are in ways of their own.
#[test]
fn cluster_nodes_without_a_name_and_with_a_long_one() {
    let config = "cluster-enabled yes\nappendonly no\nsave \"\"\n";
    let announced: &[&str] = &["--bind", "127.0.0.1", "::1", "--cluster-announce-ip", "::1"];
    for args in [&[], announced] {
        let node = TcpServer::start_speaking(&Speech::Plain, config, args);
        node.ask::<redis::Value>("CLUSTER ADDSLOTSRANGE 0 16383");
        let patience = Instant::now() + Duration::from_secs(20);
        while !(node.ask::<String>("CLUSTER INFO")).contains("cluster_state:ok") {
            assert!(Instant::now() < patience, "the cluster does not come up");
            std::thread::sleep(Duration::from_millis(50));
        }
        let url = format!("redis+cluster://{}", node.place());
        let scene = Scene::at(runtime(), &url, PATIENT);
        let decision = scene.check("key", &the_limit(), 1);
        assert_eq!(decision.source(), Source::Store, "{args:?}");
    }
}

#[test]
fn live_resharding_under_load() {
    let (clustered, slot, mut scene) = on(Clustered::start(), PATIENT);
    for _ in 0..4 {
        clustered.move_slot(slot, || {
            scene.go_on_for(Duration::from_millis(150));
        });
        scene.go_on_for(Duration::from_millis(150));
    }
    // No decision was lost, and none was charged twice or not at all.
    assert!(scene.seen.iter().all(by_store));
    scene.admitted_no_more_than(STORE);
    scene.nobody_waited();
}

/// All of a client lies in one slot, and each session under a key of its own; logs have another one for their entries.
fn rules_of_one_slot() -> [Rule; 3] {
    let rule = |id, limit| Rule::new(id, limit).unwrap();
    let session = [Dimension::Client, Dimension::Attribute(session())];
    [
        rule("client", the_limit()).per([Dimension::Client]),
        rule("session", limit("1/m burst 1000")).per(session),
        // Only for some.
        rule("log", limit("50 per 1s sliding_log"))
            .per(session)
            .plan("log"),
    ]
}

fn session() -> Name {
    Name::new("session").unwrap()
}

/// A request of a session that was there before, or of a new one, every third with a log; and whether it met the old session's log.
async fn ask_for_one_slot(limiter: &Limiter) -> (Decision, bool) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let (is_new, is_logged, new) = (n.is_multiple_of(10), n.is_multiple_of(3), n.to_string());
    let mut request = Request::new()
        .client("client")
        .attribute(session(), if is_new { &new } else { "old" });
    if is_logged {
        request = request.plan("log");
    }
    (limiter.decide(&request).await, is_logged && !is_new)
}

/// Some keys of a call have moved and others have not, or are nowhere yet: then no node can answer it (TRYAGAIN), and as long as this
/// lasts the limiter may go on without the store.
#[test]
fn live_resharding_of_keys_that_lie_together() {
    let clustered = Clustered::start();
    let slot = clustered.slot_of("tollgate:{client:client}");
    let mut scene = Scene::at(runtime(), &clustered.url(), DEADLINE);
    let limiter = Arc::into_inner(scene.limiter).unwrap();
    scene.limiter = Arc::new(limiter.with_rules(rules_of_one_slot()).unwrap());
    scene.load = Load::OneSlot;
    scene.go_on_until_the_store_is_back();
    for _ in 0..2 {
        clustered.move_slot(slot, || {
            scene.go_on_for(Duration::from_millis(300));
        });
        scene.go_on_until_the_store_is_back();
    }
    assert!(clustered.said("TRYAGAIN") > 0, "that was no test");
    let mut seen = scene.go_on_for(Duration::from_millis(300)).iter();
    assert!(seen.any(|seen| seen.is_logged && seen.source == Source::Store));
    scene.admitted_no_more_than(STORE_AND_LOCAL);
    scene.nobody_waited();
    scene.seen.retain(|seen| seen.is_logged);
    scene.kept_within(Bound::AnyWindow {
        limit: 50 * 18 / 10,
        window_us: 1_000_000,
    });
}

#[test]
fn clusterdown() {
    let (clustered, slot, mut scene) = on(Clustered::start(), DEADLINE);
    clustered.without_slot(slot, || {
        scene.goes_on_without_the_store();
    });
    scene.go_on_until_the_store_is_back();
    // A node drops the keys of a slot that is taken from it.
    scene.admitted_no_more_than(AND_ONE_FORGOTTEN);
    scene.nobody_waited();
}

/// The same through a wire that is bad while the server is well.
fn through_a_wire(wire: Wire) {
    let bound = STORE_AND_LOCAL;
    let server = Server::start();
    let runtime = runtime();
    let proxy = runtime.block_on(Proxy::before(server.socket()));
    let mut scene = Scene::at(runtime, &proxy.url(), DEADLINE);
    scene.go_on_until_the_store_is_back();
    proxy.becomes(wire);
    scene.goes_on_without_the_store();
    proxy.becomes(Wire::Good);
    scene.go_on_until_the_store_is_back();
    scene.admitted_no_more_than(bound);
    scene.nobody_waited();
}

#[test]
fn latency_beyond_the_deadline() {
    through_a_wire(Wire::Slow(Duration::from_secs(5)));
}

#[test]
fn half_open_connection() {
    through_a_wire(Wire::Dead);
}

#[test]
fn cut_in_the_middle_of_a_reply() {
    through_a_wire(Wire::CutInReply);
}

#[test]
fn reply_swallowed_after_execution() {
    through_a_wire(Wire::SwallowsReplies);
}

#[test]
fn garbage_instead_of_a_reply() {
    through_a_wire(Wire::Garbage);
}

#[test]
fn latency_within_the_deadline_is_only_slow() {
    let server = Server::start();
    let runtime = runtime();
    let proxy = runtime.block_on(Proxy::before(server.socket()));
    let mut scene = Scene::at(runtime, &proxy.url(), PATIENT);
    scene.go_on_for(Duration::from_millis(200));
    proxy.becomes(Wire::Slow(Duration::from_millis(50)));
    scene.go_on_for(Duration::from_millis(800));
    assert!(scene.seen.iter().all(by_store));
    scene.admitted_no_more_than(STORE);
}

/// A connection takes a walk to the server and back before the first check, and both together are too long here.
#[test]
fn connecting_may_take_longer_than_the_deadline() {
    let server = Server::start();
    let runtime = runtime();
    let proxy = runtime.block_on(Proxy::before(server.socket()));
    proxy.becomes(Wire::Slow(DEADLINE * 2 / 3));
    let config = RedisConfig {
        deadline: DEADLINE,
        ..RedisConfig::default()
    };
    let store = RedisStore::open(&proxy.url(), config).unwrap();
    let patience = Instant::now() + Duration::from_secs(20);
    while let Err(error) = runtime.block_on(store.peek(&[])) {
        assert!(Instant::now() < patience, "{error}");
    }
}

/// What a refund does to a log of many entries is done before the checks that wait behind it are too late.
#[test]
fn a_refund_of_a_long_log_holds_nobody_up() {
    const ENTRIES: u64 = 50_000;
    let server = Server::start();
    let clock = clock();
    let config = RedisConfig {
        clock: RedisClock::Simulated(Clock::from(&clock)),
        deadline: PATIENT,
        ..RedisConfig::default()
    };
    let store = RedisStore::open(&server.url(), config).unwrap();
    let (runtime, limit) = (runtime(), limit("1000000 per 1d sliding_log"));
    let bucket = Bucket::of_key(b"key");
    let charge = Charge {
        bucket,
        limit: &limit,
        cost: 1,
        shadow: false,
    };
    let mut charged_at_us = 0;
    for _ in 0..ENTRIES {
        clock.advance(Duration::from_micros(1));
        let taken = runtime.block_on(store.take(&[charge])).unwrap();
        charged_at_us = taken.at_us;
    }
    server.tell("CONFIG RESETSTAT");
    let refund = Refund {
        bucket,
        limit: &limit,
        cost: 1,
        charged_at_us,
    };
    runtime.block_on(store.refund(&[refund])).unwrap();
    let peeked = runtime.block_on(store.peek(&[charge])).unwrap();
    assert_eq!(
        peeked.outcomes[0].remaining,
        1_000_000 - ENTRIES + 1,
        "given back"
    );
    let calls: String = server.ask("INFO commandstats");
    let (_, reads) = calls.split_once("cmdstat_getrange:calls=").unwrap();
    let reads: u64 = reads.split(',').next().unwrap().parse().unwrap();
    assert!(reads < 200, "{reads} reads");
}

#[test]
fn a_server_that_would_break_promises_is_named_at_the_start() {
    let server = Server::start();
    let warnings = |url: &str| {
        let config = RedisConfig {
            deadline: Duration::from_secs(5),
            ..RedisConfig::default()
        };
        let store = RedisStore::open(url, config).unwrap();
        let warnings = runtime().block_on(store.examine()).unwrap();
        let texts = warnings.iter().map(ToString::to_string);
        texts.collect::<Vec<_>>().join("\n")
    };
    assert!(!warnings(&server.url()).contains("evicts"));
    server.tell("CONFIG SET maxmemory-policy allkeys-lru");
    assert!(warnings(&server.url()).contains("allkeys-lru"));
    server.tell("ACL SETUSER clerk on >secret ~* +@all -@scripting");
    let as_clerk = format!("{}?user=clerk&pass=secret", server.url());
    let said = warnings(&as_clerk);
    assert!(
        said.contains("+evalsha") && said.contains("NOPERM"),
        "{said}"
    );
    assert!(!said.contains("secret"));
    let as_stranger = format!("{}?user=clerk&pass=guess", server.url());
    let said = warnings(&as_stranger);
    assert!(
        said.contains("WRONGPASS") && !said.contains("guess"),
        "{said}"
    );
    server.tell("REPLICAOF 127.0.0.1 1");
    assert!(warnings(&server.url()).contains("replica"));
}
