//! Four gateways, each a process of its own, ended by their ids.

use std::fmt::Write as _;
use std::net::SocketAddr;

use sha2::{Digest as _, Sha256};
use tollgate_testing::{Program, Running};

use crate::merchants::MERCHANTS;
use crate::{Setting, tiers};

/// How many there are.
pub const COUNT: usize = 4;

/// The gateways; they end with this.
#[derive(Debug)]
pub struct Gateways {
    running: Vec<Running>,
    addresses: Vec<SocketAddr>,
}

impl Gateways {
    /// Starts them, and waits until they are ready.
    ///
    /// # Panics
    /// If one of them does not start.
    #[must_use]
    pub fn start(setting: &Setting, redis: &str, processor: SocketAddr) -> Self {
        let configuration = configuration(setting, redis, processor);
        let start = || Program::new(&setting.tollgate).serve(&configuration);
        let running: Vec<Running> = (0..COUNT).map(|_| start()).collect();
        let addresses = running.iter().map(|gateway| gateway.address("gateway"));
        Self {
            addresses: addresses.collect(),
            running,
        }
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
        for gateway in &self.running {
            let count = |source: &str| {
                gateway.count(&format!(
                    "tollgate_store_decisions_total{{source=\"{source}\"}}"
                ))
            };
            deciders.store += count("store");
            deciders.remembered += count("remembered");
            deciders.fallback += count("fallback");
        }
        deciders
    }
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
