//! The program under attack: `tollgate serve` with a configuration of its own.

use std::net::SocketAddr;
use std::path::Path;

use tollgate_testing::{Program, Running};

use crate::Result;

/// A running program.
#[derive(Debug)]
pub(crate) struct Tollgate(Running);

impl Tollgate {
    /// Starts the program and waits until it is ready. Listeners should have port 0.
    pub(crate) fn start(program: &Path, configuration: &str) -> Self {
        let configuration = format!("log: {{ format: json }}\n{configuration}");
        Self(Program::new(program).serve(&configuration))
    }

    /// The address of a listener: `gateway`, `service` or `admin`.
    pub(crate) fn listener(&self, name: &str) -> SocketAddr {
        self.0.address(name)
    }

    /// Fails if an attack has ended the program.
    pub(crate) fn expect_running(&mut self) -> Result<()> {
        match self.0.is_running() {
            true => Ok(()),
            false => Err("tollgate has ended under attack".into()),
        }
    }
}
