//! Child processes that end with their owner, and waiting with a limit.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use crate::Result;

/// How long a server may take to start.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A child process, killed by its id when dropped.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Starts the command. The error names the program.
    pub(crate) fn spawn(command: &mut Command) -> Result<Self> {
        let child = command.spawn();
        let child = child.map_err(|error| {
            let program = command.get_program().display();
            format!("cannot start {program}: {error}; `make steady` installs what is missing")
        })?;
        Ok(Self(child))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// The child itself, to take its pipes.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Waits for the end and returns the output. Kills the process after `timeout`.
    ///
    /// The output has to fit into a pipe (64 KiB), because it is read only after the end.
    pub(crate) fn output_within(mut self, timeout: Duration) -> Result<Output> {
        wait_until("the end of a process", timeout, || {
            Ok(self.0.try_wait()?.is_some())
        })?;
        let read = |pipe: Option<&mut dyn std::io::Read>| -> Result<Vec<u8>> {
            let mut bytes = Vec::new();
            if let Some(pipe) = pipe {
                pipe.read_to_end(&mut bytes)?;
            }
            Ok(bytes)
        };
        Ok(Output {
            stdout: read(self.0.stdout.as_mut().map(|pipe| pipe as _))?,
            stderr: read(self.0.stderr.as_mut().map(|pipe| pipe as _))?,
            status: self.0.wait()?,
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
