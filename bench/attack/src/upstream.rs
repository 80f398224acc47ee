//! The servers behind the gateway, and their log of what they read.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Deserialize;
use tempfile::TempDir;
use tollgate_testing::Process;

use crate::process::wait_for_line;
use crate::wire::http1;
use crate::{Result, Setting};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams");

/// A server and the parser it reads HTTP with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Node's http.
    Node,
    /// Starlette on uvicorn with h11, which takes any method.
    H11,
    /// Starlette on uvicorn with httptools, which takes trailers for headers.
    Httptools,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Node, Self::H11, Self::Httptools];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::H11 => "Starlette (h11)",
            Self::Httptools => "Starlette (httptools)",
        }
    }
}

/// A request as an upstream read it. Each list holds all readings: the first line of a header, the last, the joined ones, and so on.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Record {
    pub(crate) target: String,
    pub(crate) methods: Vec<String>,
    /// The endpoints that its routers find.
    pub(crate) routes: Vec<String>,
    /// In lower case, without ports.
    pub(crate) hosts: Vec<String>,
    pub(crate) keys: Vec<String>,
    pub(crate) bearers: Vec<String>,
    pub(crate) credentials: Vec<String>,
    pub(crate) users: Vec<String>,
    pub(crate) tenants: Vec<String>,
    pub(crate) plans: Vec<String>,
    pub(crate) addresses: Vec<String>,
    pub(crate) real_addresses: Vec<String>,
    pub(crate) trailers: Vec<String>,
    /// As they came, each `name: value`.
    pub(crate) headers: Vec<String>,
    /// The line of the log.
    #[serde(skip)]
    pub(crate) text: String,
}

impl Record {
    /// The words of cases that are mentioned in it, by themselves or by their addresses.
    pub(crate) fn words(&self) -> BTreeSet<u32> {
        let text = self.text.to_ascii_lowercase();
        let mut words = BTreeSet::new();
        for (start, _) in text.match_indices('w') {
            let digits = text
                .get(start + 1..start + 6)
                .filter(|_| text.get(start + 6..start + 7) == Some("x"));
            words.extend(digits.and_then(|digits| digits.parse::<u32>().ok()));
        }
        for network in ["198.18.", "127.200."] {
            for (start, _) in text.match_indices(network) {
                let rest = text.get(start + network.len()..).unwrap_or_default();
                let end = rest
                    .find(|c: char| !c.is_ascii_digit() && c != '.')
                    .unwrap_or(rest.len());
                let mut parts = rest.get(..end).unwrap_or_default().split('.');
                let mut part = || parts.next()?.parse::<u8>().ok().map(u32::from);
                if let (Some(c), Some(d)) = (part(), part()) {
                    words.insert(c << 8 | d);
                }
            }
        }
        words
    }
}

/// A running upstream.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    _process: Process,
    log: PathBuf,
    read: u64,
    _folder: TempDir,
}

impl Upstream {
    pub(crate) fn start(kind: Kind, setting: &Setting) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let log = folder.path().join("log");
        let mut command = match kind {
            Kind::Node => Command::new(&setting.node),
            Kind::H11 | Kind::Httptools => Command::new(&setting.python),
        };
        match kind {
            Kind::Node => command.arg(format!("{FOLDER}/node.js")).arg(&log),
            Kind::H11 => command
                .arg(format!("{FOLDER}/starlette_api.py"))
                .arg(&log)
                .arg("h11"),
            Kind::Httptools => command
                .arg(format!("{FOLDER}/starlette_api.py"))
                .arg(&log)
                .arg("httptools"),
        };
        // It ends with its standard input, also if this process is killed.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command)?;
        let output = process.child().stdout.take().ok_or("stdout is piped")?;
        let port = wait_for_line(kind.name(), output, |line| line.trim().parse::<u16>().ok())?;
        Ok(Self {
            kind,
            address: (Ipv4Addr::LOCALHOST, port).into(),
            _process: process,
            log,
            read: 0,
            _folder: folder,
        })
    }

    /// The requests since the last call, by what is in the log once the upstream has answered a request of ours.
    pub(crate) fn records(&mut self) -> Result<Vec<Record>> {
        let last = b"GET /end-of-run HTTP/1.1\r\nHost: upstream\r\nConnection: close\r\n\r\n";
        let answer = http1::exchange(self.address, Ipv4Addr::LOCALHOST, last);
        if answer.status != Some(200) {
            return Err(format!("{} does not answer", self.kind.name()).into());
        }
        let mut file = File::open(&self.log)?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut text = String::new();
        self.read += file.read_to_string(&mut text)? as u64;
        let mut records = Vec::new();
        for line in text.lines() {
            let mut record: Record = serde_json::from_str(line)?;
            line.clone_into(&mut record.text);
            records.push(record);
        }
        records.retain(|record| record.target != "/end-of-run");
        Ok(records)
    }
}
