//! One rule for everybody, and everything that was admitted compared with it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tollgate_testing::ports::free_port;
use tollgate_testing::servers::{RedisAddress, RedisServer};

use crate::Result;
use crate::envoy::Envoy;
use crate::figures::{Limit, Ratio};
use crate::load::Load;
use crate::metrics::Counters;
use crate::paced::now_us;
use crate::phase::Phase;
use crate::tollgate::{Tollgate, one_rule};
use crate::upstream::{Arrival, Upstream};
use crate::verdict::{LOG_PRECISION_US, Verdict};
use crate::wrk::{Plan, Wrk};

const LIMIT: Limit = Limit {
    rate: 100,
    burst: 200,
};
const GATEWAYS: u32 = 4;
const CONNECTIONS: u32 = 64;
/// Long enough to fill the bucket after the requests that waited for readiness.
const REFILL: Duration = Duration::from_millis(2_500);

/// Four gateways on one Redis, all under load.
pub(crate) fn four_gateways(program: &Path, length: Duration) -> Result<Phase> {
    let redis = RedisServer::start_at(RedisAddress::Port(free_port()));
    let upstream = Upstream::start()?;
    let start = |_| Tollgate::gateway(program, &redis.url(), upstream.address(), &one_rule(LIMIT));
    let gateways: Vec<_> = (0..GATEWAYS).map(start).collect::<Result<_>>()?;
    let addresses: Vec<_> = gateways.iter().map(Tollgate::address).collect();
    let counters = || -> Result<Counters> {
        let mut counters = gateways.iter().map(Tollgate::counters);
        counters.try_fold(Counters::default(), |sum, it| Ok(sum + it?))
    };
    std::thread::sleep(REFILL);
    let before = counters()?;
    let run = Run::of(&addresses, &upstream, length)?;
    let counters = counters()?.since(before);
    Ok(Phase {
        counters: Some(counters),
        ..run.phase("four gateways", counters.fallback)
    })
}

/// Envoy, which asks a decision service in memory.
pub(crate) fn envoy(
    program: &Path,
    envoy: &Path,
    configuration: &Path,
    length: Duration,
) -> Result<Phase> {
    let upstream = Upstream::start()?;
    let service = Tollgate::service(program, &one_rule(LIMIT))?;
    let envoy = Envoy::start(envoy, configuration, service.address(), upstream.address())?;
    std::thread::sleep(REFILL);
    let run = Run::of(&[envoy.address()], &upstream, length)?;
    // The service decides in memory, so there is no failed store to explain any excess.
    Ok(run.phase("envoy", 0))
}

/// Load on a shared rule.
struct Run {
    load: Load,
    started_us: u64,
    arrivals: Vec<Arrival>,
}

impl Run {
    /// Runs wrk on all addresses at once, 64 connections in all.
    fn of(addresses: &[SocketAddr], upstream: &Upstream, length: Duration) -> Result<Self> {
        let count = u32::try_from(addresses.len())?;
        let plan = Plan {
            connections: CONNECTIONS / count,
            threads: if count == 1 { 2 } else { 1 },
            length,
            path: "/shared",
            script: None,
        };
        let mark = upstream.mark()?;
        let started_us = now_us();
        let start = |address: &SocketAddr| Wrk::start(*address, plan);
        let running: Vec<_> = addresses.iter().map(start).collect::<Result<_>>()?;
        let loads: Vec<_> = running
            .into_iter()
            .map(Wrk::finish)
            .collect::<Result<_>>()?;
        let load = loads.into_iter().reduce(Load::beside);
        Ok(Self {
            load: load.ok_or("no address to load")?,
            started_us,
            arrivals: upstream.arrivals_since(mark)?,
        })
    }

    /// Judges the run.
    ///
    /// Every decision lies between the start of the load and the last arrival, and the bucket was
    /// full at the start. So burst + rate × that time is what the limit allows, however long
    /// requests took from the decision to the log. Taking the time between the first and the last
    /// arrival instead could call an exact limiter wrong.
    fn phase(self, name: &str, local: u64) -> Phase {
        let last_us = self.arrivals.iter().map(|arrival| arrival.at_us).max();
        let end_us = last_us.unwrap_or(self.started_us) + LOG_PRECISION_US;
        let length_us = end_us.saturating_sub(self.started_us);
        // wrk's requests carry no time. Its longest latency bounds the delay of each of them.
        let delay = self.load.max.unwrap_or(self.load.length);
        let delay_us = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        let verdict = Verdict::new(&self.arrivals, LIMIT, delay_us, local);
        Phase {
            name: name.to_owned(),
            load: self.load,
            counters: None,
            verdict,
            ratio: Some(Ratio::new(verdict.admitted, LIMIT, length_us)),
            note: String::new(),
        }
    }
}
