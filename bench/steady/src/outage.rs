//! Redis is killed under load and comes back empty.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::Result;
use crate::metrics::Counters;
use crate::paced::PacedLoad;
use crate::phase::{Phase, Rig};
use crate::tollgate::Tollgate;

const PER_SECOND: u32 = 1_000;
/// How long load runs before Redis is killed, and after it is back.
const BEFORE: Duration = Duration::from_secs(3);
const AFTER: Duration = Duration::from_secs(2);
/// How long Redis is down.
const DOWN: Duration = Duration::from_secs(5);
/// How long to wait for the breaker before giving up.
const MAX_OPEN: Duration = Duration::from_secs(10);
const MAX_BACK: Duration = Duration::from_secs(45);
/// Between two reads of `/metrics`.
const POLL: Duration = Duration::from_millis(5);

/// How long the gateway took to notice. `None`: it did not, as long as the harness waited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    /// From the kill until the breaker was open.
    open: Option<Duration>,
    /// From the first PONG until the breaker was closed and Redis decided again.
    back: Option<Duration>,
}

impl Outage {
    /// Milliseconds until the breaker opened, or how long the harness waited for it.
    pub(crate) fn open_ms(self) -> u128 {
        self.open.unwrap_or(MAX_OPEN).as_millis()
    }

    /// Milliseconds until Redis decided again, or how long the harness waited for it.
    pub(crate) fn back_ms(self) -> u128 {
        self.back.unwrap_or(MAX_BACK).as_millis()
    }

    fn note(self) -> String {
        let time = |time: Option<Duration>, max: Duration| match time {
            Some(time) => format!("after {} ms", time.as_millis()),
            None => format!("not within {} s", max.as_secs()),
        };
        format!(
            "breaker open {}, Redis decides again {}",
            time(self.open, MAX_OPEN),
            time(self.back, MAX_BACK)
        )
    }
}

/// Kills Redis under paced load, and starts it again.
pub(crate) fn outage(program: &Path) -> Result<(Phase, Outage)> {
    let mut outage = Outage {
        open: None,
        back: None,
    };
    let phase = Rig::start(program)?.measure("outage", |rig| {
        let load = PacedLoad::start(rig.gateway.address(), PER_SECOND);
        std::thread::sleep(BEFORE);
        outage = kill_and_return(rig)?;
        std::thread::sleep(AFTER);
        Ok((load.stop()?, outage.note()))
    })?;
    Ok((phase, outage))
}

fn kill_and_return(rig: &mut Rig) -> Result<Outage> {
    // A breaker that is open already would make the outage look noticed at once.
    let is_closed = |counters: Counters| !counters.breaker_is_open;
    if time_until(&rig.gateway, Instant::now(), MAX_BACK, is_closed)?.is_none() {
        return Err("the breaker is open before the outage, and stays so".into());
    }
    let killed = Instant::now();
    rig.redis.kill();
    let open = time_until(&rig.gateway, killed, MAX_OPEN, |it| it.breaker_is_open)?;
    std::thread::sleep((killed + DOWN).saturating_duration_since(Instant::now()));
    let by_store = rig.gateway.counters()?.store;
    let started = rig.redis.restart();
    let is_back = |it: Counters| !it.breaker_is_open && it.store > by_store;
    let back = time_until(&rig.gateway, started, MAX_BACK, is_back)?;
    Ok(Outage { open, back })
}

/// Polls the counters until they meet the condition. Returns the time since `start`.
fn time_until(
    gateway: &Tollgate,
    start: Instant,
    max: Duration,
    condition: impl Fn(Counters) -> bool,
) -> Result<Option<Duration>> {
    while start.elapsed() < max {
        if condition(gateway.counters()?) {
            return Ok(Some(start.elapsed()));
        }
        std::thread::sleep(POLL);
    }
    Ok(None)
}
