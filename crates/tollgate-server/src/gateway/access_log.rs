//! The access log: a line for each request, when its answer has gone out. Lines are written by a thread of its own, which requests never wait for:
//! when it cannot keep up, lines are lost and counted.

mod line;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use prometheus_client::metrics::counter::Counter;

use crate::config::AccessLogFormat;
pub(super) use line::{Asked, Told};

/// So many lines may wait to be written.
const MOST_WAITING: usize = 8_192;

/// Takes lines for as long as somebody holds it.
#[derive(Clone, Debug)]
pub(super) struct AccessLog {
    is_json: bool,
    lines: SyncSender<String>,
    lost: Counter,
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
        let out: Box<dyn Write + Send> = match file {
            Some(file) => Box::new(File::options().append(true).create(true).open(file)?),
            None => Box::new(io::stdout()),
        };
        let (lines, waiting) = sync_channel(MOST_WAITING);
        let counter = lost.clone();
        let writer = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write_all(&waiting, BufWriter::new(out), &counter))?;
        let log = Self {
            is_json,
            lines,
            lost,
        };
        Ok(Some((log, writer)))
    }

    pub(super) fn note(&self, asked: &Asked, told: &Told<'_>) {
        let line = match self.is_json {
            true => line::json(asked, told),
            false => line::text(asked, told),
        };
        if self.lines.try_send(line).is_err() {
            self.lost.inc();
        }
    }
}

/// Writes what there is, and sees to it that it is out before it waits for more.
fn write_all(waiting: &Receiver<String>, mut out: impl Write, lost: &Counter) {
    let mut is_broken = false;
    while let Ok(first) = waiting.recv() {
        let mut next = Ok(first);
        let written: io::Result<()> = loop {
            match next {
                Ok(line) => {
                    if let Err(error) = out.write_all(line.as_bytes()) {
                        break Err(error);
                    }
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break out.flush(),
            }
            next = waiting.try_recv();
        };
        if let Err(error) = &written {
            lost.inc();
            // Once, and not for every line while a disk is full.
            if !is_broken {
                tracing::error!(%error, "the access log cannot be written: its lines are lost and counted");
            }
        }
        is_broken = written.is_err();
    }
}
