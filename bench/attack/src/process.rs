//! Waiting for what a program prints.

use std::io::{BufRead as _, BufReader, Read};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::Result;

/// How long a program may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

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
