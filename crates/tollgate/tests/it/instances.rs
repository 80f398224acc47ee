//! Instances that count each other: each goes on with its part of the limits while the store is gone.

use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tollgate::store::{RedisConfig, RedisStore};
use tollgate::{Instances, Limiter, SharedConfig, Source};

use crate::proxy::{Proxy, Wire};
use crate::server::{Clustered, Guarded, Server};
use crate::support::{limit, one_of_each, run};

/// Short enough not to wait for long, long enough that a busy machine misses no three of them.
const EVERY: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(30);

/// As a process of its own: with its own runtime, which may end without a word.
struct Instance {
    limiter: Limiter,
    runtime: Runtime,
}

impl Instance {
    fn at(url: &str) -> Self {
        let runtime = runtime();
        let limiter = {
            let _inside = runtime.enter();
            over(url)
        };
        Self { limiter, runtime }
    }

    fn counts(&self) -> u32 {
        counts(&self.limiter)
    }

    fn admits_of_100(&self) -> usize {
        let hourly = limit("1/h burst 75");
        let admits = |_: &i32| {
            let decision = (self.runtime).block_on(self.limiter.check("key", &hourly, 1));
            assert_eq!(decision.source(), Source::Local);
            decision.allowed()
        };
        (0..100).filter(admits).count()
    }

    /// As a crash would.
    fn dies(self) {
        self.runtime.shutdown_background();
        std::mem::forget(self.limiter);
    }
}

fn runtime() -> Runtime {
    (Builder::new_multi_thread().worker_threads(1).enable_all())
        .build()
        .unwrap()
}

fn over(url: &str) -> Limiter {
    registered_every(EVERY, url)
}

fn registered_every(every: Duration, url: &str) -> Limiter {
    let config = RedisConfig::default().deadline(Duration::from_secs(5));
    let store = RedisStore::open(url, config).unwrap();
    let instances = Instances::counted().every(every);
    let config = SharedConfig::default().instances(instances);
    Limiter::builder(store).shared(config).build()
}

