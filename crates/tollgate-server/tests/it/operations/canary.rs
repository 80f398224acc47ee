//! A secret goes in wherever one can, and is looked for everywhere: in Redis, in the audit trail, in the log, and in what is shown of
//! everything.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tempfile::TempDir;
use tollgate_server::audit::{Trail, TrailConfig};
use tollgate_server::config::ConfigFile;
use tollgate_server::database::{Database, ViolationFilter};
use tollgate_server::door::{self, Door};
use tollgate_server::live::{Live, LiveConfig};
use tollgate_testing::log::Log;
use tollgate_testing::servers::RedisServer;
use tollgate_tower::identity::api_key_sha256;
use tollgate_tower::policy::Head;

use crate::database::block_on;

/// Keys of a client, of nobody, and of somebody who uses another header.
const CANARIES: [&str; 4] = [
    "canary-known-3f9c2a77e1",
    "canary-unknown-8b1d4c90fe",
    "canary-bearer-55aa0e6612",
    "canary-password-0c7e91d2ab",
];

/// No canary, and no part of one that would be enough to recognise it by.
fn assert_clean(place: &str, text: &str) {
    for canary in CANARIES {
        let secret = canary.rsplit('-').next().unwrap();
        for part in [canary, secret, &secret[..6]] {
            assert!(!text.contains(part), "{part} is in {place}: {text}");
        }
    }
}

fn config(folder: &TempDir, redis: &str) -> String {
    let hash: String = (api_key_sha256(CANARIES[0].as_bytes()).iter())
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let database = folder.path().join("tollgate.db");
    format!(
        "store: {{ redis: {redis:?}, deadline: 1s }}
database: {{ url: \"sqlite:{}\" }}
rules_from: file
admin: {{ token: {} }}
identity: {{ client: [\"api_key:X-API-Key\", bearer, \"header:X-User-Id\", ip] }}
clients: [{{ id: merchant_123, plan: pro, api_key_sha256: \"{hash}\" }}]
rules:
  - {{ id: client, per: [client], limit: \"1/h burst 2\" }}
  - {{ id: keyed, per: [\"header:X-Tenant\", method], limit: \"1/h burst 1000\" }}
  - {{ id: address, per: [ip], limit: \"1/h burst 1000\" }}
",
        database.display(),
        CANARIES[3]
    )
}

#[test]
fn no_secret_reaches_redis_the_audit_trail_the_log_or_output() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(log.clone())
        .finish();
    // For all threads: the store and the writer have some of their own.
    tracing::subscriber::set_global_default(subscriber).ok();
    let redis = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tollgate.yaml");
    std::fs::write(&file, config(&folder, &redis.url())).unwrap();
    let mut shown = String::new();
    block_on(async {
        let (live, config) = Live::start(LiveConfig::of(&file)).await.unwrap();
        let database = Database::open(config.database.as_ref().unwrap().url.expose());
        let database = database.await.unwrap();
        let trail = Trail::start(database.clone(), TrailConfig::default());
        let limiter = door::limiter(&config.store).unwrap();
        let door = Door::new(live, limiter, Some(trail));
        let mut denied = 0;
        for i in 0..40 {
            let mut headers = HeaderMap::new();
            let mut put = |name: &'static str, value: &str| {
                let value = HeaderValue::from_str(value).unwrap();
                headers.append(HeaderName::from_static(name), value);
            };
            match i % 4 {
                0 => put("x-api-key", CANARIES[0]),
                1 => put("x-api-key", CANARIES[1]),
                2 => put("authorization", &format!("Bearer {}", CANARIES[2])),
                _ => put("x-user-id", "somebody"),
            }
            put("x-tenant", "acme");
            let uri: Uri = format!("/v1/things?api_key={}", CANARIES[1])
                .parse()
                .unwrap();
            let head = Head {
                method: &Method::POST,
                uri: &uri,
                headers: &headers,
            };
            let decision = door.decide(&head, [203, 0, 113, 7].into()).await.unwrap();
            denied += u64::from(!decision.allowed());
            let policy = door.live().policy();
            let who =
                policy
                    .identity()
                    .explain([203, 0, 113, 7].into(), &headers, policy.clients());
            shown += &format!("{decision:?} {who:?} {who}");
        }
        shown += &format!("{config:?} {door:?} {:?}", door.live().policy());
        shown += &format!(
            "{:?} {:?}",
            door.limiter().shared_stats(),
            door.live().stats()
        );
        let stats = door.trail().unwrap().close(Duration::from_secs(20)).await;
        assert_eq!((stats.written, stats.lost), (denied, 0));
        assert!(denied > 20, "{denied}");
        let rows = database
            .violations(&ViolationFilter::default())
            .await
            .unwrap();
        let clients: Vec<_> = rows
            .iter()
            .filter_map(|row| row.client.as_deref())
            .collect();
        assert!(
            clients.contains(&"merchant_123") && clients.contains(&"ip:203.0.113.7"),
            "{clients:?}"
        );
        shown += &format!("{rows:?}");
        database.close().await;
    });
    // A file that is wrong is shown with its lines, and not with its secrets.
    let wrong = config(&folder, &redis.url()).replace("burst 2\"", "burts 2\"");
    std::fs::write(&file, &wrong).unwrap();
    shown += &ConfigFile::read(&file).unwrap().parse().unwrap_err();
    let one_line = wrong.replace('\n', " ");
    std::fs::write(&file, one_line).unwrap();
    shown += &ConfigFile::read(&file).unwrap().parse().unwrap_err();

    let kept = redis.everything();
    assert!(
        kept.contains("merchant_123") && kept.contains("acme"),
        "{kept}"
    );
    assert_clean("Redis", &kept);
    assert_clean("what is shown", &shown);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending != "yaml") {
            let bytes = std::fs::read(&path).unwrap();
            assert_clean(
                &path.display().to_string(),
                &String::from_utf8_lossy(&bytes),
            );
        }
    }
    let log = log.text();
    assert!(log.contains("a new generation of rules"), "{log}");
    assert_clean("the log", &log);
}
