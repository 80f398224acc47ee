//! Child processes that end with their owner.

use std::io;
use std::process::{Child, Command};

/// A child process, killed by its id when dropped.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts the command.
    ///
    /// # Errors
    /// If the program cannot be started. The error names it.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(Self).map_err(|error| {
            let program = command.get_program().display();
            let why =
                format!("cannot start {program}: {error}; `make needs` installs what is missing");
            io::Error::new(error.kind(), why)
        })
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// The child itself, to take its pipes and to wait for it.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Whether it has not ended.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Sends SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