fn counts(limiter: &Limiter) -> u32 {
    limiter.shared_stats().unwrap().instances
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let patience = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < patience, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What the server says of itself, behind these words.
fn figure(server: &Server, ask: &str, words: &str) -> u64 {
    let said: String = server.ask(ask);
    let figure = said.split_once(words).map_or("0", |(_, rest)| rest);
    let digits = figure.split(|c: char| !c.is_ascii_digit()).next();
    digits.unwrap().parse().unwrap()
}

fn three_at(url: &str) -> Vec<Instance> {
    let three: Vec<Instance> = (0..3).map(|_| Instance::at(url)).collect();
    until("three count three", || all_count(&three, 3));
    three
}

fn all_count(all: &[Instance], count: u32) -> bool {
    all.iter().all(|one| one.counts() == count)
}

#[test]
fn three_share_what_one_would_have_while_the_store_is_gone() {
    let mut server = Server::start();
    let three = three_at(&server.url());
    server.kill();
    for one in &three {
        // 75 × 0.8 ÷ 3.
        assert_eq!(one.admits_of_100(), 20);
    }
    // A store that is gone counts nobody out.
    assert!(all_count(&three, 3));
}

#[test]
fn one_that_goes_takes_itself_off_the_list() {
    let mut server = Server::start();
    let mut three = three_at(&server.url());
    let listed = || server.ask::<u32>("ZCARD tollgate:{instances}");
    assert_eq!(listed(), 3);
    let Instance { limiter, runtime } = three.pop().unwrap();
    drop(limiter);
    until("it is off the list", || listed() == 2);
    drop(runtime);
    until("the others count two", || all_count(&three, 2));
    server.kill();
    // 75 × 0.8 ÷ 2.
    assert_eq!(three[0].admits_of_100(), 30);
}

#[test]
fn one_that_dies_is_counted_out_and_the_list_does_not_outlive_the_last() {
    let server = Server::start();
    let mut three = three_at(&server.url());
    three.pop().unwrap().dies();
    assert!(all_count(&three, 3));
    until("the others count two", || all_count(&three, 2));
    three.into_iter().for_each(Instance::dies);
    let keys = || server.ask::<u32>("DBSIZE");
    until("nothing is left", || keys() == 0);
}

/// They register every 10 ms, so the stall lasts for thirty of these.
#[test]
fn a_stall_of_an_instance_drops_it_from_no_count() {
    let server = Server::start();
    let instances: Vec<Instance> = (0..2)
        .map(|_| {
            let runtime = runtime();
            let _inside = runtime.enter();
            let limiter = registered_every(Duration::from_millis(10), &server.url());
            drop(_inside);
            Instance { limiter, runtime }
        })
        .collect();
    until("two count two", || all_count(&instances, 2));
    let (stalls, ended) = std::sync::mpsc::channel();
    // Its only thread, so nothing else runs in it.
    instances[0].runtime.spawn(async move {
        std::thread::sleep(Duration::from_millis(300));
        stalls.send(()).unwrap();
    });
    while ended.try_recv().is_err() {
        assert_eq!(instances[1].counts(), 2);
    }
}

#[test]
fn a_store_that_forgot_everything_counts_nobody_out() {
    let mut server = Server::start();
    let three = three_at(&server.url());
    server.restart();
    let listed = || server.ask::<u32>("ZCARD tollgate:{instances}");
    until("all are back on the list", || {
        assert!(all_count(&three, 3));
        listed() == 3
    });
    server.kill();
    assert_eq!(three[0].admits_of_100(), 20);
}

#[test]
fn one_that_never_heard_a_count_takes_itself_for_one_of_ten() {
    let mut server = Server::start();
    server.kill();
    let one = Instance::at(&server.url());
    assert_eq!(one.counts(), 10);
    // 75 × 0.8 ÷ 10.
    assert_eq!(one.admits_of_100(), 6);
}

#[test]
fn without_a_runtime_it_starts_with_the_first_request_and_again_in_another() {
    let server = Server::start();
    let limiter = over(&server.url());
    let seconds = limit("10/s");
    let listed = || server.ask::<u32>("ZCARD tollgate:{instances}");
    for _ in 0..2 {
        let runtime = runtime();
        assert!(
            runtime
                .block_on(limiter.check("key", &seconds, 1))
                .allowed()
        );
        until("it is on the list", || listed() == 1);
        until("it counts itself", || counts(&limiter) == 1);
        drop(runtime);
        until("it is forgotten", || listed() == 0);
    }
}

#[test]
fn what_is_no_count_changes_nothing() {
    let server = Server::start();
    let three = three_at(&server.url());
    // Somebody else's key where the list should be.
    server.tell("SET tollgate:{instances} nonsense");
    let one = &three[0];
    until("it was refused five times each", || {
        let decision = (one.runtime).block_on(one.limiter.check("key", &limit("100/s"), 1));
        assert_eq!(decision.source(), Source::Store);
        figure(&server, "INFO errorstats", "errorstat_WRONGTYPE:count=") >= 15
    });
    assert!(all_count(&three, 3));
    let stats = one.limiter.shared_stats().unwrap();
    assert_eq!((stats.breaker_opened, stats.by_fallback), (0, 0));
    server.tell("DEL tollgate:{instances}");
    let listed = || server.ask::<u32>("ZCARD tollgate:{instances}");
    until("all are back on the list", || listed() == 3);
}

#[test]
fn noise_instead_of_a_count_changes_nothing() {
    let server = Server::start();
    let runtime = runtime();
    let proxy = runtime.block_on(Proxy::before(server.socket()));
    let one = Instance::at(&proxy.url());
    until("it counts itself", || one.counts() == 1);
    proxy.becomes(Wire::Garbage);
    let another = Instance::at(&server.url());
    let beats = || figure(&server, "INFO commandstats", "cmdstat_zadd:calls=");
    let before = beats();
    until("four beats have passed", || {
        assert_eq!(one.counts(), 1);
        beats() >= before + 8
    });
    proxy.becomes(Wire::Good);
    until("they count each other", || {
        one.counts() == 2 && another.counts() == 2
    });
}

#[test]
fn in_a_cluster_they_count_each_other_as_well() {
    let clustered = Clustered::start();
    let mut three = three_at(&clustered.url());
    let Instance { limiter, runtime } = three.pop().unwrap();
    drop(limiter);
    until("the others count two", || all_count(&three, 2));
    drop(runtime);
}

#[test]
fn behind_sentinels_they_count_each_other_as_well() {
    let guarded = Guarded::start();
    let three = three_at(&guarded.url());
    three.into_iter().for_each(Instance::dies);
}

#[test]
fn a_count_beyond_all_reason_leaves_room_for_one() {
    let mut server = Server::start();
    server.kill();
    for count in [1_000_000, u32::MAX] {
        let store = RedisStore::open(&server.url(), RedisConfig::default()).unwrap();
        let config = SharedConfig::default().instances(Instances::Fixed(count));
        let limiter = Limiter::builder(store).shared(config).build();
        let limits = one_of_each().into_iter().chain([limit("1/h burst 10")]);
        for (i, limit) in limits.enumerate() {
            let check = || run(limiter.check(format!("key-{i}"), &limit, 1));
            assert!(check().allowed(), "{limit}");
            // A window may just have ended.
            let is_window = limit.rate().is_none();
            assert!(!check().allowed() || is_window, "{limit}");
        }
    }
}
