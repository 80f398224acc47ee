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

use super::sockets::Inherited;
use super::sockets::RouterHandler;
use crate::failure::Failure;

/// The configuration: a file like any other.
const CONFIG: &str = include_str!("../../assets/demo.yaml");

/// Commands to paste, and what to expect of them.
const WHAT_TO_TRY: &str = include_str!("../../assets/demo.txt");

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
