//! Stops a process for a moment again and again.

use std::fmt;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tollgate_testing::Process;

use crate::Result;

/// How long a process is stopped, and how often.
const PAUSE: Duration = Duration::from_millis(30);
const PERIOD: Duration = Duration::from_secs(1);

/// The measured lengths of all pauses.
#[derive(Debug)]
pub(crate) struct Pauses(Vec<Duration>);

impl fmt::Display for Pauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |pause: Option<&Duration>| pause.map_or(0.0, |it| it.as_secs_f64() * 1e3);
        write!(
            f,
            "{} pauses of {:.1} to {:.1} ms",
            self.0.len(),
            millis(self.0.iter().min()),
            millis(self.0.iter().max())
        )
    }
}

/// Stops the process for 30 ms every second, for `length`.
pub(crate) fn pause_every_second(process_id: u32, length: Duration) -> Result<Pauses> {
    let mut signals = Signals::to(process_id)?;
    let end = Instant::now() + length;
    let mut due = Instant::now() + PERIOD / 2;
    let mut pauses = Vec::new();
    while due < end {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        signals.send("STOP")?;
        let stopped = Instant::now();
        std::thread::sleep(PAUSE);
        signals.send("CONT")?;
        pauses.push(stopped.elapsed());
        due += PERIOD;
    }
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    Ok(Pauses(pauses))
}

/// A shell that sends signals on request.
///
/// Its `kill` is built in. A program started for each signal would take milliseconds on a busy
/// machine.
struct Signals {
    _shell: Process,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl Signals {
    fn to(process_id: u32) -> Result<Self> {
        let script =
            "while read -r signal; do kill -s \"$signal\" \"$0\" && echo sent || echo failed; done";
        let mut command = Command::new("sh");
        command.args(["-c", script, &process_id.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = Process::spawn(&mut command)?;
        let child = shell.child();
        Ok(Self {
            requests: child.stdin.take().ok_or("stdin is piped")?,
            replies: BufReader::new(child.stdout.take().ok_or("stdout is piped")?),
            _shell: shell,
        })
    }

    /// Sends a signal. Returns once it is sent.
    fn send(&mut self, signal: &str) -> Result<()> {
        writeln!(self.requests, "{signal}")?;
        let mut reply = String::new();
        self.replies.read_line(&mut reply)?;
        match reply.trim_end() {
            "sent" => Ok(()),
            _ => Err(format!("cannot send SIG{signal}").into()),
        }
    }
}
