//! Phases in which the machine is busy or a process pauses, and Redis is well.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::Result;
use crate::paced::PacedLoad;
use crate::pauses::pause_every_second;
use crate::phase::{Phase, Rig};
use crate::wrk::{Plan, Wrk, mixed_script};

/// Load while processes pause, in requests per second.
const PER_SECOND: u32 = 1_000;

/// wrk with this many connections.
pub(crate) fn saturated(program: &Path, connections: u32, length: Duration) -> Result<Phase> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("mixed.lua");
    fs::write(&script, mixed_script())?;
    let plan = Plan {
        connections,
        threads: 2,
        length,
        path: "/",
        script: Some(&script),
    };
    let name = format!("saturated, {connections} connections");
    Rig::start(program)?.measure(&name, |rig| {
        let wrk = Wrk::start(rig.gateway.address(), plan)?;
        Ok((wrk.finish()?, String::new()))
    })
}

/// A fixed number of requests per second.
pub(crate) fn paced(program: &Path, per_second: u32, length: Duration) -> Result<Phase> {
    let name = format!("paced, {per_second}/s");
    Rig::start(program)?.measure(&name, |rig| {
        let load = PacedLoad::start(rig.gateway.address(), per_second);
        std::thread::sleep(length);
        Ok((load.stop()?, String::new()))
    })
}

/// Redis stops for 30 ms every second.
pub(crate) fn redis_pauses(program: &Path, length: Duration) -> Result<Phase> {
    with_pauses("Redis pauses", program, length, |rig| {
        rig.redis.process_id()
    })
}

/// The gateway itself stops for 30 ms every second.
pub(crate) fn own_stalls(program: &Path, length: Duration) -> Result<Phase> {
    with_pauses("gateway stalls", program, length, |rig| {
        rig.gateway.process_id()
    })
}

fn with_pauses(
    name: &str,
    program: &Path,
    length: Duration,
    paused: impl FnOnce(&Rig) -> u32,
) -> Result<Phase> {
    Rig::start(program)?.measure(name, |rig| {
        let load = PacedLoad::start(rig.gateway.address(), PER_SECOND);
        let pauses = pause_every_second(paused(rig), length)?;
        Ok((load.stop()?, pauses.to_string()))
    })
}
