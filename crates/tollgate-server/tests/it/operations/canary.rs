//! No secret is stored or shown: secrets are sent wherever a request can carry one, and searched for in Redis, in the audit trail, in
//! the log, and in the `Debug` and `Display` output of everything that handles them.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tempfile::TempDir;
use tollgate_config::{AuditConfig, ConfigFile};
use tollgate_server::audit::Trail;
use tollgate_server::database::{Database, ViolationFilter};
use tollgate_server::decider::{self, Decider};
use tollgate_server::live::{Live, LiveConfig};
use tollgate_testing::log::Log;
use tollgate_testing::servers::RedisServer;
use tollgate_tower::identity::api_key_sha256;
use tollgate_tower::policy::Head;

use crate::kit;
use crate::kit::database::block_on;

/// The API key of a client, a key that no client has, a bearer token, and the token of the admin interface.
const CANARIES: [&str; 4] = [
    "canary-known-3f9c2a77e1",
    "canary-unknown-8b1d4c90fe",
    "canary-bearer-55aa0e6612",
    "canary-password-0c7e91d2ab",
];

/// Checks that a text contains no canary, and no part by which one could be recognised.
fn assert_clean(what: &str, text: &str) {
    for canary in CANARIES {
        let secret = canary.rsplit('-').next().unwrap();
        for part in [canary, secret, &secret[..6]] {
            assert!(!text.contains(part), "{part} is in {what}: {text}");
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
    // For all threads: the store and the audit trail have threads of their own.
    tracing::subscriber::set_global_default(subscriber).ok();
    let redis = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tollgate.yaml");
    std::fs::write(&file, config(&folder, &redis.url())).unwrap();
    let mut output = String::new();
    block_on(async {
        let (live, config) = Live::start(LiveConfig::of(&file)).await.unwrap();
        let database = Database::open(config.database.as_ref().unwrap().url.expose());
        let database = database.await.unwrap();
        let trail = Trail::start(database.clone(), AuditConfig::default());
        let limiter = decider::limiter(&config.store).unwrap();
        let decider = Decider::new(live, limiter, Some(trail));
        let mut denied = 0;
        for i in 0..40 {
            let mut headers = HeaderMap::new();
            let mut append = |name: &'static str, value: &str| {
                let value = HeaderValue::from_str(value).unwrap();
                headers.append(HeaderName::from_static(name), value);
            };
            match i % 4 {
                0 => append("x-api-key", CANARIES[0]),
                1 => append("x-api-key", CANARIES[1]),
                2 => append("authorization", &format!("Bearer {}", CANARIES[2])),
                _ => append("x-user-id", "somebody"),
            }
            append("x-tenant", "acme");
            let uri: Uri = format!("/v1/things?api_key={}", CANARIES[1])
                .parse()
                .unwrap();
            let head = Head {
                method: &Method::POST,
                uri: &uri,
                headers: &headers,
            };
            let decision = kit::decide(&decider, &head).await;
            denied += u64::from(!decision.allowed());
            let policy = decider.live().policy();
            let caller =
                policy
                    .identity()
                    .explain([203, 0, 113, 7].into(), &headers, policy.clients());
            output += &format!("{decision:?} {caller:?} {caller}");
        }
        output += &format!("{config:?} {decider:?} {:?}", decider.live().policy());
        output += &format!(
            "{:?} {:?}",
            decider.limiter().shared_stats(),
            decider.live().stats()
        );
        let stats = decider
            .trail()
            .unwrap()
            .close(Duration::from_secs(20))
            .await;
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
        output += &format!("{rows:?}");
        database.close().await;
    });
    // Errors in a file are reported with its lines, but not with its secrets.
    let wrong = config(&folder, &redis.url()).replace("burst 2\"", "burts 2\"");
    std::fs::write(&file, &wrong).unwrap();
    output += &ConfigFile::read(&file).unwrap().parse().unwrap_err();
    let one_line = wrong.replace('\n', " ");
    std::fs::write(&file, one_line).unwrap();
    output += &ConfigFile::read(&file).unwrap().parse().unwrap_err();

    let stored = redis.everything();
    assert!(
        stored.contains("merchant_123") && stored.contains("acme"),
        "{stored}"
    );
    assert_clean("Redis", &stored);
    assert_clean("the output", &output);
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
