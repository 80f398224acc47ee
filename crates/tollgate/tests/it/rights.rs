//! A user with the rights that our warning names, and no others, is enough for all we do, and can do no harm beyond it.

use std::time::Duration;

use tollgate::store::contract::{Charge, StoreOperations as _};
use tollgate::store::{RedisConfig, RedisError, RedisStore, RedisTls, ServerWarning};
use tollgate::{Bucket, Limit};

use crate::contract::keeps_the_whole_contract;
use crate::server::{Clustered, Guarded, Server, Version, store_at};
use crate::support::{limit, run};

/// The rights as the warning names them: always, in another database, in a cluster, and behind sentinels.
fn named() -> [String; 4] {
    let text = String::new();
    let warning = ServerWarning::Forbids { text }.to_string();
    let (_, rights) = warning.split_once("the user needs: ").unwrap();
    let mut parts = rights.splitn(4, ", ").map(|part| {
        let words = part.split(' ');
        let rights: Vec<&str> = words.filter(|word| word.starts_with(['+', '~'])).collect();
        rights.join(" ").replace("<prefix>", "tollgate")
    });
    [(); 4].map(|()| parts.next().unwrap())
}

/// The command that makes a user with these rights alone.
fn clerk(rights: &[&str]) -> String {
    format!("ACL SETUSER clerk reset on >secret {}", rights.join(" "))
}

fn open(url: &str) -> RedisStore {
    let config = RedisConfig::default().deadline(Duration::from_secs(20));
    RedisStore::open(url, config).unwrap()
}

fn take(store: &RedisStore, key: &str, limit: &Limit) -> Result<bool, RedisError> {
    let charge = Charge {
        bucket: Bucket::of_key(key.as_bytes()),
        limit,
        cost: 1,
        shadow: false,
    };
    run(store.take(&[charge])).map(|taken| taken.admitted)
}

#[test]
fn the_rights_we_name_are_enough_for_the_whole_contract() {
    let [always, ..] = named();
    for version in [Version::Current, Version::SixTwo, Version::Valkey] {
        let server = Server::start_version(version);
        server.tell(&clerk(&[&always]));
        let url = format!("{}?user=clerk&pass=secret", server.url());
        keeps_the_whole_contract(|name, clock| {
            let prefix = format!("tollgate:{name}");
            store_at(&url, RedisTls::default(), &prefix, clock)
        });
        let warnings = run(open(&url).examine()).unwrap();
        let forbids = |warning: &ServerWarning| matches!(warning, ServerWarning::Forbids { .. });
        assert!(!warnings.iter().any(forbids), "{warnings:?}");
    }
}

/// Any that scripts lack, not only the right to run them.
#[test]
fn a_right_that_scripts_lack_is_named_at_the_start() {
    let [always, ..] = named();
    for version in [Version::Current, Version::SixTwo, Version::Valkey] {
        let server = Server::start_version(version);
        let url = format!("{}?user=clerk&pass=secret", server.url());
        for lacking in ["+eval", "+evalsha", "+get", "+set", "+time", "+del"] {
            let rights: Vec<&str> = always.split(' ').filter(|one| *one != lacking).collect();
            server.tell(&clerk(&rights));
            let warnings = run(open(&url).examine()).unwrap();
            let forbids =
                |warning: &ServerWarning| matches!(warning, ServerWarning::Forbids { .. });
            assert!(warnings.iter().any(forbids), "{lacking}: {warnings:?}");
        }
    }
}

fn forbids(url: &str, right: &str) {
    let warnings = run(open(url).examine()).unwrap_or_else(|error| panic!("{right}: {error}"));
    let is_named = |warning: &ServerWarning| {
        matches!(warning, ServerWarning::Forbids { .. }) && warning.to_string().contains(right)
    };
    assert!(warnings.iter().any(is_named), "{right}: {warnings:?}");
}

