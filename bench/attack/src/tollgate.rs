//! The program under attack: `tollgate serve` with a configuration of its own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::Result;
use crate::process::{Process, wait_for_line};

/// A running program.
#[derive(Debug)]
pub(crate) struct Tollgate {
    process: Process,
    listeners: HashMap<String, SocketAddr>,
    _folder: TempDir,
}

impl Tollgate {
    /// Starts the program and waits until it is ready. Listeners should have port 0.
    pub(crate) fn start(program: &Path, configuration: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("tollgate.yaml");
        std::fs::write(&file, format!("log: {{ format: json }}\n{configuration}"))?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--config").arg(&file);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = Process::spawn(&mut command)?;
        let log = process.child().stderr.take().ok_or("stderr is piped")?;
        let mut listeners = HashMap::new();
        wait_for_line("tollgate", log, |line| {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            let name = entry["listener"].as_str();
            let address = entry["address"].as_str().and_then(|text| text.parse().ok());
            if let (Some(name), Some(address)) = (name, address) {
                listeners.insert(name.to_owned(), address);
            }
            (entry["message"] == "ready").then_some(())
        })?;
        Ok(Self {
            process,
            listeners,
            _folder: folder,
        })
    }

    /// The address of a listener: `gateway`, `service` or `admin`.
    pub(crate) fn listener(&self, name: &str) -> Result<SocketAddr> {
        let address = self.listeners.get(name).copied();
        address.ok_or_else(|| format!("tollgate has no listener {name}").into())
    }

    /// Fails if an attack has ended the program.
    pub(crate) fn expect_running(&mut self) -> Result<()> {
        match self.process.is_running()? {
            true => Ok(()),
            false => Err("tollgate has ended under attack".into()),
        }
    }
}
