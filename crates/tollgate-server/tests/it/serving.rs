//! The program as it runs: started by a test, asked over its sockets, and ended with the test.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::Program;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A program that serves. All that it starts writes to the same log, and is ended with it.
pub(crate) struct Serving {
    pub(crate) program: Program,
    child: Child,
    log: Arc<Mutex<String>>,
    out: Arc<Mutex<String>>,
}

impl Serving {
    /// By this configuration, which is to log JSON.
    pub(crate) fn by(config: &str) -> Self {
        Self::started(config, |_| {})
    }

    /// The same, started in a way of the test's own.
    pub(crate) fn started(config: &str, prepare: impl FnOnce(&mut Command)) -> Self {
        let program = Program::new();
        program.write("tollgate.yaml", config);
        Self::start(program, prepare)
    }

    /// Without a configuration.
    pub(crate) fn demo() -> Self {
        Self::start(Program::new(), |_| {})
    }

    fn start(program: Program, prepare: impl FnOnce(&mut Command)) -> Self {
        let serving = Self::spawn(program, prepare);
        serving.wait_for("ready");
        serving
    }

    /// By this configuration, from the first moment on: it may never be ready.
    pub(crate) fn starting(config: &str) -> Self {
        let program = Program::new();
        program.write("tollgate.yaml", config);
        Self::spawn(program, |_| {})
    }

    fn spawn(program: Program, prepare: impl FnOnce(&mut Command)) -> Self {
        let mut command = program.bare(&["serve"]);
        prepare(&mut command);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = gathered(child.stderr.take().unwrap());
        let out = gathered(child.stdout.take().unwrap());
        Self {
            program,
            child,
            log,
            out,
        }
    }

    /// What it logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// What it printed so far.
    pub(crate) fn out(&self) -> String {
        self.out.lock().unwrap().clone()
    }

    /// Waits until these words are in the log.
    pub(crate) fn wait_for(&self, words: &str) {
        until(
            &format!("{words:?} in the log"),
            || self.log(),
            |log| log.contains(words),
        );
    }

    /// Where a door listens, as the log says it.
    pub(crate) fn address(&self, door: &str) -> SocketAddr {
        let log = self.log();
        let line = |form: &str| {
            log.lines()
                .find(|line| line.contains(form))
                .map(str::to_owned)
        };
        let line =
            line(&format!("\"door\":\"{door}\"")).or_else(|| line(&format!("door=\"{door}\"")));
        let line = line.unwrap_or_else(|| panic!("{door} is not in the log: {log}"));
        let (_, address) = line.split_once("address").unwrap();
        let is_part = |c: &char| c.is_ascii_digit() || matches!(c, '.' | ':');
        let address: String = address
            .chars()
            .skip_while(|c| !c.is_ascii_digit())
            .take_while(is_part)
            .collect();
        address.parse().unwrap()
    }

    /// The value of a metric without labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let page = self.get("admin", "/metrics", &[]).body;
        let mut lines = page.lines().filter_map(|line| line.split_once(' '));
        let line = lines.find(|(found, _)| *found == name);
        let (_, value) = line.unwrap_or_else(|| panic!("there is no {name} in\n{page}"));
        value.parse().unwrap()
    }

    /// Asks a door.
    pub(crate) fn get(&self, door: &str, path: &str, fields: &[&str]) -> Answer {
        ask(self.address(door), "GET", path, fields).unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let patience = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < patience, "it does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Every program that said in this log that it starts.
    fn all_pids(&self) -> Vec<u32> {
        let log = self.log();
        let pids = log
            .lines()
            .filter(|line| line.contains("starting") && line.contains("pid"));
        let digits = |line: &str| -> Option<u32> {
            let (_, rest) = line.split_once("pid")?;
            let digits = rest.chars().skip_while(|c| !c.is_ascii_digit());
            digits
                .take_while(char::is_ascii_digit)
                .collect::<String>()
                .parse()
                .ok()
        };
        pids.filter_map(digits).collect()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let has_ended = matches!(self.child.try_wait(), Ok(Some(_)));
        let own = self.child.id();
        // Those it handed over to are not its children's children any more, so they are ended by their ids.
        for pid in self.all_pids() {
            if pid != own {
                signal(pid, "KILL");
            }
        }
        if !has_ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn gathered(stream: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let gathering = Arc::clone(&text);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut text = gathering.lock().unwrap();
            text.push_str(&line);
            text.push('\n');
        }
    });
    text
}

fn signal(pid: u32, name: &str) {
    let kill = format!("kill -{name} {pid} 2>/dev/null");
    Command::new("sh").args(["-c", &kill]).status().unwrap();
}

/// Looks again and again until it is as it should be, and says what it is.
pub(crate) fn until<T: std::fmt::Debug>(
    what: &str,
    look: impl Fn() -> T,
    is_so: impl Fn(&T) -> bool,
) -> T {
    let patience = Instant::now() + PATIENCE;
    loop {
        let seen = look();
        if is_so(&seen) {
            return seen;
        }
        assert!(
            Instant::now() < patience,
            "waited in vain for {what}: {seen:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// An answer over HTTP.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// One request on a connection of its own, as simple clients do.
pub(crate) fn ask(
    at: SocketAddr,
    method: &str,
    path: &str,
    fields: &[&str],
) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\ncontent-length: 0\r\n{fields}\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said)?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let cut = || std::io::Error::other(format!("not a whole answer: {said:?}"));
    let (head, body) = said.split_once("\r\n\r\n").ok_or_else(cut)?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .ok_or_else(cut)?;
    Ok(Answer {
        status,
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    })
}
