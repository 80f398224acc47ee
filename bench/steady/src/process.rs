//! Waiting with a limit, for processes and for anything else.

use std::net::{SocketAddr, TcpListener};
use std::process::Output;
use std::time::{Duration, Instant};

use tollgate_testing::Process;

use crate::Result;

/// How long a server may take to start.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Waits for the end and returns the output. Kills the process after `timeout`.
///
/// The output has to fit into a pipe (64 KiB), because it is read only after the end.
pub(crate) fn output_within(mut process: Process, timeout: Duration) -> Result<Output> {
    wait_until("the end of a process", timeout, || {
        Ok(process.child().try_wait()?.is_some())
    })?;
    let read = |pipe: Option<&mut dyn std::io::Read>| -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            pipe.read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    };
    Ok(Output {
        stdout: read(process.child().stdout.as_mut().map(|pipe| pipe as _))?,
        stderr: read(process.child().stderr.as_mut().map(|pipe| pipe as _))?,
        status: process.child().wait()?,
    })
}

/// Polls every 10 ms until `is_done` returns true. Fails after `timeout`.
pub(crate) fn wait_until(
    what: &str,
    timeout: Duration,
    mut is_done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + timeout;
    while !is_done()? {
        if Instant::now() > deadline {
            return Err(format!("waited {} s for {what}", timeout.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// A loopback address with a port that is free now.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
