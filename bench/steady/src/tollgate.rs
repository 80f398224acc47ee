//! The program under test: `tollgate serve` with a configuration of its own.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

use tempfile::TempDir;

use crate::Result;
use crate::figures::Limit;
use crate::metrics::{Counters, get};
use crate::process::{Process, START_TIMEOUT, wait_until};

/// A running tollgate.
#[derive(Debug)]
pub(crate) struct Tollgate {
    process: Process,
    /// The listener under load: the gateway or the decision service.
    address: SocketAddr,
    admin: Option<SocketAddr>,
    _folder: TempDir,
}

impl Tollgate {
    /// Starts a gateway over Redis, and waits until Redis decides for it.
    ///
    /// Everything is at its default except for addresses, the log's format, the rules, and the
    /// number of connections of one address, because all load comes from one.
    pub(crate) fn gateway(
        program: &Path,
        redis: &str,
        upstream: SocketAddr,
        rules: &str,
    ) -> Result<Self> {
        let configuration = format!(
            "gateway:
  listen: 127.0.0.1:0
  connections_per_address: 0
  upstreams: [{{ to: [\"http://{upstream}\"] }}]
admin: {{ listen: 127.0.0.1:0 }}
store: {{ redis: \"{redis}\" }}
log: {{ format: json }}
{rules}"
        );
        let tollgate = Self::start(program, &configuration, &["gateway", "admin"])?;
        wait_until("a decision by Redis", START_TIMEOUT, || {
            get(tollgate.address, "/open/ready")?;
            Ok(tollgate.counters()?.store > 0)
        })?;
        Ok(tollgate)
    }

    /// Starts a decision service in memory.
    pub(crate) fn service(program: &Path, rules: &str) -> Result<Self> {
        let configuration =
            format!("service: {{ listen: 127.0.0.1:0 }}\nlog: {{ format: json }}\n{rules}");
        Self::start(program, &configuration, &["service"])
    }

    fn start(program: &Path, configuration: &str, listeners: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("tollgate.yaml");
        fs::write(&file, configuration)?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--config").arg(&file);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = Process::spawn(&mut command)?;
        let log = process.child().stderr.take().ok_or("stderr is piped")?;
        let addresses = addresses(log, listeners)?;
        let address = |name: &str| addresses.get(name).copied();
        Ok(Self {
            process,
            address: address(listeners[0]).ok_or("a tollgate has no listener")?,
            admin: address("admin"),
            _folder: folder,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Reads `/metrics`.
    pub(crate) fn counters(&self) -> Result<Counters> {
        let admin = self.admin.ok_or("this tollgate has no admin listener")?;
        Counters::parse(&get(admin, "/metrics")?)
    }
}

/// Rules for a gateway under mixed load: four tiers that never deny, and one that does.
///
/// `/open/…` meets the four, so that every request has to ask Redis. `/limited` meets the fifth as
/// well, which denies a part of every load here.
pub(crate) fn mixed_rules(limited: Limit) -> String {
    format!(
        "routes: [\"/open/{{item}}\"]
rules:
  - {{ id: address, per: [ip], limit: 1000000/s }}
  - {{ id: address-route, per: [ip, route], limit: 1000000/s }}
  - {{ id: route, per: [route], limit: 1000000/s }}
  - {{ id: everyone, per: [], limit: 1000000/s }}
  - {{ id: limited, match: {{ path: /limited }}, per: [], limit: \"{limited}\" }}
"
    )
}

/// One rule for everybody.
pub(crate) fn one_rule(limit: Limit) -> String {
    format!("rules: [{{ id: everyone, per: [], limit: \"{limit}\" }}]\n")
}

/// Reads the addresses of these listeners from the log.
///
/// A thread reads the log to its end, so that tollgate never waits for a full pipe.
fn addresses(log: ChildStderr, listeners: &[&str]) -> Result<HashMap<String, SocketAddr>> {
    let (lines, received) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(std::io::Result::ok) {
            // Nobody receives any more once all addresses are known.
            let _ = lines.send(line);
        }
    });
    let deadline = Instant::now() + START_TIMEOUT;
    let mut addresses = HashMap::new();
    let mut log = String::new();
    while !listeners.iter().all(|name| addresses.contains_key(*name)) {
        let patience = deadline.saturating_duration_since(Instant::now());
        let Ok(line) = received.recv_timeout(patience) else {
            return Err(format!("tollgate did not start:\n{log}").into());
        };
        addresses.extend(parse_listener(&line));
        log = log + &line + "\n";
    }
    Ok(addresses)
}

/// The name and address of a listener, if the line is about one.
fn parse_listener(line: &str) -> Option<(String, SocketAddr)> {
    let entry: serde_json::Value = serde_json::from_str(line).ok()?;
    let name = entry["listener"].as_str()?;
    Some((name.to_owned(), entry["address"].as_str()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_is_read_from_a_log_line() {
        let address = "127.0.0.1:41063".parse().unwrap();
        let line = r#"{"listener":"gateway","address":"127.0.0.1:41063"}"#;
        let expected = ("gateway".to_owned(), address);
        assert_eq!(parse_listener(line), Some(expected));
        assert_eq!(parse_listener("{\"message\":\"ready\"}"), None);
        assert_eq!(parse_listener("not JSON"), None);
    }
}
