//! A limiter goes on while its Redis is in trouble, within the bounds that docs/guarantees.md states, and comes back by itself.
//!
//! Each test drives one key from many callers through a fault of a real server, and gives what was admitted to the referee: where
//! several limiters share the server, what all of them admitted.

mod pauses;
mod recovery;
mod refunds;
mod scene;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tollgate::store::contract::{Charge, Refund, StoreOperations as _};
use tollgate::store::{RedisClock, RedisConfig, RedisStore};
use tollgate::{Bucket, Clock, Decision, Dimension, Limiter, Name, Request, Rule, Source};
use tollgate_referee::Bound;

use self::scene::{
    AND_ONE_FORGOTTEN, Asked, BURST, ONE, PATIENT, SEVERAL, STORE, STORE_AND_LOCAL, Scene, Seen,
    Setup, runtime, the_limit,
};
use crate::proxy::{Proxy, Wire};
use crate::server::{
    Clustered, Guarded, Server, Speech, TcpServer, Version, keep_busy, send_signal,
};
use crate::support::{clock, limit};

/// A server in trouble for a while: `trouble` begins it, `mend` ends it. The store fails in between.
fn through(
    server: &mut Server,
    trouble: impl FnOnce(&mut Server),
    mend: impl FnOnce(&mut Server),
    bound: (u64, u64),
) {
    let mut scene = Scene::before(server, SEVERAL);
    scene.go_on_until_the_store_is_back();
    scene.goes_on_without_the_store(|| trouble(server));
    mend(server);
    scene.go_on_until_the_store_is_back();
    scene.admitted_no_more_than(bound);
    scene.nobody_waited();
}

#[test]
fn sigkill_and_a_restart_with_nothing() {
    through(
        &mut Server::start(),
        |server| server.kill(),
        |server| _ = server.restart(),
        AND_ONE_FORGOTTEN,
    );
}

