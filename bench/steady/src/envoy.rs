//! Envoy by the configuration in the documentation, with ports of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use tollgate_testing::Process;
use tollgate_testing::client::request;

use crate::Result;
use crate::process::{START_TIMEOUT, free_address, wait_until};

/// A running Envoy.
#[derive(Debug)]
pub(crate) struct Envoy {
    _process: Process,
    address: SocketAddr,
    _folder: TempDir,
}

impl Envoy {
    /// Starts Envoy and waits until it asks the service about requests.
    pub(crate) fn start(
        program: &Path,
        configuration: &Path,
        service: SocketAddr,
        upstream: SocketAddr,
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let address = free_address()?;
        let text = fs::read_to_string(configuration)
            .map_err(|error| format!("{}: {error}", configuration.display()))?;
        let ports = [("8080", address), ("8081", service), ("3000", upstream)];
        let text = with_ports(text, &ports)?;
        let file = folder.path().join("envoy.yaml");
        fs::write(&file, text)?;
        // A relative path would be looked up in the folder that Envoy runs in.
        let mut command = Command::new(std::path::absolute(program)?);
        command
            // Hot restart needs shared memory of a fixed name.
            .args(["--disable-hot-restart", "--log-level", "warn", "-c"])
            .arg(&file)
            .env("HOME", folder.path())
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = Process::spawn(&mut command)?;
        // Envoy admits requests until it has connected to the service.
        wait_until("Envoy to ask the service", START_TIMEOUT, || {
            let response = request(address, "GET", "/open/ready", &[], "");
            Ok(response.is_ok_and(|response| response.header("x-ratelimit-limit").is_some()))
        })?;
        Ok(Self {
            _process: process,
            address,
            _folder: folder,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Replaces the ports of the documentation. Each has to be there.
fn with_ports(text: String, ports: &[(&str, SocketAddr)]) -> Result<String> {
    // First by names that no port can contain, so that a new port is never replaced again.
    let mut text = text;
    for (port, _) in ports {
        let documented = format!("port_value: {port} ");
        if !text.contains(&documented) {
            return Err(format!("Envoy's configuration has no port {port}").into());
        }
        text = text.replace(&documented, &format!("port_value: @{port}@ "));
    }
    for (port, address) in ports {
        text = text.replace(&format!("@{port}@"), &address.port().to_string());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_port_is_not_replaced_again() {
        let text = "{ port_value: 8080 } { port_value: 8081 }".to_owned();
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let ports = [("8080", address(8081)), ("8081", address(9000))];
        let text = with_ports(text, &ports).unwrap();
        assert_eq!(text, "{ port_value: 8081 } { port_value: 9000 }");
    }

    #[test]
    fn missing_port_is_an_error() {
        let ports = [("3000", SocketAddr::from(([127, 0, 0, 1], 1)))];
        assert!(with_ports("port_value: 8080 }".to_owned(), &ports).is_err());
    }
}
