//! `tollgate serve`: every listener of the configuration, or the demo.

use std::path::{Path, PathBuf};

use crate::cli::{CONFIG_FILE, ServeArgs};
use crate::failure::Failure;
use crate::log;
use crate::serve::{Demo, Inherited, Source, Start, invalid, run};
use tollgate_config::ConfigFile;

/// Runs the command.
pub(crate) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    // Before there are other threads: it changes the environment.
    let mut inherited = Inherited::take();
    let source = match file(args) {
        Some(file) => of_file(file)?,
        None => Source::Demo(Demo::new(&mut inherited)?),
    };
    log::start(source.config().log)
        .map_err(|error| Failure::Unavailable(format!("cannot write the log: {error}")))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Unavailable(format!("cannot start: {error}")))?;
    let ended = runtime.block_on(run(Start::new(source, inherited)));
    // Whatever is still under way had its time.
    runtime.shutdown_background();
    ended
}

/// The file that is meant, if one is.
fn file(args: &ServeArgs) -> Option<PathBuf> {
    let usual = || Some(PathBuf::from(CONFIG_FILE)).filter(|file| file.exists());
    args.config.clone().or_else(usual)
}

fn of_file(file: PathBuf) -> Result<Source, Failure> {
    if file == Path::new("-") {
        let why = "the configuration is followed while the program runs, so it has to be a file";
        return Err(Failure::BadInput(why.to_owned()));
    }
    let read = ConfigFile::read(&file).map_err(Failure::Unavailable)?;
    let config = read.parse().map_err(|problems| invalid(&file, &problems))?;
    let warnings = match config.warnings.warnings() {
        0 => String::new(),
        _ => read.render(&config.warnings),
    };
    Ok(Source::File {
        file,
        config: Box::new(config),
        warnings,
    })
}
