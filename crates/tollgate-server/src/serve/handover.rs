//! Starting the program anew while this one serves, and handing its sockets over.
//!
//! The new one gets the sockets and says when it is ready; both accept connections for a moment, and none is refused in between. If it does not become ready,
//! nothing has changed.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use command_fds::{CommandFdExt as _, FdMapping};

use super::sockets::{READY, Sockets};

/// How long the new program may take to become ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// The first file that is handed over: those before are input, output and errors.
const FIRST: i32 = 3;

/// How this program was started.
#[derive(Debug)]
pub(crate) struct Handover {
    /// As it was at the start: by now another version may be there, which is what is wanted.
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

    /// Starts the program anew and waits until it is ready; says its process id, or why it did not.
    pub(super) async fn start_anew(&self, sockets: &Sockets) -> Result<u32, String> {
        let (ours, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
        let mut started = Started(Some(self.spawn(sockets, theirs)?));
        let said = wait_for_word(ours).await?;
        match said {
            true => started.release().ok_or_else(|| "it was lost".to_owned()),
            false => Err(format!(
                "the new program ended before it was ready: {}",
                started.ending().await
            )),
        }
    }

    fn spawn(&self, sockets: &Sockets, ready: UnixStream) -> Result<Child, String> {
        let program = self.program.as_ref();
        let program =
            program.map_err(|error| format!("where the program lies is not known: {error}"))?;
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
        tracing::info!(program = %program.display(), "starting the program anew");
        // The command goes here, and with it this side's copies of what was handed over.
        command.spawn().map_err(cannot)
    }
}

/// Whether the new program says that it is ready, rather than ending.
async fn wait_for_word(ours: UnixStream) -> Result<bool, String> {
    let waiting = tokio::task::spawn_blocking(move || {
        let mut ours = ours;
        ours.set_read_timeout(Some(READY_WITHIN))?;
        loop {
            match ours.read(&mut [0; 16]) {
                // This process was stopped and continued; the new one may be fine.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return Ok::<_, io::Error>(read? > 0),
            }
        }
    });
    match waiting.await {
        Ok(Ok(said)) => Ok(said),
        Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => Err(format!(
            "the new program was not ready after {} s, and was ended",
            READY_WITHIN.as_secs()
        )),
        Ok(Err(error)) => Err(format!("the new program cannot be heard: {error}")),
        Err(error) => Err(error.to_string()),
    }
}

/// A program that was started. Ended if it is not wanted any more.
struct Started(Option<Child>);

impl Started {
    /// It is on its own from now on.
    fn release(&mut self) -> Option<u32> {
        self.0.take().map(|child| child.id())
    }

    /// How it ended, which may take it a moment.
    async fn ending(&mut self) -> String {
        for _ in 0..100 {
            match self.0.as_mut().map(Child::try_wait) {
                Some(Ok(Some(status))) => return status.to_string(),
                Some(Ok(None)) => tokio::time::sleep(Duration::from_millis(10)).await,
                _ => break,
            }
        }
        "it had to be ended".to_owned()
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
