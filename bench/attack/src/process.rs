//! Child processes that end with their owner.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::Result;

/// How long a program may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A child process, killed by its id when dropped.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Starts the command. The error names the program.
    pub(crate) fn spawn(command: &mut Command) -> Result<Self> {
        let child = command.spawn().map_err(|error| {
            let program = command.get_program().display();
            format!("cannot start {program}: {error}; `make needs` installs what is missing")
        })?;
        Ok(Self(child))
    }

    /// The child itself, to take its pipes.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_none())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads lines until `done` returns a value, and goes on reading in a thread, so that nobody waits for a full pipe.
pub(crate) fn wait_for_line<T>(
    program: &str,
    pipe: impl Read + Send + 'static,
    mut done: impl FnMut(&str) -> Option<T>,
) -> Result<T> {
    let (lines, received) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(std::io::Result::ok) {
            // Nobody receives once the program has started.
            let _ = lines.send(line);
        }
    });
    let deadline = Instant::now() + START_TIMEOUT;
    let mut output = String::new();
    loop {
        let patience = deadline.saturating_duration_since(Instant::now());
        let Ok(line) = received.recv_timeout(patience) else {
            return Err(format!("{program} did not start:\n{output}").into());
        };
        if let Some(value) = done(&line) {
            return Ok(value);
        }
        output = output + &line + "\n";
    }
}
