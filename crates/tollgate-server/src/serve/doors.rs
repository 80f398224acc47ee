//! The doors that serve requests, and how each of them opens: the one place that lists them. The operators' door is not among them, as it opens first
//! and closes last.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Source;
use super::sockets::Sockets;
use crate::failure::Failure;
use tollgate_config::{AccessLogFormat, Config};
use crate::serve::connection_budget::Connections;
use crate::decider::Decider;
use crate::gateway::{Gateway, GatewayMetrics, LogFile};
use crate::listen::{self, ListenConfig, ListenMetrics, Uncounted};
use crate::proxy::{Proxy, ProxyMetrics, ProxySettings};
use crate::service;

/// Largest head of a request to the service. Gateways pass on what clients send, such as `tracestate`, and Envoy admits a request if its call is
/// rejected; by default Envoy accepts 60 KiB of headers.
const SERVICE_HEAD_BYTES: usize = 128 * 1_024;

/// Concurrent calls on one HTTP/2 connection to the service: as many as Envoy makes in all by default. It does not wait to learn the
/// limit of a new connection, and admits a request whose call is refused.
const SERVICE_STREAMS: u32 = 1_024;

/// All that a door may need to open.
pub(super) struct Opening<'a> {
    pub(super) door: &'a Decider,
    pub(super) config: &'a Arc<Config>,
    pub(super) sockets: &'a Sockets,
    /// How many connections each listener may have.
    pub(super) connections: Connections,
    /// Where a door counts what it does.
    pub(super) registry: &'a mut Registry,
    /// What is waited for at the end.
    pub(super) tasks: &'a TaskTracker,
    pub(super) stop: &'a CancellationToken,
}

impl Opening<'_> {
    /// Opens them; the access log, if there is one, may be rotated.
    pub(super) fn open_all(mut self, source: &Source) -> Result<Option<LogFile>, Failure> {
        if let Source::Demo(demo) = source {
            self.tasks.spawn(demo.serve_api(self.stop.clone())?);
        }
        let access_log = self.open_gateway()?;
        self.open_service()?;
        Ok(access_log)
    }

    /// The front, and the proxy behind it.
    fn open_gateway(&mut self) -> Result<Option<LogFile>, Failure> {
        let (Some(config), Some(socket)) = (&self.config.gateway, self.sockets.take("gateway")?)
        else {
            return Ok(None);
        };
        let (door, trusting, policies) = (self.door.clone(), self.door.clone(), self.door.clone());
        let settings = ProxySettings {
            is_tls: config.front.tls.is_some(),
            trusts: Arc::new(move |peer| trusting.policy().identity().trusts(peer)),
            client: Arc::new(move |peer, headers| {
                let policy = door.policy();
                let address = policy.identity().caller_by_address(peer, headers).ip();
                // A proxy that does not say for whom it asks stands for many.
                (!policy.identity().trusts(address)).then_some(address)
            }),
            tells_time: config.front.access_log != AccessLogFormat::Off,
            via: config.front.via,
            reserved: Arc::new(move |name| policies.policy().looks_at(name)),
        };
        let proxy = Proxy::new(
            &config.upstreams,
            settings,
            &ProxyMetrics::new(self.registry),
        )
        .map_err(|error| Failure::BadInput(error.to_string()))?;
        proxy.watch(self.stop);
        let metrics = GatewayMetrics::new(self.registry.sub_registry_with_prefix("tollgate"));
        let socket = socket
            .into_std()
            .map_err(|error| Failure::Unavailable(format!("the gateway cannot listen: {error}")))?;
        let workers = proxy.clone();
        let (behind, stop) = (move || workers.worker(), self.stop.clone());
        let front = config.front.within(self.connections.gateway);
        let gateway = Gateway::start(&front, socket, self.door, &metrics, behind, stop)
            .map_err(|error| Failure::BadInput(error.to_string()))?;
        let access_log = gateway.log_file();
        let (stop, drain) = (self.stop.clone(), config.front.drain);
        self.tasks.spawn(async move {
            stop.cancelled().await;
            // The gateway waits for what was upgraded as well.
            tokio::join!(proxy.end(drain), gateway.ended());
        });
        Ok(access_log)
    }

    fn open_service(&mut self) -> Result<(), Failure> {
        let (Some(config), Some(socket)) = (&self.config.service, self.sockets.take("service")?)
        else {
            return Ok(());
        };
        let config = config.within(self.connections.service);
        let metrics = service::Metrics::new(self.registry);
        let router = service::router(self.door.clone(), &config, metrics);
        let door = self.door.clone();
        let own = self.registry.sub_registry_with_prefix("tollgate");
        let listening = ListenConfig {
            most_connections: config.connections.max_connections,
            most_per_address: config.connections.per_address,
            uncounted: Uncounted::those(move |ip| door.policy().identity().trusts(ip)),
            most_streams: SERVICE_STREAMS,
            most_head_bytes: SERVICE_HEAD_BYTES,
            metrics: ListenMetrics::new(own.sub_registry_with_prefix("service")),
            ..ListenConfig::default()
        };
        let serving = listen::serve(socket, listening, self.stop.clone(), router);
        self.tasks.spawn(serving);
        Ok(())
    }
}
