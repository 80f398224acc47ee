//! Four gateways, each a process of its own, ended by their ids.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::Setting;
use crate::merchants::MERCHANTS;
use crate::tiers;

/// How many there are.
pub const COUNT: usize = 4;

/// The gateways; they end with this.
#[derive(Debug)]
pub struct Gateways {
    processes: Vec<Child>,
    addresses: Vec<SocketAddr>,
    admins: Vec<SocketAddr>,
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
            admins: Vec::new(),
            _folder: folder,
        };
        for _ in 0..COUNT {
            let mut process = spawn(&setting.tollgate, &config);
            let log = process.stderr.take().expect("stderr is piped");
            gateways.processes.push(process);
            let listeners = wait_until_ready(log);
            gateways.addresses.push(listeners.gateway);
            gateways.admins.push(listeners.admin);
        }
        gateways
    }

    /// Where they listen.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

/// Who decided, of all gateways together and since their start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deciders {
    /// Redis.
    pub store: u64,
    /// A gateway that remembered a denial of Redis that had not ended yet.
    pub remembered: u64,
    /// A gateway by itself, with its share of the limit.
    pub fallback: u64,
}

impl Deciders {
    /// The share that Redis decided, of all but remembered denials, in percent. `None` if there were none.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share needs few digits")]
    pub fn store_percent(self) -> Option<f64> {
        let all = self.store + self.fallback;
        (all > 0).then(|| self.store as f64 * 100.0 / all as f64)
    }

    /// What came after `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            store: self.store - earlier.store,
            remembered: self.remembered - earlier.remembered,
            fallback: self.fallback - earlier.fallback,
        }
    }
}

impl Gateways {
    /// Who decided so far.
    ///
    /// # Panics
    /// If a gateway does not say.
    #[must_use]
    pub fn deciders(&self) -> Deciders {
        let mut deciders = Deciders::default();
        for admin in &self.admins {
            let metrics = metrics(*admin).expect("gateways say what they did");
            let count = |source: &str| {
                let begin = format!("tollgate_store_decisions_total{{source=\"{source}\"}} ");
                let line = metrics.lines().find_map(|line| line.strip_prefix(&begin));
                line.map_or(0, |count| count.parse().expect("a counter"))
            };
            deciders.store += count("store");
            deciders.remembered += count("remembered");
            deciders.fallback += count("fallback");
        }
        deciders
    }
}

fn metrics(admin: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(admin)?;
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
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

struct Listeners {
    gateway: SocketAddr,
    admin: SocketAddr,
}

/// Reads the log up to "ready", and goes on reading so that nobody waits for a full pipe.
fn wait_until_ready(log: ChildStderr) -> Listeners {
    let mut lines = BufReader::new(log).lines();
    let mut said = String::new();
    let mut addresses = HashMap::new();
    for line in lines.by_ref().map_while(Result::ok) {
        let entry: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        if let (Some(listener), Some(address)) =
            (entry["listener"].as_str(), entry["address"].as_str())
        {
            addresses.insert(listener.to_owned(), address.to_owned());
        }
        if entry["message"] == "ready" {
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
            let address =
                |listener: &str| addresses.get(listener).and_then(|text| text.parse().ok());
            return Listeners {
                gateway: address("gateway").expect("it says where the gateway listens"),
                admin: address("admin").expect("it says where operators connect"),
            };
        }
        said.push_str(&line);
        said.push('\n');
    }
    panic!("a gateway did not start:\n{said}")
}

/// The configuration of all four.
fn configuration(setting: &Setting, redis: &str, processor: SocketAddr) -> String {
    let settings = setting.store;
    let mut yaml = format!(
        "gateway:
  listen: 127.0.0.1:0
  workers: 1
  connections_per_address: 0
  upstreams:
    - {{ to: [\"http://{processor}\"] }}
admin: {{ listen: 127.0.0.1:0 }}
store: {{ redis: \"{redis}\", {settings} }}
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
