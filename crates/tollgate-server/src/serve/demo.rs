//! The demo that runs where nothing is configured: a small API, rules for it, and commands to try.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use tokio_util::sync::CancellationToken;
use tollgate_config::Config;
use tollgate_http::server::{self, ServerConfig};

use super::listeners::RouterHandler;
use super::sockets::Inherited;
use crate::failure::Failure;

/// The configuration: a file like any other.
const CONFIG: &str = include_str!("../../assets/demo.yaml");

/// The demo, with the socket of its API.
#[derive(Debug)]
pub(crate) struct Demo {
    config: Box<Config>,
    api: TcpListener,
}

impl Demo {
    /// A demo on the usual ports, or on free ones if those are in use.
    pub(crate) fn new(inherited: &mut Inherited) -> Result<Self, Failure> {
        let api = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(cannot)?;
        api.set_nonblocking(true).map_err(cannot)?;
        let port = api.local_addr().map_err(cannot)?.port().to_string();
        let variable = |name: &str| (name == "TOLLGATE_DEMO_API_PORT").then(|| port.clone());
        let mut config = tollgate_config::parse(CONFIG, &variable)
            .map_err(|problems| Failure::BadInput(problems.to_string()))?;
        if let Some(gateway) = &mut config.gateway {
            let address = inherited.at_or_elsewhere("gateway", gateway.listen);
            gateway.listen = address.map_err(cannot)?;
        }
        if let Some(admin) = &mut config.admin {
            let address = inherited.at_or_elsewhere("admin", admin.listen);
            admin.listen = address.map_err(cannot)?;
        }
        Ok(Self {
            config: Box::new(config),
            api,
        })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Serves the API at an address of its own, as an upstream.
    pub(crate) fn serve_api(
        &self,
        stop: CancellationToken,
    ) -> Result<impl Future<Output = ()> + use<>, Failure> {
        let socket = self.api.try_clone().map_err(cannot)?;
        let socket = tokio::net::TcpListener::from_std(socket).map_err(cannot)?;
        let handler = RouterHandler(api());
        Ok(server::serve(
            socket,
            ServerConfig::default(),
            stop,
            handler,
        ))
    }

    /// Prints commands to paste, and what to expect of them.
    pub(crate) fn print_what_to_try(&self, listens: &[(&'static str, SocketAddr)]) {
        let at = |listener: &str| {
            let mut listens = listens.iter();
            let found = listens.find(|(name, _)| *name == listener);
            found.map_or_else(String::new, |(_, at)| at.to_string())
        };
        let text = WHAT_TO_TRY
            .replace("GATEWAY", &at("gateway"))
            .replace("ADMIN", &at("admin"));
        // If stdout is closed, the demo runs all the same.
        let _ = io::stdout().lock().write_all(text.as_bytes());
    }
}

fn cannot(error: impl Display) -> Failure {
    Failure::Unavailable(format!("the demo cannot start: {error}"))
}

/// A few endpoints to be limited.
fn api() -> Router {
    let slow = || async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        "that took two seconds\n"
    };
    Router::new()
        .route("/hello", get(async || "hello\n"))
        .route("/v1/charges", post(async || "{\"charged\":true}\n"))
        .route("/drivers/location", post(async || "thank you\n"))
        .route("/slow", get(slow))
}

const WHAT_TO_TRY: &str = "
This is a demo: there is no tollgate.yaml here. A small API stands behind the gateway at http://GATEWAY
with example rules; usage is kept in memory. Try in another terminal:

  # 1 a second with bursts of 5: five pass, then 429
  for i in 1 2 3 4 5 6 7; do curl -s -o /dev/null -w '%{http_code}\\n' http://GATEWAY/hello; done

  # the headers that tell a client its limits, and why it is denied
  curl -si http://GATEWAY/hello

  # alice has the plan pro, with ten times the limit
  for i in 1 2 3 4 5 6 7; do curl -s -o /dev/null -w '%{http_code}\\n' -H 'X-User-Id: alice' http://GATEWAY/hello; done

  # three charges in any ten seconds
  for i in 1 2 3 4 5; do curl -s -o /dev/null -w '%{http_code}\\n' -X POST http://GATEWAY/v1/charges; done

  # a leaky bucket: the queue releases two updates a second, and those beyond its size are denied
  for i in 1 2 3 4 5 6 7 8; do curl -s -o /dev/null -w '%{http_code} after %{time_total} s\\n' -X POST http://GATEWAY/drivers/location & done; wait

  # decisions by rule and outcome, and the clients that are denied most
  curl -s http://ADMIN/metrics | grep tollgate_decisions_total
  curl -s http://ADMIN/v1/top

Ctrl-C stops it. `tollgate init` writes a configuration of your own.

";