/// Reads its file for some seconds, in which it answers LOADING; and then knows what was used before.
#[test]
fn loading_after_a_restart() {
    const KEYS: u64 = 5_000;
    let mut server = Server::start();
    server.tell(&format!("DEBUG POPULATE {KEYS} padding 100"));
    let mut scene = Scene::before(&server, SEVERAL);
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
    scene.goes_on_without_the_store(|| {
        server.restart_as(Version::Current, &settings);
        assert!(server.is_loading());
    });
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
        scene.nobody_waited();
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
    through(
        &mut Server::start(),
        keep_busy,
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
    assert!(scene.seen.iter().all(Seen::is_by_store));
    scene.admitted_no_more_than(STORE);
    scene.nobody_waited();
}

#[test]
fn flushall_forgets_one_burst() {
    let server = Server::start();
    let mut scene = Scene::before(&server, PATIENT);
    scene.go_on_for(Duration::from_millis(400));
    server.tell("FLUSHALL");
    scene.go_on_for(Duration::from_millis(400));
    assert!(scene.seen.iter().all(Seen::is_by_store));
    scene.admitted_no_more_than((STORE.0 + BURST, STORE.1));
    scene.nobody_waited();
}

#[test]
fn flapping_admits_no_more_than_one_outage() {
    let mut server = Server::start();
    let mut scene = Scene::before(&server, SEVERAL);
    for _ in 0..4 {
        scene.go_on_for(Duration::from_millis(150));
        scene.goes_on_until_the_breakers_open(|| server.signal("-STOP"));
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
    let mut scene = Scene::at(runtime(), &guarded.url(), SEVERAL);
    scene.go_on_until_the_store_is_back();
    scene.goes_on_until_the_breakers_open(|| guarded.kill_the_primary());
    scene.go_on_until_the_store_is_back();
    // What the replica had not heard of is forgotten.
    scene.admitted_no_more_than(AND_ONE_FORGOTTEN);
    scene.nobody_waited();
}

/// A cluster, and the slot of the key that all callers use.
fn on(clustered: Clustered, setup: Setup) -> (Clustered, u16, Scene) {
    let slot = clustered.slot_of("tollgate:{key:key}");
    let mut scene = Scene::at(runtime(), &clustered.url(), setup);
    scene.go_on_until_the_store_is_back();
    (clustered, slot, scene)
}

#[test]
fn cluster_node_stopped_under_load() {
    let (clustered, slot, mut scene) = on(Clustered::start(), SEVERAL);
    let owner = clustered.owner_of(slot);
    scene.goes_on_without_the_store(|| send_signal(owner, "-STOP"));
    send_signal(owner, "-CONT");
    scene.go_on_until_the_store_is_back();
    scene.admitted_no_more_than(STORE_AND_LOCAL);
    scene.nobody_waited();
}

#[test]
fn cluster_node_killed_under_load() {
    let (clustered, slot, mut scene) = on(Clustered::start_with_replicas(1), SEVERAL);
    let owner = clustered.owner_of(slot);
    scene.goes_on_until_the_breakers_open(|| send_signal(owner, "-KILL"));
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
    let mut scene = Scene::at(runtime(), &clustered.url(), ONE);
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
    scene.nobody_waited();
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
    assert!(scene.seen.iter().all(Seen::is_by_store));
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
    let scene = Scene::at(runtime(), &clustered.url(), SEVERAL);
    let mut scene = scene.with_load(rules_of_one_slot, |limiter| {
        Box::pin(ask_for_one_slot(limiter)) as Asked<'_>
    });
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
    let (clustered, slot, mut scene) = on(Clustered::start(), SEVERAL);
    let owner = clustered.owner_of(slot);
    scene.goes_on_without_the_store(|| {
        clustered.tell(owner, &format!("CLUSTER DELSLOTS {slot}"));
    });
    clustered.tell(owner, &format!("CLUSTER ADDSLOTS {slot}"));
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
    let mut scene = Scene::at(runtime, &proxy.url(), SEVERAL);
    scene.go_on_until_the_store_is_back();
    scene.goes_on_without_the_store(|| proxy.becomes(wire));
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
    assert!(scene.seen.iter().all(Seen::is_by_store));
    scene.admitted_no_more_than(STORE);
    scene.nobody_waited();
}

/// A connection takes a walk to the server and back before the first check, and both together are too long here.
#[test]
fn connecting_may_take_longer_than_the_deadline() {
    let server = Server::start();
    let runtime = runtime();
    let proxy = runtime.block_on(Proxy::before(server.socket()));
    proxy.becomes(Wire::Slow(ONE.deadline * 2 / 3));
    let config = RedisConfig::default().deadline(ONE.deadline);
    let store = RedisStore::open(&proxy.url(), config).unwrap();
    let patience = Instant::now() + Duration::from_secs(20);
    while let Err(error) = runtime.block_on(store.peek(&[])) {
        assert!(Instant::now() < patience, "{error}");
    }
}

/// A server that takes connections and never says a word on them: no call is ever made, and the breaker opens all the same.
#[test]
fn a_connection_that_is_never_ready() {
    let mut server = Server::start();
    server.signal("-STOP");
    let mut scene = Scene::before(&server, SEVERAL);
    scene.goes_on_until_the_breakers_open(|| {});
    scene.admitted_no_more_than(STORE_AND_LOCAL);
    scene.nobody_waited();
    server.kill();
}

/// What a refund does to a log of many entries is done before the checks that wait behind it are too late.
#[test]
fn a_refund_of_a_long_log_holds_nobody_up() {
    const ENTRIES: u64 = 50_000;
    let server = Server::start();
    let clock = clock();
    let config = RedisConfig::default()
        .clock(RedisClock::Simulated(Clock::from(&clock)))
        .deadline(PATIENT.deadline);
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

/// What is said about a server at the start.
fn warnings(url: &str) -> String {
    let config = RedisConfig::default().deadline(PATIENT.deadline);
    let store = RedisStore::open(url, config).unwrap();
    let warnings = runtime().block_on(store.examine()).unwrap();
    let texts = warnings.iter().map(ToString::to_string);
    texts.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_server_that_would_break_promises_is_named_at_the_start() {
    let server = Server::start();
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

/// Settings and rights are each node's own: one that is wrong is found, whichever it is.
#[test]
fn any_node_that_would_break_promises_is_named_at_the_start() {
    let clustered = Clustered::start();
    clustered.tell_all("ACL SETUSER clerk on >secret ~* +@all");
    let url = clustered.url().replace("://", "://clerk:secret@");
    let is_said = || {
        let said = warnings(&url);
        assert!(!said.contains("secret"), "{said}");
        let forbids = |what: &str| said.contains("NOPERM") && said.contains(what);
        (said.contains("allkeys-lru"), forbids("evalsha"))
    };
    assert_eq!(is_said(), (false, false));
    let nodes = [0, 8_191, 16_383].map(|slot| clustered.owner_of(slot));
    assert!(nodes[0] != nodes[1] && nodes[1] != nodes[2] && nodes[2] != nodes[0]);
    for node in nodes {
        clustered.tell(node, "CONFIG SET maxmemory-policy allkeys-lru");
        assert_eq!(is_said(), (true, false));
        clustered.tell(node, "ACL SETUSER clerk -@scripting");
        assert_eq!(is_said(), (true, true));
        clustered.tell(node, "CONFIG SET maxmemory-policy noeviction");
        assert_eq!(is_said(), (false, true));
        clustered.tell(node, "ACL SETUSER clerk +@all");
        assert_eq!(is_said(), (false, false));
    }
    // Who may not even be asked hides nothing about the others.
    clustered.tell(nodes[0], "CONFIG SET maxmemory-policy allkeys-lru");
    clustered.tell(nodes[1], "ACL SETUSER clerk -info");
    let said = warnings(&url);
    assert!(
        said.contains("allkeys-lru") && said.contains("NOPERM"),
        "{said}"
    );
}
