//! `tollgate check-config`: everything that is wrong with a configuration, at once.

use std::io::{self, Write};
use std::path::Path;

use serde_json::json;

use crate::cli::CheckConfigArgs;
use crate::failure::Failure;
use tollgate_config::document::Problems;
use tollgate_config::{ConfigFile, Summary};

/// Runs the command.
pub(crate) fn check_config(args: &CheckConfigArgs) -> Result<(), Failure> {
    let checked = Checked::read(&args.file, args.no_files)?;
    match args.json {
        true => checked.print_json(args.strict, &mut io::stdout().lock())?,
        false => checked.print(
            args.strict,
            &mut io::stdout().lock(),
            &mut io::stderr().lock(),
        )?,
    }
    match checked.is_good(args.strict) {
        true => Ok(()),
        false => Err(Failure::AlreadySaid),
    }
}

struct Checked {
    file: ConfigFile,
    problems: Problems,
    /// If it can be used.
    summary: Option<Summary>,
}

impl Checked {
    fn read(file: &Path, no_files: bool) -> Result<Self, Failure> {
        let file = ConfigFile::read(file).map_err(Failure::Unavailable)?;
        let checked = match no_files {
            true => file.check_alone(),
            false => file.check_with_files(),
        };
        let (problems, summary) = match checked {
            Ok(config) => {
                let summary = Summary::of(&config);
                (config.warnings, Some(summary))
            }
            Err(problems) => (problems, None),
        };
        Ok(Self {
            file,
            problems,
            summary,
        })
    }

    fn is_good(&self, strict: bool) -> bool {
        self.summary.is_some() && !(strict && self.problems.warnings() > 0)
    }

    fn print(&self, strict: bool, out: &mut impl Write, err: &mut impl Write) -> io::Result<()> {
        write!(err, "{}", self.file.render(&self.problems))?;
        let (errors, warnings) = (self.problems.errors(), self.problems.warnings());
        let found = match (errors, warnings) {
            (0, warnings) => counted(warnings, "warning"),
            (errors, 0) => counted(errors, "error"),
            (errors, warnings) => {
                format!(
                    "{} and {}",
                    counted(errors, "error"),
                    counted(warnings, "warning")
                )
            }
        };
        match &self.summary {
            Some(summary) if self.is_good(strict) => {
                let but = if warnings > 0 {
                    format!(", with {found}")
                } else {
                    String::new()
                };
                writeln!(out, "{} is fine{but}\n{summary}", self.file.name())
            }
            Some(_) => writeln!(
                err,
                "{} has {found}, and --strict allows none",
                self.file.name()
            ),
            None => writeln!(err, "{} has {found}", self.file.name()),
        }
    }

    fn print_json(&self, strict: bool, out: &mut impl Write) -> io::Result<()> {
        let report = json!({
            "file": self.file.name(),
            "ok": self.is_good(strict),
            "errors": self.problems.errors(),
            "warnings": self.problems.warnings(),
            "problems": self.problems.to_json(self.file.name()),
            "summary": self.summary,
        });
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)
    }
}

fn counted(count: usize, one: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {one}{s}")
}
