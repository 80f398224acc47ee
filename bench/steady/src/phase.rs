//! A phase under load on one gateway, with servers of its own.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use tollgate_testing::ports::free_port;
use tollgate_testing::servers::{RedisAddress, RedisServer};

use crate::Result;
use crate::figures::{Limit, Ratio};
use crate::load::Load;
use crate::metrics::Counters;
use crate::tollgate::{Tollgate, mixed_rules};
use crate::upstream::Upstream;
use crate::verdict::Verdict;

/// The limit of `/limited`.
///
/// Low enough that the slowest load here exceeds it, so that the referee has something to judge.
const LIMITED: Limit = Limit {
    rate: 100,
    burst: 100,
};

/// What was measured in a phase.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    pub(crate) name: String,
    pub(crate) load: Load,
    /// `None` where there is no store to ask.
    pub(crate) counters: Option<Counters>,
    pub(crate) verdict: Verdict,
    /// Admitted ÷ allowed, where the whole phase is compared with the limit.
    pub(crate) ratio: Option<Ratio>,
    /// Further figures, in words.
    pub(crate) note: String,
}

impl fmt::Display for Phase {
    /// One line of progress.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let load = &self.load;
        write!(f, "{}: {}/s", self.name, load.per_second())?;
        write!(f, ", p99 {} ms", millis(load.p99))?;
        if load.failed > 0 {
            write!(f, ", {} failed", load.failed)?;
        }
        if let Some(it) = self.counters {
            write!(f, ", share by store {}", it.share())?;
            write!(f, " ({} local), {} openings", it.fallback, it.openings)?;
        }
        if let Some(ratio) = self.ratio {
            write!(f, ", admitted ÷ allowed {}", ratio.three_decimals())?;
        }
        write!(f, ", excess {}", self.verdict.excess)?;
        if !self.note.is_empty() {
            write!(f, ", {}", self.note)?;
        }
        Ok(())
    }
}

/// Milliseconds with one decimal.
pub(crate) fn millis(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1e3)
}

/// One gateway over one Redis, in front of one upstream.
///
/// Each phase starts its own, so that an open breaker or an empty bucket of one phase cannot
/// change the next.
#[derive(Debug)]
pub(crate) struct Rig {
    // Fields are dropped in this order: the gateway ends before its servers.
    pub(crate) gateway: Tollgate,
    pub(crate) redis: RedisServer,
    upstream: Upstream,
}

impl Rig {
    pub(crate) fn start(program: &Path) -> Result<Self> {
        let redis = RedisServer::start_at(RedisAddress::Port(free_port()));
        let upstream = Upstream::start()?;
        let rules = mixed_rules(LIMITED);
        let gateway = Tollgate::gateway(program, &redis.url(), upstream.address(), &rules)?;
        Ok(Self {
            gateway,
            redis,
            upstream,
        })
    }

    /// Runs a load and judges it. The load returns its figures and a note.
    pub(crate) fn measure(
        &mut self,
        name: &str,
        load: impl FnOnce(&mut Self) -> Result<(Load, String)>,
    ) -> Result<Phase> {
        let mark = self.upstream.mark()?;
        let before = self.gateway.counters()?;
        let (load, note) = load(self)?;
        load.check(name)?;
        // The log first: it waits for requests that are still in flight.
        let arrivals = self.upstream.arrivals_since(mark)?;
        let counters = self.gateway.counters()?.since(before);
        Ok(Phase {
            name: name.to_owned(),
            load,
            counters: Some(counters),
            verdict: Verdict::of_stamped(&arrivals, LIMITED, counters.fallback),
            ratio: None,
            note,
        })
    }
}
