//! `tollgate serve`: every listener of the configuration, or the demo.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use tollgate_config::{ConfigFile, LogConfig, LogFormat, LogLevel};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{Layer as _, fmt};

use crate::cli::{CONFIG_FILE, ServeArgs};
use crate::failure::Failure;
use crate::serve::{ConfigSource, Demo, Inherited, run};

pub(super) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    // Before there are other threads, because it changes the environment.
    let mut inherited = Inherited::take();
    let default = Path::new(CONFIG_FILE);
    let file = (args.config.as_deref()).or(default.exists().then_some(default));
    let source = match file {
        Some(file) => read_source(file.to_owned())?,
        None => ConfigSource::Demo(Demo::new(&mut inherited)?),
    };
    start_log(source.config().log)
        .map_err(|error| Failure::Unavailable(format!("cannot write the log: {error}")))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Unavailable(format!("cannot start: {error}")))?;
    let ended = runtime.block_on(run(source, inherited));
    // What still runs has had its time.
    runtime.shutdown_background();
    ended
}

fn read_source(file: PathBuf) -> Result<ConfigSource, Failure> {
    if file == Path::new("-") {
        let why = "the configuration is reloaded while the program runs, so it must be a file";
        return Err(Failure::BadInput(why.to_owned()));
    }
    let read = ConfigFile::read(&file).map_err(Failure::Unavailable)?;
    let config = read
        .parse()
        .map_err(|problems| Failure::invalid(file.display(), &problems))?;
    let warnings = match config.warnings.warnings() {
        0 => String::new(),
        _ => read.render(&config.warnings),
    };
    Ok(ConfigSource::File {
        file,
        config: Box::new(config),
        warnings,
    })
}

/// Starts the program's log on stderr. Tollgate logs from the configured level on, its libraries only from warnings on, because they know
/// nothing of secrets.
fn start_log(config: LogConfig) -> Result<(), TryInitError> {
    let level = match config.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let targets = Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        // All crates whose names begin with it.
        .with_target("tollgate", level);
    let lines = fmt::layer().with_writer(io::stderr);
    let layer = match config.format {
        LogFormat::Text => {
            let is_terminal = io::stderr().is_terminal();
            lines.with_ansi(is_terminal).with_target(false).boxed()
        }
        LogFormat::Json => lines.with_ansi(false).json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(targets))
        .try_init()
}