/// Those that are needed before any script: in another database, in a cluster, and behind sentinels.
#[test]
fn a_right_that_connecting_lacks_is_named_at_the_start() {
    let [always, ..] = named();
    for version in [Version::Current, Version::SixTwo, Version::Valkey] {
        let server = Server::start_version(version);
        server.tell(&clerk(&[&always]));
        forbids(
            &format!("{}?user=clerk&pass=secret&db=3", server.url()),
            "'select",
        );
    }
    let clustered = Clustered::start();
    clustered.tell_all(&clerk(&[&always]));
    forbids(
        &clustered.url().replace("://", "://clerk:secret@"),
        "'cluster",
    );
    let guarded = Guarded::start();
    guarded.tell_primary(&clerk(&[&always]));
    forbids(&guarded.url().replace("://", "://clerk:secret@"), "'role");
}

#[test]
fn the_rights_we_name_are_for_nothing_else() {
    let [always, in_database, in_cluster, behind_sentinels] = named();
    let server = Server::start();
    server.tell(&clerk(&[
        &always,
        &in_database,
        &in_cluster,
        &behind_sentinels,
    ]));
    let url = format!("{}?user=clerk&pass=secret", server.url());
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_connection().unwrap();
    for words in [
        "FLUSHALL",
        "FLUSHDB",
        "KEYS *",
        "SCAN 0",
        "CONFIG GET *",
        "SHUTDOWN NOSAVE",
        "SCRIPT FLUSH",
        "ACL LIST",
        "DEBUG SLEEP 0",
        "REPLICAOF NO ONE",
        "CLUSTER RESET",
        "GET somebody-elses",
        "DEL somebody-elses",
        "EVAL return(redis.call('GET','somebody-elses')) 0",
        "EVAL return(redis.call('FLUSHALL')) 0",
    ] {
        let (name, args) = words.split_once(' ').unwrap_or((words, ""));
        let mut command = redis::cmd(name);
        command.arg(args.split_whitespace().collect::<Vec<_>>());
        let answer = command.query::<redis::Value>(&mut connection);
        let error = answer.expect_err(words);
        let said = error.to_string();
        // From within a script it says so in other words.
        assert!(
            error.code() == Some("NOPERM") || said.contains("The user executing the script can't"),
            "{words}: {said}"
        );
    }
}

#[test]
fn a_database_of_its_own_needs_the_right_we_name() {
    let [always, in_database, ..] = named();
    let server = Server::start();
    let url = format!("{}?user=clerk&pass=secret&db=3", server.url());
    let hourly = limit("1/h burst 1");
    server.tell(&clerk(&[&always]));
    assert!(take(&open(&url), "key", &hourly).is_err());
    server.tell(&clerk(&[&always, &in_database]));
    assert!(take(&open(&url), "key", &hourly).unwrap());
}

#[test]
fn a_cluster_needs_the_rights_we_name() {
    let [always, _, in_cluster, _] = named();
    let clustered = Clustered::start();
    clustered.tell_all(&clerk(&[&always, &in_cluster]));
    let url = clustered.url().replace("://", "://clerk:secret@");
    let store = open(&url);
    let hourly = limit("1/h burst 100");
    for key in 0..16 {
        assert!(take(&store, &format!("key-{key}"), &hourly).unwrap());
    }
    // A slot on the move is asked for where it goes.
    clustered.move_slot(clustered.slot_of("tollgate:{key:key-1}"), || {
        assert!(take(&store, "key-1", &hourly).unwrap());
    });
    assert!(take(&store, "key-1", &hourly).unwrap());
}

#[test]
fn sentinels_need_the_right_we_name() {
    let [always, _, _, behind_sentinels] = named();
    let guarded = Guarded::start();
    guarded.tell_primary(&clerk(&[&always, &behind_sentinels]));
    let url = guarded.url().replace("://", "://clerk:secret@");
    assert!(take(&open(&url), "key", &limit("1/h burst 1")).unwrap());
}
