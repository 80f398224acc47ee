//! The program's own log: lines on stderr, for people or for programs.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{Layer as _, fmt};

use tollgate_config::{LogConfig, LogFormat, LogLevel};

/// Begins to log. What Tollgate says is shown from the configured level on; what its libraries say, from warnings on, as they know nothing of secrets.
///
/// # Errors
/// If somebody else in this process logs already.
pub fn start(config: LogConfig) -> Result<(), TryInitError> {
    let level = level(config.level);
    let shown = Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        // And whatever begins like it.
        .with_target("tollgate", level);
    let layer = match config.format {
        LogFormat::Text => {
            let is_seen = io::stderr().is_terminal();
            let lines = fmt::layer().with_writer(io::stderr).with_ansi(is_seen);
            lines.with_target(false).boxed()
        }
        LogFormat::Json => {
            let lines = fmt::layer().with_writer(io::stderr).with_ansi(false);
            lines.json().flatten_event(true).boxed()
        }
    };
    let log = tracing_subscriber::registry();
    log.with(layer.with_filter(shown)).try_init()
}

fn level(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
