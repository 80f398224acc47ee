//! The access log: a line for each request, written when its response has been sent. A thread of its own writes the lines, and
//! requests never wait for it: if it cannot keep up, lines are dropped and counted.

mod line;
mod writer;

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::SystemTime;

use prometheus_client::metrics::counter::Counter;

use tollgate_http::server::RejectedHead;

use line::Line;
pub(super) use line::{Entry, LoggedRequest};
use tollgate_config::AccessLogFormat;
use writer::Writer;

/// Maximum number of lines that wait to be written.
const MAX_WAITING: usize = 8_192;

/// Writes lines. Its thread ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct AccessLog {
    is_json: bool,
    lines: Arc<SyncSender<String>>,
    lost: Counter,
    is_to_reopen: Arc<AtomicBool>,
}

impl AccessLog {
    /// The log, and the thread that ends when nobody holds the log any more and all lines are written; `None` if there is to be none.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(super) fn start(
        format: AccessLogFormat,
        file: Option<&Path>,
        lost: Counter,
    ) -> io::Result<Option<(Self, JoinHandle<()>)>> {
        let is_json = match format {
            AccessLogFormat::Off => return Ok(None),
            AccessLogFormat::Text => false,
            AccessLogFormat::Json => true,
        };
        let is_to_reopen = Arc::<AtomicBool>::default();
        let writer = Writer::open(file, Arc::clone(&is_to_reopen), lost.clone())?;
        let (lines, waiting) = sync_channel(MAX_WAITING);
        let thread = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || writer.write_all(&waiting))?;
        let log = Self {
            is_json,
            lines: Arc::new(lines),
            lost,
            is_to_reopen,
        };
        Ok(Some((log, thread)))
    }

    /// Writes the line of a request.
    pub(super) fn write(&self, entry: &Entry<'_>) {
        self.send(&Line::new(entry));
    }

    /// Writes the line of a head that was rejected before it was a request.
    pub(super) fn write_rejected(&self, peer: IpAddr, head: RejectedHead) {
        self.send(&Line::rejected(SystemTime::now(), peer, head));
    }

    fn send(&self, line: &Line<'_>) {
        let line = match self.is_json {
            true => line.json(),
            false => line.text(),
        };
        if self.lines.try_send(line).is_err() {
            self.lost.inc();
        }
    }

    pub(super) fn file(&self) -> LogFile {
        LogFile {
            lines: Arc::downgrade(&self.lines),
            is_to_reopen: Arc::clone(&self.is_to_reopen),
        }
    }
}

/// The file of an access log, as whoever rotates it sees it. It does not keep the log from ending.
#[derive(Clone, Debug)]
pub struct LogFile {
    lines: Weak<SyncSender<String>>,
    is_to_reopen: Arc<AtomicBool>,
}

impl LogFile {
    /// Opens the file anew by its name: what is written from now on goes to the file that has this name then. Does not wait for it.
    pub fn reopen(&self) {
        self.is_to_reopen.store(true, Relaxed);
        if let Some(lines) = self.lines.upgrade() {
            // Nothing to write, but the writer wakes. If there is no room for it, it is awake.
            let _ = lines.try_send(String::new());
        }
    }
}
