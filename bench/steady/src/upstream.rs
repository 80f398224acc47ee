//! An nginx as the upstream, and its log of the requests that reached it.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tollgate_testing::Process;

use crate::Result;
use crate::process::{START_TIMEOUT, free_address, wait_until};

/// Header in which load generators send the time of a request, in microseconds since 1970.
pub(crate) const SENT_HEADER: &str = "X-Sent";

/// A request that reached the upstream. Times are microseconds since 1970, all of the same clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// When nginx logged it, in whole milliseconds, rounded down.
    pub(crate) at_us: u64,
    /// When the client sent it, if the client added the header.
    pub(crate) sent_us: Option<u64>,
}

/// An nginx that answers every request with 200 and logs those outside of `/open/`.
#[derive(Debug)]
pub(crate) struct Upstream {
    _process: Process,
    address: SocketAddr,
    log: PathBuf,
    _folder: TempDir,
}

/// A position in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(usize);

impl Upstream {
    /// Starts nginx and waits until it accepts connections.
    pub(crate) fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let address = free_address()?;
        let file = folder.path().join("nginx.conf");
        let log = folder.path().join("arrivals.log");
        fs::write(&file, configuration(folder.path(), &log, address))?;
        let mut command = Command::new(program());
        command.arg("-c").arg(&file);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::spawn(&mut command)?;
        wait_until("nginx", START_TIMEOUT, || {
            Ok(TcpStream::connect(address).is_ok())
        })?;
        Ok(Self {
            _process: process,
            address,
            log,
            _folder: folder,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The end of the log so far.
    pub(crate) fn mark(&self) -> Result<Mark> {
        Ok(Mark(fs::read(&self.log)?.len()))
    }

    /// Everything logged after `mark`.
    ///
    /// Waits a moment first: requests that a load generator no longer waits for may still arrive.
    pub(crate) fn arrivals_since(&self, mark: Mark) -> Result<Vec<Arrival>> {
        std::thread::sleep(Duration::from_millis(300));
        let text = fs::read_to_string(&self.log)?;
        parse_log(text.get(mark.0..).unwrap_or_default())
    }
}

/// Debian installs nginx where only root's PATH leads.
fn program() -> &'static Path {
    let sbin = Path::new("/usr/sbin/nginx");
    match sbin.exists() {
        true => sbin,
        false => Path::new("nginx"),
    }
}

/// One process, so that it can be killed by its id. The log is not buffered.
fn configuration(folder: &Path, log: &Path, address: SocketAddr) -> String {
    let folder = folder.display();
    let log = log.display();
    let sent = SENT_HEADER.to_lowercase().replace('-', "_");
    // nginx started by root would otherwise switch to a user that may not enter the folder.
    format!(
        "daemon off; master_process off; worker_processes 1; user root;
pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 8192; }}
http {{
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  keepalive_requests 1000000000;
  log_format arrival '$msec $http_{sent}';
  server {{
    listen {address} backlog=4096;
    location / {{ access_log {log} arrival; return 200 \"ok\\n\"; }}
    location /open/ {{ access_log off; return 200 \"ok\\n\"; }}
  }}
}}
"
    )
}

/// Reads lines of `seconds.millis sent_us`, where a missing header is `-`.
fn parse_log(text: &str) -> Result<Vec<Arrival>> {
    let parse = |line: &str| {
        let (at, sent) = line.split_once(' ')?;
        let (seconds, millis) = at.split_once('.')?;
        let (seconds, millis): (u64, u64) = (seconds.parse().ok()?, millis.parse().ok()?);
        let sent_us = match sent {
            "-" => None,
            sent => Some(sent.parse().ok()?),
        };
        Some(Arrival {
            at_us: seconds * 1_000_000 + millis * 1_000,
            sent_us,
        })
    };
    text.lines()
        .map(|line| parse(line).ok_or_else(|| format!("not a line of the log: {line:?}").into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_become_arrivals() {
        let arrivals = parse_log("17.042 17041500\n18.000 -\n").unwrap();
        assert_eq!(
            arrivals,
            [
                Arrival {
                    at_us: 17_042_000,
                    sent_us: Some(17_041_500)
                },
                Arrival {
                    at_us: 18_000_000,
                    sent_us: None
                }
            ]
        );
        assert_eq!(parse_log("").unwrap(), []);
    }

    #[test]
    fn bad_log_line_is_named() {
        for line in ["17.042", "17 -", "17.042 x", "x.042 -"] {
            let error = parse_log(line).unwrap_err().to_string();
            assert!(error.contains(line), "{error}");
        }
    }
}
