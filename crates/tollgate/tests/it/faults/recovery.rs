//! A store that is well again decides again within a second, whatever had been wrong, and whether or not anybody asks meanwhile.

use std::time::{Duration, Instant};

use tollgate::store::{RedisConfig, RedisStore};
use tollgate::{Limiter, Source};

use super::scene::{ONE, Scene, Setup, runtime};
use crate::proxy::{Proxy, Wire};
use crate::server::{Clustered, Guarded, Server, keep_busy};
use crate::support::{limit, one_instance, run};

/// What is promised for a store that was away for up to half a minute.
const BACK_WITHIN: Duration = Duration::from_secs(1);
/// A check may wait a little longer than usual, so that on a busy machine the probe does not miss its deadline.
const PATIENT_PROBE: Setup = Setup {
    deadline: Duration::from_millis(400),
    ..ONE
};

fn comes_back_soon<S>(
    server: S,
    url: impl FnOnce(&S) -> String,
    trouble: impl FnOnce(&mut S),
    mend: impl FnOnce(&mut S),
) {
    comes_back(PATIENT_PROBE, server, url, trouble, mend);
}

/// A server in trouble until the breaker is open, and then well again.
fn comes_back<S>(
    setup: Setup,
    mut server: S,
    url: impl FnOnce(&S) -> String,
    trouble: impl FnOnce(&mut S),
    mend: impl FnOnce(&mut S),
) {
    let scene = Scene::at(runtime(), &url(&server), setup);
    let limit = limit("1000/s burst 1000000");
    let source = || scene.check("key", &limit, 1).source();
    let patience = Instant::now() + Duration::from_secs(20);
    while source() != Source::Store {
        assert!(Instant::now() < patience, "the store never answered");
    }
    trouble(&mut server);
    let patience = Instant::now() + Duration::from_secs(20);
    while !scene.stats().breaker_is_open {
        assert!(Instant::now() < patience, "the breaker never opened");
        source();
    }
    mend(&mut server);
    let mended = Instant::now();
    // No check asks: it is probed in the background.
    while scene.stats().breaker_is_open {
        let waited = mended.elapsed();
        assert!(waited <= BACK_WITHIN, "not back after {waited:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    eprintln!("the store was back after {:?}", mended.elapsed());
    assert_eq!(source(), Source::Store);
}

/// In a runtime of one thread, tasks run only while a check is awaited, and checks wait for nothing while the breaker is open.
#[test]
fn back_in_a_runtime_that_runs_only_for_checks() {
    let mut server = Server::start();
    let config = RedisConfig::default().deadline(PATIENT_PROBE.deadline);
    let store = RedisStore::open(&server.url(), config).unwrap();
    let limiter = Limiter::builder(store).shared(one_instance()).build();
    let limit = limit("1000/s burst 1000000");
    let source = || run(limiter.check("key", &limit, 1)).source();
    server.kill();
    while !limiter.shared_stats().unwrap().breaker_is_open {
        assert_eq!(source(), Source::Local);
    }
    server.restart();
    let patience = Instant::now() + Duration::from_secs(20);
    while source() != Source::Store {
        assert!(Instant::now() < patience, "the store was never probed");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn back_soon_after_a_restart() {
    comes_back_soon(
        Server::start(),
        |server| server.url(),
        |server| server.kill(),
        |server| _ = server.restart(),
    );
}

#[test]
fn back_soon_after_silence() {
    comes_back_soon(
        Server::start(),
        |server| server.url(),
        |server| server.signal("-STOP"),
        |server| server.signal("-CONT"),
    );
}

#[test]
fn back_soon_after_refusals() {
    comes_back_soon(
        Server::start(),
        |server| server.url(),
        |server| server.tell("CONFIG SET maxmemory 1"),
        |server| server.tell("CONFIG SET maxmemory 0"),
    );
}

/// What was refused came over a connection that was well, and so it was kept: the probe finds it dead.
#[test]
fn back_soon_after_refusals_and_a_restart() {
    comes_back_soon(
        Server::start(),
        |server| server.url(),
        |server| server.tell("CONFIG SET maxmemory 1"),
        |server| _ = server.restart(),
    );
}

/// The same where a new connection takes longer to make than a check may wait.
#[test]
fn back_soon_over_a_connection_that_takes_its_time() {
    let setup = Setup {
        deadline: ONE.deadline,
        ..PATIENT_PROBE
    };
    let (wires, server) = (runtime(), Server::start());
    let proxy = wires.block_on(Proxy::before(server.socket()));
    comes_back(
        setup,
        server,
        |_| proxy.url(),
        |server| server.tell("CONFIG SET maxmemory 1"),
        |server| {
            server.restart();
            proxy.becomes(Wire::SlowAtFirst(setup.deadline * 2));
        },
    );
}

/// The same with a server that says that it is busy.
#[test]
fn back_soon_after_a_busy_server_and_a_restart() {
    comes_back_soon(
        Server::start(),
        |server| server.url(),
        keep_busy,
        |server| _ = server.restart(),
    );
}

/// The same behind Sentinels, where another server is the primary by then.
#[test]
fn back_soon_after_refusals_and_a_sentinel_failover() {
    comes_back_soon(
        Guarded::start(),
        Guarded::url,
        |guarded| guarded.tell_primary("CONFIG SET maxmemory 1"),
        |guarded| {
            guarded.kill_the_primary();
            guarded.wait_for_another_primary();
        },
    );
}

/// The same in a cluster, where another node has the slot by then.
#[test]
fn back_soon_after_refusals_and_a_node_that_is_gone() {
    let clustered = Clustered::start_with_replicas(1);
    let slot = clustered.slot_of("tollgate:{key:key}");
    let owner = clustered.owner_of(slot);
    comes_back_soon(
        clustered,
        Clustered::url,
        |clustered| clustered.tell(owner, "CONFIG SET maxmemory 1"),
        |clustered| clustered.kill_and_wait_for_another(owner, slot),
    );
}
