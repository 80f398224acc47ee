//! Every request as a line, written beside those who ask.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

/// A request and what came of it.
pub struct Sent {
    /// When it was to be sent, since the start.
    pub due: Duration,
    /// How late it was sent: what the load tool itself is to blame for.
    pub lag: Duration,
    /// From when it was due to the end of its answer.
    pub took: Duration,
    pub endpoint: u8,
    pub attempt: u32,
    pub status: u16,
}

impl Sent {
    /// Instead of a status: no answer in time.
    pub const GAVE_UP: u16 = 0;
    /// Instead of a status: no connection, or it broke.
    pub const BROKEN: u16 = 1;
}

pub struct Log(Mutex<BufWriter<File>>);

impl Log {
    pub fn create(path: &str) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        writeln!(file, "due_us,lag_us,took_us,endpoint,attempt,status")?;
        Ok(Self(Mutex::new(file)))
    }

    pub fn note(&self, sent: &Sent) {
        let (due, lag, took) = (
            sent.due.as_micros(),
            sent.lag.as_micros(),
            sent.took.as_micros(),
        );
        let line = format!(
            "{due},{lag},{took},{},{},{}\n",
            sent.endpoint, sent.attempt, sent.status
        );
        if let Ok(mut file) = self.0.lock() {
            // A disk that is full is said at the end.
            let _ = file.write_all(line.as_bytes());
        }
    }

    /// The last line is when the first rider came, so that others can say what else happened at the time.
    pub fn finish(&self, began: Option<SystemTime>) -> io::Result<()> {
        let mut file = (self.0.lock()).map_err(|_| io::Error::other("a rider panicked"))?;
        let since_1970 = began.and_then(|began| began.duration_since(SystemTime::UNIX_EPOCH).ok());
        writeln!(file, "began,{}", since_1970.unwrap_or_default().as_micros())?;
        file.flush()
    }
}
