//! How each listener that serves requests opens: the one place that lists them. The admin listener is not among them,
//! because it opens first and closes last.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use prometheus_client::registry::Registry;
use tollgate_config::Config;
use tollgate_http::body::IncomingBody;
use tollgate_http::server::{self, Handler, ServerConfig, ServerMetrics};
use tollgate_tower::layer::PeerAddr;
use tower::ServiceExt as _;

use super::connection_budget::ConnectionBudget;
use super::sockets::Sockets;
use super::{ConfigSource, Tasks};
use crate::decider::Decider;
use crate::failure::Failure;
use crate::gateway::{Gateway, LogFile};
use crate::service;

/// Maximum size of a head sent to the service. Gateways pass on what clients send, such as `tracestate`, and Envoy admits
/// a request if its call is rejected; by default Envoy accepts 60 KiB of headers.
const SERVICE_HEAD_BYTES: usize = 128 * 1_024;

/// Concurrent calls on one HTTP/2 connection to the service: as many as Envoy makes in all by default. It does not wait to
/// learn the limit of a new connection, and admits a request whose call is refused.
const SERVICE_STREAMS: u32 = 1_024;

/// Serves an axum router. Its handlers find the [`PeerAddr`] among a request's extensions.
#[derive(Clone)]
pub(super) struct RouterHandler(pub(super) Router);

impl Handler for RouterHandler {
    type Body = Body;

    async fn handle(&self, request: Request<IncomingBody>, peer: SocketAddr) -> Response<Body> {
        let mut request = request.map(|body| body.map_or_else(Body::empty, Body::new));
        request.extensions_mut().insert(PeerAddr(peer));
        match self.0.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// What listeners need to open.
pub(super) struct Opening<'a> {
    pub(super) decider: &'a Decider,
    pub(super) config: &'a Arc<Config>,
    pub(super) sockets: &'a Sockets,
    /// How many connections each listener may have.
    pub(super) budget: ConnectionBudget,
    /// Where listeners register their metrics.
    pub(super) registry: &'a mut Registry,
    /// What shutdown waits for.
    pub(super) tasks: &'a Tasks,
}

impl Opening<'_> {
    /// Opens them. Returns the access log, if there is one, so that it can be rotated.
    pub(super) fn open_all(mut self, source: &ConfigSource) -> Result<Option<LogFile>, Failure> {
        if let ConfigSource::Demo(demo) = source {
            let api = demo.serve_api(self.tasks.stop.clone())?;
            self.tasks.tracker.spawn(api);
        }
        let access_log = self.open_gateway()?;
        self.open_service()?;
        Ok(access_log)
    }

    fn open_gateway(&mut self) -> Result<Option<LogFile>, Failure> {
        let (Some(config), Some(socket)) = (&self.config.gateway, self.sockets.take("gateway")?)
        else {
            return Ok(None);
        };
        let socket = socket
            .into_std()
            .map_err(|error| Failure::Unavailable(format!("the gateway cannot listen: {error}")))?;
        let config = config.within(self.budget.gateway);
        let stop = self.tasks.stop.clone();
        let gateway = Gateway::start(&config, socket, self.decider, self.registry, stop)?;
        let access_log = gateway.log_file();
        let (stop, drain) = (self.tasks.stop.clone(), config.front.drain);
        self.tasks.tracker.spawn(async move {
            stop.cancelled().await;
            gateway.ended(drain).await;
        });
        Ok(access_log)
    }

    fn open_service(&mut self) -> Result<(), Failure> {
        let (Some(config), Some(socket)) = (&self.config.service, self.sockets.take("service")?)
        else {
            return Ok(());
        };
        let config = config.within(self.budget.service);
        let metrics = service::Metrics::new(self.registry);
        let router = service::router(self.decider.clone(), &config, metrics);
        let policies = self.decider.clone();
        let own = self.registry.sub_registry_with_prefix("tollgate");
        let server = ServerConfig {
            max_connections: config.connections.max_connections,
            per_address: config.connections.per_address,
            exempt: Arc::new(move |ip| policies.policy().identity().trusts(ip)),
            max_streams: SERVICE_STREAMS,
            max_head_bytes: SERVICE_HEAD_BYTES,
            metrics: ServerMetrics::new(own.sub_registry_with_prefix("service")),
            ..ServerConfig::default()
        };
        let stop = self.tasks.stop.clone();
        let serving = server::serve(socket, server, stop, RouterHandler(router));
        self.tasks.tracker.spawn(serving);
        Ok(())
    }
}
