//! A store that is well again decides again within two seconds of the first check that asks it, whatever had been wrong.

use std::time::{Duration, Instant};

use tollgate::Source;

use super::scene::{ONE, Scene, Setup, runtime};
use crate::proxy::{Proxy, Wire};
use crate::server::{Clustered, Guarded, Server, keep_busy};
use crate::support::limit;

/// What is promised.
const BACK_WITHIN: Duration = Duration::from_secs(2);
/// One that stays open for longer than that: whoever asks again only when the breaker lets the next one ask is too late. A check may wait
/// a little longer than usual, so that on a busy machine it is not the probe that fails.
const STAYS_OPEN: Setup = Setup {
    deadline: Duration::from_millis(500),
    open_for: Duration::from_secs(3),
    ..ONE
};

fn comes_back_soon<S>(
    server: S,
    url: impl FnOnce(&S) -> String,
    trouble: impl FnOnce(&mut S),
    mend: impl FnOnce(&mut S),
) {
    comes_back(STAYS_OPEN, server, url, trouble, mend);
}

/// A server in trouble until the breaker is open, and well again before somebody asks.
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
    // The store may be asked from then on at the latest.
    let may_be_asked = Instant::now() + setup.open_for;
    let calls = scene.calls();
    mend(&mut server);
    let mut probed = None;
    loop {
        let asked = Instant::now();
        let source = source();
        if asked >= may_be_asked || scene.calls() > calls {
            probed.get_or_insert(asked);
        }
        if source == Source::Store {
            break;
        }
        let waited = probed.map_or(Duration::ZERO, |probed| probed.elapsed());
        assert!(waited <= BACK_WITHIN, "not back {waited:?} after the probe");
        std::thread::sleep(Duration::from_millis(2));
    }
    let waited = probed.unwrap().elapsed();
    eprintln!("the store was back {waited:?} after the probe");
    assert!(waited <= BACK_WITHIN, "back {waited:?} after the probe");
    assert!(!scene.stats().breaker_is_open);
}

#[test]
fn back_soon_after_a_restart() {
    comes_back_soon(Server::start(), Server::url, Server::kill, Server::restart);
}

#[test]
fn back_soon_after_silence() {
    comes_back_soon(
        Server::start(),
        Server::url,
        |server| server.signal("-STOP"),
        |server| server.signal("-CONT"),
    );
}

#[test]
fn back_soon_after_refusals() {
    comes_back_soon(
        Server::start(),
        Server::url,
        |server| server.tell("CONFIG SET maxmemory 1"),
        |server| server.tell("CONFIG SET maxmemory 0"),
    );
}

/// What was refused came over a connection that was well, and so it was kept: the probe finds it dead.
#[test]
fn back_soon_after_refusals_and_a_restart() {
    comes_back_soon(
        Server::start(),
        Server::url,
        |server| server.tell("CONFIG SET maxmemory 1"),
        Server::restart,
    );
}

/// The same where a new connection takes longer to make than a check may wait: one finds the old one dead, the next one waits in vain for the
/// new one, and the one after that has it.
#[test]
fn back_soon_over_a_connection_that_takes_its_time() {
    let setup = Setup {
        deadline: ONE.deadline,
        ..STAYS_OPEN
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
    comes_back_soon(Server::start(), Server::url, keep_busy, Server::restart);
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
