//! A restart without downtime: starts the program again and hands its sockets over.
//!
//! The new process gets the sockets and reports when it is ready. For a moment both accept connections, so none is refused. If
//! it does not become ready, nothing changes.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use command_fds::{CommandFdExt as _, FdMapping};

use super::sockets::{READY, Sockets};

/// How long the new process may take to become ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// The first file descriptor that is handed over: those before are stdin, stdout and stderr.
const FIRST: i32 = 3;

/// How this program was started.
#[derive(Debug)]
pub(crate) struct Handover {
    /// The path at the start. By now another version may be there, which is the point of a restart.
    program: io::Result<PathBuf>,
    args: Vec<OsString>,
}

impl Handover {
    pub(super) fn of_this_program() -> Self {
        Self {
            program: std::env::current_exe(),
            args: std::env::args_os().skip(1).collect(),
        }
    }

    /// Starts the new process and waits until it is ready. Returns its process id, or why it did not become ready.
    pub(super) async fn start_successor(&self, sockets: &Sockets) -> Result<u32, String> {
        let (ours, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
        let mut started = Started(Some(self.spawn(sockets, theirs)?));
        let is_ready = wait_until_ready(ours).await?;
        match is_ready {
            true => started.release().ok_or_else(|| "it was lost".to_owned()),
            false => Err(format!(
                "the new process ended before it was ready: {}",
                started.ending().await
            )),
        }
    }

    fn spawn(&self, sockets: &Sockets, ready: UnixStream) -> Result<Child, String> {
        let program = self.program.as_ref();
        let program =
            program.map_err(|error| format!("the path of the program is unknown: {error}"))?;
        let cannot = |error: io::Error| format!("cannot start {}: {error}", program.display());
        let mut handed = sockets.to_hand_over().map_err(cannot)?;
        handed.push((READY, OwnedFd::from(ready)));
        let names: Vec<&str> = handed.iter().map(|(name, _)| *name).collect();
        let mut command = Command::new(program);
        command
            .args(&self.args)
            .env("LISTEN_FDS", handed.len().to_string())
            .env("LISTEN_FDNAMES", names.join(":"))
            // Its process id is not known before it runs.
            .env_remove("LISTEN_PID");
        let mappings = (FIRST..)
            .zip(handed)
            .map(|(child_fd, (_, parent_fd))| FdMapping {
                parent_fd,
                child_fd,
            });
        let mapped = command.fd_mappings(mappings.collect());
        mapped.map_err(|error| error.to_string())?;
        tracing::info!(program = %program.display(), "restarting");
        // Dropping the command closes the copies of the descriptors on this side.
        command.spawn().map_err(cannot)
    }
}

/// Whether the new process reports that it is ready, rather than ending.
async fn wait_until_ready(ours: UnixStream) -> Result<bool, String> {
    let waiting = tokio::task::spawn_blocking(move || {
        let mut ours = ours;
        ours.set_read_timeout(Some(READY_WITHIN))?;
        loop {
            match ours.read(&mut [0; 16]) {
                // This process was stopped and continued, which says nothing about the new one.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return Ok::<_, io::Error>(read? > 0),
            }
        }
    });
    match waiting.await {
        Ok(Ok(is_ready)) => Ok(is_ready),
        Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => Err(format!(
            "the new process was not ready after {} s and was killed",
            READY_WITHIN.as_secs()
        )),
        Ok(Err(error)) => Err(format!("cannot read from the new process: {error}")),
        Err(error) => Err(error.to_string()),
    }
}

/// A process that was started. Killed when dropped, unless released.
struct Started(Option<Child>);

impl Started {
    /// Lets it go on by itself.
    fn release(&mut self) -> Option<u32> {
        self.0.take().map(|child| child.id())
    }

    /// Its exit status, once it has ended, which may take a moment.
    async fn ending(&mut self) -> String {
        for _ in 0..100 {
            match self.0.as_mut().map(Child::try_wait) {
                Some(Ok(Some(status))) => return status.to_string(),
                Some(Ok(None)) => tokio::time::sleep(Duration::from_millis(10)).await,
                _ => break,
            }
        }
        "it had to be killed".to_owned()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
