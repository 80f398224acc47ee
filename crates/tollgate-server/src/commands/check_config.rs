//! `tollgate check-config`: everything that is wrong with a configuration, at once.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::Path;

use serde_json::json;

use super::Failure;
use crate::cli::CheckConfigArgs;
use crate::config::{self, Summary};
use crate::document::{self, Problems};

/// Runs the command.
pub(crate) fn check_config(args: &CheckConfigArgs) -> Result<(), Failure> {
    let checked = Checked::read(&args.file)?;
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
    name: String,
    text: String,
    problems: Problems,
    /// If it can be used.
    summary: Option<Summary>,
}

impl Checked {
    fn read(file: &Path) -> Result<Self, Failure> {
        let name = match file.as_os_str() == "-" {
            true => "stdin".to_owned(),
            false => file.display().to_string(),
        };
        let bytes = bytes(file).map_err(|error| unreadable(&name, &error))?;
        let text = match document::decode(&bytes) {
            Ok(text) => text.to_owned(),
            Err(problem) => {
                let mut problems = Problems::default();
                problems.add(*problem);
                // What is not text is not shown.
                let text = String::new();
                return Ok(Self {
                    name,
                    text,
                    problems,
                    summary: None,
                });
            }
        };
        let env = |name: &str| std::env::var(name).ok();
        let (problems, summary) = match config::parse(&text, &env) {
            Ok(config) => {
                let summary = Summary::of(&config);
                (config.warnings, Some(summary))
            }
            Err(problems) => (problems, None),
        };
        Ok(Self {
            name,
            text,
            problems,
            summary,
        })
    }

    fn is_good(&self, strict: bool) -> bool {
        self.summary.is_some() && !(strict && self.problems.warnings() > 0)
    }

    fn print(&self, strict: bool, out: &mut impl Write, err: &mut impl Write) -> io::Result<()> {
        write!(err, "{}", self.problems.render(&self.name, &self.text))?;
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
                writeln!(out, "{} is fine{but}\n{summary}", self.name)
            }
            Some(_) => writeln!(err, "{} has {found}, and --strict allows none", self.name),
            None => writeln!(err, "{} has {found}", self.name),
        }
    }

    fn print_json(&self, strict: bool, out: &mut impl Write) -> io::Result<()> {
        let report = json!({
            "file": self.name,
            "ok": self.is_good(strict),
            "errors": self.problems.errors(),
            "warnings": self.problems.warnings(),
            "problems": self.problems.to_json(&self.name),
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

/// One byte more than may be, so that too long a file is noticed and not read to its end.
fn bytes(file: &Path) -> io::Result<Vec<u8>> {
    let most = document::LONGEST as u64 + 4;
    let mut bytes = Vec::new();
    match file.as_os_str() == "-" {
        true => io::stdin().lock().take(most).read_to_end(&mut bytes)?,
        false => File::open(file)?.take(most).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    let help = match error.kind() {
        io::ErrorKind::NotFound => "; `tollgate init` writes one to begin with",
        _ => "",
    };
    Failure::Unavailable(format!("cannot read {name}: {error}{help}"))
}
