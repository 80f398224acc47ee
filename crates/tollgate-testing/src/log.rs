//! A log that is kept in memory, so that a test can read what was said.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

const PATIENCE: Duration = Duration::from_secs(60);

/// The lines of the log so far. A clone is the same log.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// All of it.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// How often this was said.
    #[must_use]
    pub fn times(&self, words: &str) -> usize {
        self.text().matches(words).count()
    }

    /// Waits until this is said.
    pub async fn wait_for(&self, words: &str) {
        let patience = Instant::now() + PATIENCE;
        while self.times(words) == 0 {
            assert!(
                Instant::now() < patience,
                "no {words:?} in:\n{}",
                self.text()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
