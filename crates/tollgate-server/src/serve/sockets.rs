//! The sockets that the program listens on: inherited, or opened at the start, all of them before anything runs.
//!
//! They are inherited as systemd passes them (LISTEN_FDS, with names in LISTEN_FDNAMES): a socket belongs to the listener of its
//! name, or else to the listener that is configured for its address.
//!
//! This is also the one place that lists how each listener opens that serves requests. The admin listener is not among them,
//! because it opens first and closes last.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use listenfd::ListenFd;
use prometheus_client::registry::Registry;
use socket2::SockRef;
use tollgate_config::Config;
use tollgate_http::body::IncomingBody;
use tollgate_http::server::{self, Handler, ServerConfig, ServerMetrics};
use tollgate_tower::layer::PeerAddr;
use tower::ServiceExt as _;

use super::connection_budget::ConnectionBudget;
use super::{ConfigSource, Tasks};
use crate::decider::Decider;
use crate::failure::Failure;
use crate::gateway::{Gateway, LogFile};
use crate::service;

/// Name of the descriptor by which the old process learns that this one is ready.
pub(super) const READY: &str = "tollgate-ready";

/// Length of the queue of connections that are not accepted yet. The standard library asks for 128, which a surge fills at once;
/// a client that finds it full tries again after a second. The system's limit (net.core.somaxconn, 4,096 by default) applies too.
const BACKLOG: i32 = 65_535;

#[derive(Debug, Default)]
pub(crate) struct Inherited {
    sockets: Vec<(String, TcpListener)>,
    ready: Option<UnixStream>,
}

impl Inherited {
    /// Takes the inherited descriptors. Changes the environment, so no other thread may run yet.
    pub(crate) fn take() -> Self {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut passed = ListenFd::from_env();
        let mut inherited = Self::default();
        for nth in 0..passed.len() {
            let name = names.next().unwrap_or_default().to_owned();
            if name == READY {
                // A connection, which the crate takes for a listener: both are Unix sockets.
                let ready = passed.take_unix_listener(nth).ok().flatten();
                inherited.ready = ready.map(|ready| UnixStream::from(OwnedFd::from(ready)));
            } else if let Ok(Some(socket)) = passed.take_tcp_listener(nth) {
                inherited.sockets.push((name, socket));
            }
        }
        inherited
    }

    /// Where this listener can listen: at its inherited socket, at the `wanted` address, or else on a free port. The socket is kept.
    pub(crate) fn at_or_elsewhere(
        &mut self,
        listener: &str,
        wanted: SocketAddr,
    ) -> io::Result<SocketAddr> {
        if let Some((_, socket)) = self.sockets.iter().find(|(name, _)| name == listener) {
            return socket.local_addr();
        }
        let elsewhere = SocketAddr::new(wanted.ip(), 0);
        let socket = TcpListener::bind(wanted).or_else(|_| TcpListener::bind(elsewhere))?;
        let address = socket.local_addr()?;
        self.sockets.push((listener.to_owned(), socket));
        Ok(address)
    }

    /// The inherited socket of this listener, if there is one.
    fn take_socket(&mut self, listener: &str, wanted: SocketAddr) -> Option<TcpListener> {
        let sockets = || self.sockets.iter();
        let is_there = |socket: &TcpListener| socket.local_addr().is_ok_and(|at| at == wanted);
        let by_name = sockets().position(|(name, socket)| {
            // An address that changed in the configuration is opened.
            name == listener && (wanted.port() == 0 || is_there(socket))
        });
        let by_address = || sockets().position(|(_, socket)| is_there(socket));
        let place = by_name.or_else(by_address)?;
        Some(self.sockets.swap_remove(place).1)
    }

    /// Closes those that no listener uses.
    pub(super) fn close_rest(&mut self) {
        for (name, socket) in self.sockets.drain(..) {
            let address = socket.local_addr().ok().map(tracing::field::display);
            let name = tollgate_config::text::escaped(&name, 80);
            let message = "closed an inherited socket that no listener uses";
            tracing::warn!(name, address, "{message}");
        }
    }

    /// Whether another process serves until this one is ready.
    pub(super) fn is_handover(&self) -> bool {
        self.ready.is_some()
    }

    /// Tells the old process that this one is ready.
    pub(super) fn report_ready(&mut self) {
        if let Some(mut ready) = self.ready.take()
            && let Err(error) = ready.write_all(b"ready\n")
        {
            tracing::warn!(%error, "failed to tell the old process that this one is ready");
        }
    }
}

/// All sockets, by the names of their listeners. They stay open until this is dropped.
#[derive(Debug)]
pub(super) struct Sockets(Vec<(&'static str, TcpListener)>);

impl Sockets {
    /// Opens those that were not inherited.
    pub(super) fn open(config: &Config, inherited: &mut Inherited) -> Result<Self, Failure> {
        let gateway = config.gateway.iter().map(|it| ("gateway", it.listen));
        let service = config.service.iter().map(|it| ("service", it.listen));
        let admin = config.admin.iter().map(|it| ("admin", it.listen));
        let mut sockets = Vec::new();
        for (listener, wanted) in gateway.chain(service).chain(admin) {
            let socket = match inherited.take_socket(listener, wanted) {
                Some(socket) => socket,
                None => TcpListener::bind(wanted)
                    .map_err(|error| cannot_listen(listener, wanted, &error))?,
            };
            // Listening again only changes the backlog, which an inherited socket needs too.
            let waiting = (SockRef::from(&socket).listen(BACKLOG))
                .and_then(|()| socket.set_nonblocking(true));
            waiting.map_err(|error| cannot_listen(listener, wanted, &error))?;
            sockets.push((listener, socket));
        }
        Ok(Self(sockets))
    }

    /// A socket for this runtime.
    pub(super) fn take(&self, listener: &str) -> Result<Option<tokio::net::TcpListener>, Failure> {
        let mut sockets = self.0.iter();
        let Some((_, socket)) = sockets.find(|(name, _)| *name == listener) else {
            return Ok(None);
        };
        let socket = socket.try_clone();
        match socket.and_then(tokio::net::TcpListener::from_std) {
            Ok(socket) => Ok(Some(socket)),
            Err(error) => Err(Failure::Unavailable(format!(
                "{listener} cannot listen: {error}"
            ))),
        }
    }

    pub(super) fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        let address = |(name, socket): &(_, TcpListener)| Some((*name, socket.local_addr().ok()?));
        self.0.iter().filter_map(address).collect()
    }

    pub(super) fn to_hand_over(&self) -> io::Result<Vec<(&'static str, OwnedFd)>> {
        let copy = |(name, socket): &(_, TcpListener)| Ok((*name, socket.try_clone()?.into()));
        self.0.iter().map(copy).collect()
    }
}

fn cannot_listen(listener: &str, wanted: SocketAddr, error: &io::Error) -> Failure {
    let help = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another program listens there: stop it, or choose another port in LISTENER.listen"
        }
        io::ErrorKind::AddrNotAvailable => {
            "; this machine does not have that address: see LISTENER.listen"
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need the capability CAP_NET_BIND_SERVICE"
        }
        _ => "",
    };
    let help = help.replace("LISTENER", listener);
    let message = format!("{listener} cannot listen at {wanted}: {error}{help}");
    Failure::Unavailable(message)
}

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
