//! The thread that writes the access log, to stdout or to a file that others may move away.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, TryRecvError};

use prometheus_client::metrics::counter::Counter;

/// Where lines go.
pub(super) struct Writer {
    out: BufWriter<Box<dyn Write + Send>>,
    /// `None`: stdout.
    file: Option<PathBuf>,
    is_to_reopen: Arc<AtomicBool>,
    lost: Counter,
    is_broken: bool,
}

impl Writer {
    pub(super) fn open(
        file: Option<&Path>,
        is_to_reopen: Arc<AtomicBool>,
        lost: Counter,
    ) -> io::Result<Self> {
        let out: Box<dyn Write + Send> = match file {
            Some(file) => Box::new(opened(file)?),
            None => Box::new(io::stdout()),
        };
        Ok(Self {
            out: BufWriter::new(out),
            file: file.map(Path::to_owned),
            is_to_reopen,
            lost,
            is_broken: false,
        })
    }

    /// Writes what there is, and sees to it that it is out before it waits for more.
    pub(super) fn write_all(mut self, waiting: &Receiver<String>) {
        while let Ok(first) = waiting.recv() {
            let mut next = Ok(first);
            let written: io::Result<()> = loop {
                if self.is_to_reopen.swap(false, Relaxed) {
                    self.reopen();
                }
                match next {
                    Ok(line) => {
                        if let Err(error) = self.out.write_all(line.as_bytes()) {
                            break Err(error);
                        }
                    }
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => {
                        break self.out.flush();
                    }
                }
                next = waiting.try_recv();
            };
            self.say_how_it_went(&written);
        }
    }

    /// What was written so far belongs to the file as it was. If there can be no new one, the old one goes on: better there than nowhere.
    fn reopen(&mut self) {
        let Some(file) = &self.file else {
            return;
        };
        match opened(file) {
            Ok(new) => {
                let written = self.out.flush();
                let new = BufWriter::new(Box::new(new) as Box<dyn Write + Send>);
                // Without its destructor, which would write once more what could not be written.
                let _ = std::mem::replace(&mut self.out, new).into_parts();
                self.say_how_it_went(&written);
                tracing::info!("the access log was opened anew, as told");
            }
            Err(error) => {
                tracing::error!(%error, "the access log cannot be opened anew, and goes on in the file that is open: see that {file:?} can be written");
            }
        }
    }

    fn say_how_it_went(&mut self, written: &io::Result<()>) {
        if let Err(error) = written {
            self.lost.inc();
            // Once, and not for every line while a disk is full.
            if !self.is_broken {
                tracing::error!(%error, "the access log cannot be written: its lines are lost and counted");
            }
        }
        self.is_broken = written.is_err();
    }
}

/// A new file is for its owner and group: it says who asked for what.
fn opened(file: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o640);
    options.open(file)
}
