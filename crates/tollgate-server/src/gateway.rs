//! The gateway: the way of a request from its head to the end of its response.
//!
//! 1. `tollgate_http` reads the head, or rejects it.
//! 2. Requests that servers may read in different ways are rejected (`rejection`); headers that may mislead are removed.
//! 3. The request gets its [`RequestContext`](tollgate_tower::gate::RequestContext) and its id.
//! 4. The [`Gate`](tollgate_tower::gate::Gate) decides. A denial is answered here, and no upstream sees the request.
//! 5. The body is limited, and the proxy forwards the request.
//! 6. What the upstream did not read of the body is drained or given up.
//! 7. When all of the response has been sent, the request is counted (`metrics`) and logged (`access_log`); an upgraded connection
//!    is logged when it has ended. The `record` of the request collects what they need.
//!
//! A connection stays with one worker, a thread with a runtime of its own, so a request never changes threads.

mod access_log;
mod handler;
mod log_line;
mod metrics;
mod record;
mod rejection;

use std::fmt::Display;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tollgate_config::{Front, Preflights};
use tollgate_http::body::BodyLimits;
use tollgate_http::headers::HeaderNames;
use tollgate_http::proxy::{Proxy, ProxyMetrics, ProxySettings};
use tollgate_http::server::{OnRejectedHead, ServerConfig, Workers};
use tollgate_http::tls::Certificate;
use tollgate_tower::layer::WaitLimits;

use crate::decider::Decider;
use crate::failure::Failure;
use access_log::AccessLog;
pub(crate) use access_log::LogFile;
use handler::{GatewayHandler, HandlerState};
use metrics::GatewayMetrics;

#[derive(Debug)]
pub(crate) struct Gateway {
    workers: Workers,
    proxy: Proxy,
    log: Option<(LogFile, JoinHandle<()>)>,
}

impl Gateway {
    /// Serves clients that connect to `listener` until `stop` is cancelled. Fails if an upstream, a certificate or the file of the access log
    /// cannot be used.
    pub(crate) fn start(
        config: &tollgate_config::Gateway,
        listener: TcpListener,
        decider: &Decider,
        registry: &mut Registry,
        stop: CancellationToken,
    ) -> Result<Self, Failure> {
        let front = &config.front;
        let proxy = proxy(config, registry)?;
        proxy.watch(&stop);
        let metrics = GatewayMetrics::new(registry.sub_registry_with_prefix("tollgate"));
        let certificate = front.tls.clone().map(Certificate::read).transpose();
        let certificate = certificate.map_err(tls_failure)?;
        let (log, writer) = AccessLog::start(front, &metrics)?.unzip();
        let log_file = log.as_ref().map(AccessLog::file);
        let server = server_config(front, decider, &metrics, log.as_ref(), certificate.as_ref())?;
        let handler = handlers(front, decider, &proxy, &metrics, log);
        let count = front.workers.map_or_else(
            || thread::available_parallelism().map_or(1, usize::from),
            usize::from,
        );
        let workers = Workers::start(count, server, listener, certificate, handler, stop);
        Ok(Self {
            workers: workers.map_err(|error| start_failure(&error))?,
            proxy,
            log: log_file.zip(writer),
        })
    }

    pub(crate) fn log_file(&self) -> Option<LogFile> {
        self.log.as_ref().map(|(file, _)| file.clone())
    }

    /// Waits until all requests in flight have ended, and the last line is logged. Upgraded connections may take until `drain`.
    pub(crate) async fn ended(self, drain: Duration) {
        tokio::join!(self.proxy.end(drain), self.workers.ended());
        drop(self.proxy);
        if let Some((_, writer)) = self.log {
            // A panic has been reported by the thread.
            let _ = tokio::task::spawn_blocking(move || writer.join()).await;
        }
    }
}

fn start_failure(error: &dyn Display) -> Failure {
    Failure::BadInput(format!("the gateway cannot start: {error}"))
}

fn tls_failure(error: impl Display) -> Failure {
    Failure::BadInput(format!("gateway.tls: {error}"))
}

fn proxy(config: &tollgate_config::Gateway, registry: &mut Registry) -> Result<Proxy, Failure> {
    let settings = ProxySettings {
        is_tls: config.front.tls.is_some(),
        via: config.front.via,
        fast_path: config.front.fast_path,
    };
    Proxy::new(&config.upstreams, settings, &ProxyMetrics::new(registry))
        .map_err(|error| Failure::BadInput(error.to_string()))
}

/// Makes the handler of each worker.
fn handlers(
    front: &Front,
    decider: &Decider,
    proxy: &Proxy,
    metrics: &GatewayMetrics,
    log: Option<AccessLog>,
) -> impl Fn() -> GatewayHandler + Send + Sync + 'static {
    let max_waiting = (front.waiting).max_waiting_with(front.connections.max_connections);
    let layer = (decider.layer())
        .max_delay(front.max_delay)
        .wait_limits(WaitLimits::new(max_waiting, front.waiting.per_address))
        .charge_preflights(front.preflights == Preflights::Charge);
    let gate = layer.gate();
    let (decider, proxy, metrics) = (decider.clone(), proxy.clone(), metrics.clone());
    let header_names = HeaderNames {
        underscores: front.underscores,
        overrides: front.override_headers,
    };
    let body_limits = BodyLimits {
        max_bytes: match front.max_body {
            0 => u64::MAX,
            max_bytes => max_bytes,
        },
        timeout: front.body_timeout,
    };
    move || GatewayHandler {
        state: Arc::new(HandlerState {
            decider: decider.clone(),
            gate: Arc::clone(&gate),
            metrics: metrics.clone(),
            log: log.clone(),
            header_names,
            body_limits,
        }),
        proxy: proxy.worker(),
    }
}

