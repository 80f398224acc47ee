//! Four gateways, each a process of its own, ended by their ids.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::Setting;
use crate::merchants::MERCHANTS;
use crate::tiers;

/// How many there are; the configuration tells them.
pub const COUNT: usize = 4;

/// The gateways; they end with this.
#[derive(Debug)]
pub struct Gateways {
    processes: Vec<Child>,
    addresses: Vec<SocketAddr>,
    _folder: TempDir,
}

impl Gateways {
    /// Starts them, and waits until they are ready.
    ///
    /// # Panics
    /// If one of them does not start.
    #[must_use]
    pub fn start(setting: &Setting, redis: &str, processor: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("tollgate.yaml");
        std::fs::write(&config, configuration(setting, redis, processor)).unwrap();
        let mut gateways = Self {
            processes: Vec::new(),
            addresses: Vec::new(),
            _folder: folder,
        };
        for _ in 0..COUNT {
            let mut process = spawn(&setting.tollgate, &config);
            let log = process.stderr.take().expect("stderr is piped");
            gateways.processes.push(process);
            gateways.addresses.push(wait_until_ready(log));
        }
        gateways
    }

    /// Where they listen.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Drop for Gateways {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn spawn(tollgate: &Path, config: &Path) -> Child {
    let mut command = Command::new(tollgate);
    command.arg("serve").arg("--config").arg(config);
    (command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn())
        .unwrap_or_else(|error| panic!("{} cannot be started: {error}", tollgate.display()))
}

/// Reads the log up to "ready", and goes on reading so that nobody waits for a full pipe.
fn wait_until_ready(log: ChildStderr) -> SocketAddr {
    let mut lines = BufReader::new(log).lines();
    let mut said = String::new();
    let mut address = None;
    for line in lines.by_ref().map_while(Result::ok) {
        let entry: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        if entry["door"] == "gateway" {
            address = entry["address"].as_str().and_then(|text| text.parse().ok());
        }
        if entry["message"] == "ready" {
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
            return address.expect("the gateway says where it listens");
        }
        said.push_str(&line);
        said.push('\n');
    }
    panic!("a gateway did not start:\n{said}")
}

/// The configuration of all four.
fn configuration(setting: &Setting, redis: &str, processor: SocketAddr) -> String {
    let open_for = setting.open_for.as_millis();
    let mut yaml = format!(
        "gateway:
  listen: 127.0.0.1:0
  workers: 1
  connections_per_address: 0
  upstreams:
    - {{ to: [\"http://{processor}\"] }}
store:
  redis: \"{redis}\"
  instances: {COUNT}
  breaker: {{ open_for: {open_for}ms }}
log: {{ format: json }}
identity: {{ client: [\"api_key:X-API-Key\", ip] }}
clients:
"
    );
    for merchant in &MERCHANTS {
        let plan = merchant
            .plan
            .map_or(String::new(), |plan| format!(", plan: {plan}"));
        let digest = Sha256::digest(merchant.key());
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let id = merchant.id;
        // Writing to a string cannot fail.
        let _ = writeln!(
            yaml,
            "  - {{ id: {id}{plan}, api_key_sha256: \"{digest}\" }}"
        );
    }
    yaml + &tiers::rules()
}
