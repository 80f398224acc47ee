//! A proxy with a listener in front of it, in this process.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{Either, Full};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tollgate_http::body::{BodyLimits, IncomingBody, limited};
use tollgate_http::proxy::{
    ClientInfo, Proxy, ProxyBody, ProxyMetrics, ProxySettings, UpstreamConfig,
};
use tollgate_http::server::{self, Handler, ServerConfig};
use tollgate_testing::wait::eventually;
use tollgate_testing::{Connection, Response, TIMEOUT, client};

/// A plain GET request.
pub(crate) const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// An upstream with one server, for all paths, with the defaults.
pub(crate) fn upstream(server: SocketAddr) -> UpstreamConfig {
    upstream_at("/", &[server])
}

/// An upstream with these servers, for the paths that begin with this one.
pub(crate) fn upstream_at(path: &str, servers: &[SocketAddr]) -> UpstreamConfig {
    UpstreamConfig::new(
        path,
        servers.iter().map(|server| format!("http://{server}")),
    )
}

/// A proxy that listens. It ends with the test.
pub(crate) struct RunningProxy {
    pub(crate) address: SocketAddr,
    pub(crate) proxy: Proxy,
    pub(crate) stop: CancellationToken,
    registry: Registry,
}

impl Drop for RunningProxy {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// How a proxy is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Whether clients are taken for those of TLS.
    pub(crate) is_tls: bool,
    /// Whether all peers are trusted proxies.
    pub(crate) trusts_all: bool,
    /// Whether the listener and the proxy may take their fast paths.
    pub(crate) fast_path: bool,
    /// Limits on the bodies of requests.
    pub(crate) body: BodyLimits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            is_tls: false,
            trusts_all: false,
            fast_path: true,
            body: BodyLimits {
                max_bytes: u64::MAX,
                timeout: TIMEOUT,
            },
        }
    }
}

impl RunningProxy {
    /// For one server, with the defaults.
    pub(crate) async fn before(server: SocketAddr) -> Self {
        Self::of(&[upstream(server)]).await
    }

    /// For these upstreams, with the defaults.
    pub(crate) async fn of(upstreams: &[UpstreamConfig]) -> Self {
        Self::with(upstreams, Options::default()).await
    }

    pub(crate) async fn with(upstreams: &[UpstreamConfig], options: Options) -> Self {
        let mut registry = Registry::default();
        let metrics = ProxyMetrics::new(&mut registry);
        let settings = ProxySettings {
            is_tls: options.is_tls,
            fast_path: options.fast_path,
            ..ProxySettings::default()
        };
        let proxy = Proxy::new(upstreams, settings, &metrics).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let config = ServerConfig {
            drain: Duration::from_millis(100),
            fast_path: options.fast_path,
            ..ServerConfig::default()
        };
        let handler = Forwarding {
            proxy: proxy.clone(),
            options,
        };
        tokio::spawn(server::serve(listener, config, stop.clone(), handler));
        Self {
            address,
            proxy,
            stop,
            registry,
        }
    }

    /// The value of a metric, with its labels.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        tollgate_testing::program::metric(&text, name)
    }

    /// Waits until a metric has this value.
    pub(crate) async fn until_metric(&self, name: &str, value: f64) {
        eventually(name, async || self.metric(name) == Some(value)).await;
    }

    pub(crate) async fn connect(&self) -> Connection {
        Connection::open(self.address).await
    }

    /// The response to a request on a connection of its own, which must end after it.
    pub(crate) async fn send(&self, request: &str) -> Response {
        let mut responses = client::responses_to(self.address, request).await;
        assert_eq!(responses.len(), 1, "{request}: {responses:?}");
        responses.remove(0)
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        client::fetch(self.address, path).await
    }

    /// The responses to concurrent requests, in the order of the paths.
    pub(crate) async fn get_all(&self, paths: &[&str]) -> Vec<Response> {
        let mut fetching = JoinSet::new();
        for (nth, path) in paths.iter().enumerate() {
            let (address, path) = (self.address, (*path).to_owned());
            fetching.spawn(async move { (nth, client::fetch(address, &path).await) });
        }
        let mut responses = fetching.join_all().await;
        responses.sort_by_key(|(nth, _)| *nth);
        (responses.into_iter())
            .map(|(_, response)| response)
            .collect()
    }
}

/// Forwards every request. A failure is returned as its status and its detail.
#[derive(Clone)]
struct Forwarding {
    proxy: Proxy,
    options: Options,
}

impl Handler for Forwarding {
    type Body = Either<ProxyBody, Full<Bytes>>;

    async fn handle(
        &self,
        request: Request<IncomingBody>,
        peer: SocketAddr,
    ) -> http::Response<Self::Body> {
        let path = request.uri().path().to_owned();
        let (request, _) = limited(request, self.options.body);
        let forwarding = self.proxy.forward(
            request,
            &ClientInfo {
                peer: peer.ip(),
                address: peer.ip(),
                trusts: &|_| self.options.trusts_all,
                path: &path,
                reserved: &|| std::sync::Arc::new(|_| false),
            },
        );
        match forwarding.await.result {
            Ok(response) => response.map(Either::Left),
            Err(failure) => {
                let body = Either::Right(Full::from(failure.detail()));
                let response = http::Response::builder().status(failure.status());
                response.body(body).unwrap()
            }
        }
    }
}
