//! The program as a gateway, with an upstream behind it.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;

use crate::client::{Response, fetch, responses_to};
use crate::program::{Program, Running};
use crate::upstream::Upstream;
use crate::wait::eventually;

/// A rule that denies nothing in a test, and shows in its headers how many requests it counted.
pub const PLENTY: &str = "rules: [{ id: everyone, per: [], limit: \"1/h burst 800000\" }]";

/// A running gateway, with the admin listener.
#[derive(Debug)]
pub struct Gateway {
    /// The program.
    pub running: Running,
    /// The server behind it.
    pub upstream: Upstream,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Gateway {
    /// Starts a gateway before the [standard upstream](Upstream::start). `fields` are those of the section `gateway` in flow style
    /// (`max_body: 10, drain: 1s`), `rest` is the rest of the configuration; `FOLDER` stands for the folder of the program.
    #[must_use]
    pub fn start(binary: impl Into<PathBuf>, fields: &str, rest: &str) -> Self {
        Self::before(Upstream::start(), binary, fields, rest)
    }

    /// The same before another upstream.
    #[must_use]
    pub fn before(
        upstream: Upstream,
        binary: impl Into<PathBuf>,
        fields: &str,
        rest: &str,
    ) -> Self {
        Self::in_folder(Program::new(binary), upstream, fields, rest)
    }

    /// The same in a folder that was prepared.
    #[must_use]
    pub fn in_folder(program: Program, upstream: Upstream, fields: &str, rest: &str) -> Self {
        let fields = fields.replace("FOLDER", &program.folder().display().to_string());
        let to = upstream.url();
        let running = program.serve(&format!(
            "gateway: {{ listen: 127.0.0.1:0, workers: 2, upstreams: [{{ to: [{to:?}] }}], {fields} }}\n\
             admin: {{ listen: 127.0.0.1:0 }}\nlog: {{ format: json }}\n{rest}\n"
        ));
        Self {
            address: running.address("gateway"),
            running,
            upstream,
        }
    }

    /// The response to a GET on a connection of its own.
    pub async fn get(&self, path: &str) -> Response {
        fetch(self.address, path).await
    }

    /// Sends these bytes on a connection of their own, and returns all responses until it ends.
    pub async fn exchange(&self, bytes: impl AsRef<[u8]>) -> Vec<Response> {
        responses_to(self.address, bytes).await
    }

    /// Waits until a metric has an expected value.
    pub async fn until_metric(&self, name: &str, is_expected: impl Fn(f64) -> bool) {
        eventually(name, async || is_expected(self.running.metric(name))).await;
    }

    /// Waits until there were this many decisions.
    pub async fn until_decisions(&self, count: u64) {
        eventually("decisions", async || self.running.decisions() >= count).await;
    }

    /// Stops it, and returns its folder.
    pub fn stop(mut self) -> Program {
        self.running.stop();
        self.running.program.clone()
    }
}

impl Deref for Gateway {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}
