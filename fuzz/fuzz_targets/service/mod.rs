//! The decision service in this process, without a listener: for the targets that send it requests.

use std::sync::{Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Collected};
use prometheus_client::registry::Registry;
use tokio::runtime::Runtime;
use tollgate_server::decider::{self, Decider};
use tollgate_server::live::{Live, LiveConfig};
use tollgate_server::service::{self, Metrics};
use tower::ServiceExt as _;

pub const TOKEN: &str = "0123456789abcdef";

/// Rules of every algorithm, so that whatever is read is also decided on.
const CONFIG: &str = r#"
service: { token: 0123456789abcdef, rls: { overrides: true } }
clients: [{ id: merchant_123, plan: pro }]
identity: { client: ["header:X-User-Id", ip], trusted_proxies: [10.0.0.0/8] }
rules:
  - { id: client, per: [client], limit: "10/s burst 3" }
  - { id: client, plan: pro, per: [client], limit: "1/h burst 30" }
  - { id: address, per: [ip], limit: "600 per 10m sliding_counter" }
  - { id: tenant, per: ["attribute:tenant"], limit: "3 per 1m fixed_window" }
  - { id: region, match: { headers: { X-Region: eu } }, per: [route, method], limit: "5 per 1m sliding_log" }
  - { id: charges, match: { methods: [POST], path: "/v1/charges/{id}" }, per: [], limit: "1/h burst 1" }
  - { id: shop, match: { host: shop.example.com }, per: ["attribute:tenant", client], mode: shadow, limit: "1/h burst 1" }
  - { id: queue, match: { attributes: { slow: yes } }, per: [client], limit: "10/s queue 5 leaky_bucket" }
costs:
  - { match: { path: "/v1/reports/{*rest}" }, cost: 10 }
"#;

pub struct Service {
    runtime: Mutex<Runtime>,
    router: Router,
}

impl Service {
    pub fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let folder = tempfile::tempdir().expect("a folder").keep();
        let file = folder.join("tollgate.yaml");
        std::fs::write(&file, CONFIG).expect("a file");
        let router = runtime.block_on(async {
            let live = LiveConfig::of(&file);
            let (live, config) = Live::start(live).await.expect("a configuration");
            let limiter = decider::limiter(&config.store).expect("a limiter");
            let metrics = Metrics::new(&mut Registry::default());
            let decider = Decider::new(live, limiter, None);
            let config = config.service.as_ref().expect("a service");
            service::router(decider, config, metrics)
        });
        // It is followed, but never changes.
        let _ = std::fs::remove_dir_all(folder);
        Self {
            runtime: Mutex::new(runtime),
            router,
        }
    }

    /// The whole response to a request that has the token.
    pub fn ask(&self, path: &str, body: &[u8]) -> Response<Collected<axum::body::Bytes>> {
        let request = Request::post(path)
            .header("authorization", format!("Bearer {TOKEN}"))
            .header("host", "localhost")
            .body(Body::from(body.to_vec()))
            .expect("a request");
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        runtime.block_on(async {
            let response = match self.router.clone().oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            let (parts, body) = response.into_parts();
            let body = body.collect().await.expect("a body of ours");
            Response::from_parts(parts, body)
        })
    }
}
