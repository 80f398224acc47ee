//! From a request to a decision and a row in the audit trail.

use std::time::Duration;

use http::{HeaderMap, Method, Uri};
use tollgate::Limiter;
use tollgate_config::AuditConfig;
use tollgate_server::audit::Trail;
use tollgate_server::database::{Database, ViolationFilter};
use tollgate_server::decider::Decider;
use tollgate_server::live::{Live, LiveConfig};
use tollgate_tower::policy::Head;

use crate::kit;
use crate::kit::database::{TestDatabase, block_on};

const CONFIG: &str = "
service: {}
costs: [{ match: { path: \"/reports/{id}\" }, cost: 5 }]
rules:
  - { id: everyone, per: [], limit: \"1/h burst 1000\" }
  - { id: address, per: [ip, route], limit: \"1/h burst 12\" }
";

#[test]
fn denials_are_recorded_with_their_rule_and_admissions_are_not() {
    block_on(async {
        let test_database = TestDatabase::sqlite();
        let database: Database = test_database.open().await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tollgate.yaml");
        std::fs::write(&file, CONFIG).unwrap();
        let live = Live::start(LiveConfig::of(&file)).await.unwrap().0;
        let trail = Trail::start(database.clone(), AuditConfig::default());
        let decider = Decider::new(live, Limiter::in_memory(), Some(trail));
        let (uri, headers) = (Uri::from_static("/reports/7"), HeaderMap::new());
        let head = Head {
            method: &Method::POST,
            uri: &uri,
            headers: &headers,
        };
        let mut allowed = Vec::new();
        for _ in 0..3 {
            let decision = kit::decide(&decider, &head).await;
            allowed.push(decision.allowed());
        }
        assert_eq!(allowed, [true, true, false]);
        let stats = decider
            .trail()
            .unwrap()
            .close(Duration::from_secs(20))
            .await;
        assert_eq!((stats.recorded, stats.written), (1, 1));
        let rows = database.violations(&ViolationFilter::default()).await;
        let [row] = &rows.unwrap()[..] else {
            panic!("one row was expected")
        };
        assert_eq!(
            (row.rule.as_str(), row.bucket.as_str()),
            ("address", "address ip=203.0.113.7 route=/reports/{id}")
        );
        assert_eq!(
            (
                row.client.as_deref(),
                row.ip.as_deref(),
                row.endpoint.as_deref()
            ),
            (
                Some("ip:203.0.113.7"),
                Some("203.0.113.7"),
                Some("POST /reports/{id}")
            )
        );
        assert_eq!((row.cost, row.remaining, row.generation), (5, 2, 1));
    });
}
