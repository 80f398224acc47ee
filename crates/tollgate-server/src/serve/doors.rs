//! The doors that serve requests, and how each of them opens: the one place that lists them. The operators' door is not among them, as it opens first
//! and closes last.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_layer::Layer as _;

use super::Source;
use super::sockets::Sockets;
use crate::commands::Failure;
use crate::config::Config;
use crate::demo;
use crate::door::Door;
use crate::listen::{self, ListenConfig};
use crate::service;

/// All that a door may need to open.
pub(super) struct Opening<'a> {
    pub(super) door: &'a Door,
    pub(super) config: &'a Arc<Config>,
    pub(super) sockets: &'a Sockets,
    /// Where a door counts what it does.
    pub(super) registry: &'a mut Registry,
    /// What is waited for at the end.
    pub(super) tasks: &'a TaskTracker,
    pub(super) stop: &'a CancellationToken,
}

impl Opening<'_> {
    pub(super) fn open_all(mut self, source: &Source) -> Result<(), Failure> {
        if let Source::Demo(demo) = source {
            self.tasks.spawn(demo.serve_api(self.stop.clone())?);
        }
        if let Some(socket) = self.sockets.take("gateway")? {
            // INSERT the gateway here, with `socket.into_std()`, as it has runtimes of its own, and
            // `self.tasks.spawn(gateway.ended())`. Until then the demo's API stands right behind the layer.
            let Source::Demo(_) = source else {
                return Err(not_there("gateway"));
            };
            let service = self
                .door
                .layer()
                .forward_normal_paths(true)
                .layer(demo::api());
            let stop = self.stop.clone();
            self.tasks.spawn(listen::serve(
                socket,
                ListenConfig::default(),
                stop,
                service,
            ));
        }
        self.open_service()?;
        Ok(())
    }

    fn open_service(&mut self) -> Result<(), Failure> {
        let (Some(config), Some(socket)) = (&self.config.service, self.sockets.take("service")?)
        else {
            return Ok(());
        };
        let metrics = service::Metrics::new(self.registry);
        let router = service::router(self.door.clone(), config, metrics);
        let serving = listen::serve(socket, ListenConfig::default(), self.stop.clone(), router);
        self.tasks.spawn(serving);
        Ok(())
    }
}

fn not_there(section: &str) -> Failure {
    Failure::BadInput(format!(
        "`{section}` cannot be run by this version yet: leave it out"
    ))
}
