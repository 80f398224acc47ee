//! `tollgate check-config`: reports all problems of a configuration at once.

use std::io::{self, Write};

use serde_json::json;
use tollgate_config::document::Problems;
use tollgate_config::{ConfigFile, Summary};

use super::print_json;
use crate::cli::CheckConfigArgs;
use crate::failure::Failure;

pub(super) fn check_config(args: &CheckConfigArgs, out: &mut impl Write) -> Result<(), Failure> {
    let file = ConfigFile::read(&args.file).map_err(Failure::Unavailable)?;
    let checked = match args.no_files {
        true => file.check_alone(),
        false => file.check_with_files(),
    };
    let (problems, summary) = match checked {
        Ok(config) => (config.warnings.clone(), Some(Summary::of(&config))),
        Err(problems) => (problems, None),
    };
    let is_ok = summary.is_some() && !(args.strict && problems.warnings() > 0);
    match args.json {
        true => {
            let report = json!({
                "file": file.name(),
                "ok": is_ok,
                "errors": problems.errors(),
                "warnings": problems.warnings(),
                "problems": problems.to_json(file.name()),
                "summary": summary,
            });
            print_json(out, &report)?;
        }
        false => print(&file, &problems, summary.as_ref(), is_ok, out)?,
    }
    match is_ok {
        true => Ok(()),
        false => Err(Failure::Reported),
    }
}

/// Prints problems to stderr. The summary goes to `out` if the configuration can be used.
fn print(
    file: &ConfigFile,
    problems: &Problems,
    summary: Option<&Summary>,
    is_ok: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut err = io::stderr().lock();
    write!(err, "{}", file.render(problems))?;
    let counts = [
        (problems.errors(), "error"),
        (problems.warnings(), "warning"),
    ];
    let found: Vec<String> = (counts.into_iter().filter(|(count, _)| *count > 0))
        .map(|(count, noun)| format!("{count} {noun}{}", if count == 1 { "" } else { "s" }))
        .collect();
    let (name, found) = (file.name(), found.join(" and "));
    match summary {
        Some(summary) if is_ok && found.is_empty() => writeln!(out, "{name} is fine\n{summary}"),
        Some(summary) if is_ok => writeln!(out, "{name} is fine, with {found}\n{summary}"),
        Some(_) => writeln!(err, "{name} has {found}, and --strict allows none"),
        None => writeln!(err, "{name} has {found}"),
    }
}