fn server_config(
    front: &Front,
    decider: &Decider,
    metrics: &GatewayMetrics,
    log: Option<&AccessLog>,
    certificate: Option<&Arc<Certificate>>,
) -> Result<ServerConfig, Failure> {
    let policies = decider.clone();
    let tls = certificate.map(Certificate::server_config).transpose();
    Ok(ServerConfig {
        max_connections: front.connections.max_connections,
        per_address: front.connections.per_address,
        exempt: Arc::new(move |ip| policies.policy().identity().trusts(ip)),
        on_rejected_head: on_rejected_head(metrics, log),
        head_timeout: front.head_timeout,
        idle_timeout: front.idle_timeout,
        send_timeout: front.send_timeout,
        max_head_bytes: front.max_head,
        max_streams: front.max_streams,
        max_age: front.max_age,
        drain: front.drain,
        fast_path: front.fast_path,
        tls: tls.map_err(tls_failure)?,
        metrics: metrics.server.clone(),
    })
}

/// Counts and logs heads that are rejected before a handler sees them.
fn on_rejected_head(metrics: &GatewayMetrics, log: Option<&AccessLog>) -> OnRejectedHead {
    let (metrics, log) = (metrics.clone(), log.cloned());
    Arc::new(move |peer, head| {
        metrics.rejected_head(head);
        if let Some(log) = &log {
            log.write_rejected(peer.ip(), head);
        }
    })
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use tokio::net::TcpListener;
    use tollgate::{Limiter, RuleSet};
    use tollgate_testing::client::responses_to;
    use tollgate_tower::identity::Identity;

    use super::*;
    use crate::live::Live;
    use crate::traces::{TraceMetrics, Tracer};

    const CONFIG: &str = "
gateway: { listen: 127.0.0.1:0, upstreams: [{ to: \"http://127.0.0.1:9\" }], max_delay: 20ms, access_log: json }
traces: { endpoint: \"http://127.0.0.1:9\", sample: 1 }
identity: { client: [\"api_key:X-API-Key\", \"header:X-User\", ip] }
rules:
  - { id: users, match: { path: \"/users/{id}\" }, per: [client, route], limit: \"1/h\" }
  - { id: soon, match: { path: /soon }, per: [], limit: \"100/s queue 5\" }
  - { id: late, match: { path: /late }, per: [client], limit: \"1/h queue 5\" }
";

    /// Identities resolved and requests matched on this thread.
    fn counts() -> (u64, u64) {
        (
            Identity::resolved_on_this_thread(),
            RuleSet::matched_on_this_thread(),
        )
    }

    /// With the access log and traces, on one thread.
    #[tokio::test]
    async fn each_request_is_identified_and_matched_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let config = tollgate_config::parse(CONFIG, &|_| None).unwrap();
        let mut front = config.gateway.as_ref().unwrap().front.clone();
        front.access_log_file = Some(file.path().to_owned());
        let registry = &mut Registry::default();
        let traces = config.traces.as_ref().unwrap();
        let tracer = Tracer::start(traces, TraceMetrics::new(registry)).unwrap();
        let live = Live::fixed(config.policy.policy());
        let decider = Decider::new(live, Limiter::in_memory(), None).with_tracer(tracer);
        let proxy = proxy(config.gateway.as_ref().unwrap(), registry).unwrap();
        let metrics = GatewayMetrics::new(registry);
        let (log, writer) = AccessLog::start(&front, &metrics).unwrap().unzip();
        let handler = handlers(&front, &decider, &proxy, &metrics, log)();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = tokio::spawn(tollgate_http::server::serve(
            listener,
            ServerConfig::default(),
            stop.clone(),
            handler,
        ));
        for (head, status, matched) in [
            ("GET /users/1 HTTP/1.1\r\nX-User: a", 502, 1),
            ("GET /users/1 HTTP/1.1\r\nX-User: a", 429, 1),
            ("GET /soon HTTP/1.1", 502, 1),
            ("GET /soon HTTP/1.1", 502, 1),
            ("GET /late HTTP/1.1", 502, 1),
            ("GET /late HTTP/1.1", 429, 1),
            ("GET /a%2Fb HTTP/1.1", 400, 0),
            ("GET / HTTP/1.1\r\nX-User: a\r\nX-User: b", 400, 0),
            ("GET / HTTP/1.1\r\nHost: b", 400, 0),
        ] {
            let before = counts();
            let request = format!("{head}\r\nHost: a\r\nConnection: close\r\n\r\n");
            let responses = responses_to(address, request).await;
            assert_eq!(responses[0].status, status, "{head}");
            let after = counts();
            let made = (after.0 - before.0, after.1 - before.1);
            assert_eq!(made, (1, matched), "{head}");
        }
        stop.cancel();
        server.await.unwrap();
        drop((decider, proxy));
        writer.unwrap().join().unwrap();
        let log = std::fs::read_to_string(file.path()).unwrap();
        assert_eq!(log.lines().count(), 9, "{log}");
    }
}
