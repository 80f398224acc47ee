//! A restart without downtime: starts the program again and hands its sockets over.
//!
//! The new process gets the sockets and reports when it is ready. For a moment both accept connections, so none is refused. If
//! it does not become ready, nothing changes.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use command_fds::{CommandFdExt as _, FdMapping};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::sockets::{READY, Sockets};

/// How long the new process may take to become ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long a process that has closed its socket may take to end.
const END_WITHIN: Duration = Duration::from_secs(1);
/// The first file descriptor that is handed over, after stdin, stdout and stderr.
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

    /// Starts the new process and waits until it is ready. Returns its process id, or why it did not become ready. It is killed if it
    /// does not, or if this is cancelled.
    pub(super) async fn start_successor(&self, sockets: &Sockets) -> Result<u32, String> {
        let (ours, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
        let mut child = self.spawn(sockets, theirs)?;
        let ours =
            (ours.set_nonblocking(true)).and_then(|()| tokio::net::UnixStream::from_std(ours));
        let mut ours = ours.map_err(|error| error.to_string())?;
        match timeout(READY_WITHIN, ours.read_u8()).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => {
                let ending = match timeout(END_WITHIN, child.wait()).await {
                    Ok(Ok(status)) => status.to_string(),
                    _ => "it had to be killed".to_owned(),
                };
                return Err(format!(
                    "the new process ended before it was ready: {ending}"
                ));
            }
            Err(_) => {
                let seconds = READY_WITHIN.as_secs();
                return Err(format!(
                    "the new process was not ready after {seconds} s and was killed"
                ));
            }
        }
        let id = child.id().ok_or("it was lost")?;
        // Dropping it would kill the process.
        std::mem::forget(child);
        Ok(id)
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
            .env_remove("LISTEN_PID")
            .kill_on_drop(true);
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
