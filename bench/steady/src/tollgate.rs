//! The program under test: `tollgate serve` with a configuration of its own.

use std::net::SocketAddr;
use std::path::Path;

use tollgate_testing::{Program, Running};

use crate::Result;
use crate::figures::Limit;
use crate::metrics::Counters;
use crate::process::{START_TIMEOUT, wait_until};

/// A running tollgate.
#[derive(Debug)]
pub(crate) struct Tollgate {
    running: Running,
    /// The listener under load: the gateway or the decision service.
    address: SocketAddr,
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
        let tollgate = Self::start(program, &configuration, "gateway");
        wait_until("a decision by Redis", START_TIMEOUT, || {
            let _ = tollgate.running.get("gateway", "/open/ready", &[]);
            Ok(tollgate.counters()?.store > 0)
        })?;
        Ok(tollgate)
    }

    /// Starts a decision service in memory.
    pub(crate) fn service(program: &Path, rules: &str) -> Result<Self> {
        let configuration =
            format!("service: {{ listen: 127.0.0.1:0 }}\nlog: {{ format: json }}\n{rules}");
        Ok(Self::start(program, &configuration, "service"))
    }

    fn start(program: &Path, configuration: &str, listener: &str) -> Self {
        let running = Program::new(program).serve(configuration);
        let address = running.address(listener);
        Self { running, address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.running.pid()
    }

    /// Reads `/metrics`.
    pub(crate) fn counters(&self) -> Result<Counters> {
        Counters::parse(&self.running.metrics())
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
