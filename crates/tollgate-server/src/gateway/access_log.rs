//! The access log: a line for each request, written when its response has been sent. A thread writes the lines to stdout or to a file
//! that may be rotated. Requests never wait for it: if it cannot keep up, lines are dropped and counted.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::SystemTime;

use prometheus_client::metrics::counter::Counter;
use tollgate_config::{AccessLogFormat, Front};
use tollgate_http::server::RejectedHead;

use super::log_line::LogLine;
use super::metrics::GatewayMetrics;
use super::start_failure;
use crate::failure::Failure;

/// Maximum number of lines that wait to be written.
const MAX_QUEUED: usize = 8_192;

/// Writes lines. Its thread ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct AccessLog {
    is_json: bool,
    lines: Arc<SyncSender<String>>,
    lost: Counter,
    reopen: Arc<AtomicBool>,
}

impl AccessLog {
    /// Starts the configured log, if there is one. Returns the thread too, which ends when the log is dropped and all lines are
    /// written.
    pub(super) fn start(
        front: &Front,
        metrics: &GatewayMetrics,
    ) -> Result<Option<(Self, JoinHandle<()>)>, Failure> {
        if front.access_log == AccessLogFormat::Off {
            return Ok(None);
        }
        let out: Box<dyn Write + Send> = match &front.access_log_file {
            None => Box::new(io::stdout()),
            Some(file) => Box::new(open(file).map_err(|error| {
                let why = format!("gateway.access_log_file: cannot open {file:?}: {error}");
                Failure::BadInput(why)
            })?),
        };
        let reopen = Arc::<AtomicBool>::default();
        let writer = Writer {
            out: BufWriter::new(out),
            file: front.access_log_file.clone(),
            reopen: Arc::clone(&reopen),
            lost: metrics.lines_lost.clone(),
            is_failing: false,
        };
        let (lines, queued) = sync_channel(MAX_QUEUED);
        let thread = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || writer.run(&queued))
            .map_err(|error| start_failure(&error))?;
        let log = Self {
            is_json: front.access_log == AccessLogFormat::Json,
            lines: Arc::new(lines),
            lost: metrics.lines_lost.clone(),
            reopen,
        };
        Ok(Some((log, thread)))
    }

    pub(super) fn write(&self, line: &LogLine<'_>) {
        let line = match self.is_json {
            true => line.json(),
            false => line.text(),
        };
        if self.lines.try_send(line).is_err() {
            self.lost.inc();
        }
    }

    /// Writes the line of a head that was rejected before it was a request.
    pub(super) fn write_rejected(&self, peer: IpAddr, head: RejectedHead) {
        self.write(&LogLine::rejected(SystemTime::now(), peer, head));
    }

    pub(super) fn file(&self) -> LogFile {
        LogFile {
            lines: Arc::downgrade(&self.lines),
            reopen: Arc::clone(&self.reopen),
        }
    }
}

/// The file of an access log, for log rotation. It does not keep the log running.
#[derive(Clone, Debug)]
pub(crate) struct LogFile {
    lines: Weak<SyncSender<String>>,
    reopen: Arc<AtomicBool>,
}

impl LogFile {
    /// Has the file reopened by its name, without waiting for it.
    pub(crate) fn reopen(&self) {
        self.reopen.store(true, Relaxed);
        if let Some(lines) = self.lines.upgrade() {
            // An empty line wakes the writer. If there is no room for it, the writer is awake.
            let _ = lines.try_send(String::new());
        }
    }
}

/// Writes the lines in a thread.
struct Writer {
    out: BufWriter<Box<dyn Write + Send>>,
    /// `None`: stdout.
    file: Option<PathBuf>,
    reopen: Arc<AtomicBool>,
    lost: Counter,
    is_failing: bool,
}

impl Writer {
    /// Writes the queued lines, and flushes them before it waits for more.
    fn run(mut self, queued: &Receiver<String>) {
        while let Ok(first) = queued.recv() {
            let mut next = Some(first);
            let written: io::Result<()> = loop {
                if self.reopen.swap(false, Relaxed) {
                    self.reopen();
                }
                let Some(line) = next else {
                    break self.out.flush();
                };
                if let Err(error) = self.out.write_all(line.as_bytes()) {
                    break Err(error);
                }
                next = queued.try_recv().ok();
            };
            self.report(&written);
        }
    }

    /// Lines so far belong to the old file. If the new one cannot be opened, the old one is kept.
    fn reopen(&mut self) {
        let Some(file) = &self.file else {
            return;
        };
        match open(file) {
            Ok(new) => {
                let written = self.out.flush();
                let new = BufWriter::new(Box::new(new) as Box<dyn Write + Send>);
                // Without its destructor, which would write the lines that could not be flushed.
                let _ = std::mem::replace(&mut self.out, new).into_parts();
                self.report(&written);
                tracing::info!("reopened the access log");
            }
            Err(error) => {
                tracing::error!(%error, "cannot reopen the access log, writing on to the open file: check that {file:?} can be written");
            }
        }
    }

    /// Logs the first of several failures, because a disk may stay full.
    fn report(&mut self, written: &io::Result<()>) {
        if let Err(error) = written {
            self.lost.inc();
            if !self.is_failing {
                tracing::error!(%error, "cannot write the access log, dropping and counting its lines");
            }
        }
        self.is_failing = written.is_err();
    }
}

/// Opens the file. A new one is readable for its owner and group only, because it has the requests of clients.
fn open(file: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o640);
    options.open(file)
}
