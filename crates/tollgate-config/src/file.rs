//! The configuration as a file: read, and its problems shown with its lines.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::certificates;
use super::config::{Config, parse};
use crate::document::{self, Node, Problems};

/// A configuration as it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigFile {
    name: String,
    bytes: Vec<u8>,
}

impl ConfigFile {
    /// Reads a file; `-` is stdin.
    ///
    /// # Errors
    /// If it cannot be read: what to tell people.
    pub fn read(file: &Path) -> Result<Self, String> {
        let is_stdin = file.as_os_str() == "-";
        let name = match is_stdin {
            true => "stdin".to_owned(),
            false => file.display().to_string(),
        };
        // One byte more than may be, so that too long a file is noticed and not read to its end.
        let most = document::LONGEST as u64 + 4;
        let mut bytes = Vec::new();
        let read = match is_stdin {
            true => io::stdin().lock().take(most).read_to_end(&mut bytes),
            false => File::open(file).and_then(|file| file.take(most).read_to_end(&mut bytes)),
        };
        match read {
            Ok(_) => Ok(Self { name, bytes }),
            Err(error) => {
                let help = match error.kind() {
                    io::ErrorKind::NotFound => "; `tollgate init` writes one to begin with",
                    _ => "",
                };
                Err(format!("cannot read {name}: {error}{help}"))
            }
        }
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads what it says, with the variables of this process and the text files that it names.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn check(&self) -> Result<Config, Problems> {
        let mut config = self.check_alone()?;
        let mut problems = Problems::default();
        config.policy.read_denied_file(&mut problems);
        match problems.has_errors() {
            true => Err(problems),
            false => Ok(config),
        }
    }

    /// The same with a look at every certificate and key that it names, as a start would have. Nothing of them is kept.
    ///
    /// # Errors
    /// Everything that is wrong, in this file and in those.
    pub fn check_with_files(&self) -> Result<Config, Problems> {
        let mut config = self.check_alone()?;
        // One list for all, so that they are shown in the order of the text.
        let mut problems = config.warnings.clone();
        config.policy.read_denied_file(&mut problems);
        certificates::check(&config, &self.document()?, &mut problems);
        match problems.has_errors() {
            true => Err(problems),
            false => {
                config.warnings = problems;
                Ok(config)
            }
        }
    }

    /// The same without a look at any other file.
    ///
    /// # Errors
    /// Everything that is wrong in this one.
    pub fn check_alone(&self) -> Result<Config, Problems> {
        parse(self.text()?, &variable)
    }

    /// The same as a document, whatever it says.
    ///
    /// # Errors
    /// Everything that is wrong with its form.
    pub fn document(&self) -> Result<Node, Problems> {
        let document = document::parse(self.text()?, &variable);
        let is_wrong = document.problems.has_errors();
        document.root.filter(|_| !is_wrong).ok_or(document.problems)
    }

    fn text(&self) -> Result<&str, Problems> {
        document::decode(&self.bytes).map_err(|problem| {
            let mut problems = Problems::default();
            problems.add(*problem);
            problems
        })
    }

    /// The same, with everything that is wrong as text.
    ///
    /// # Errors
    /// Everything that is wrong, with the lines in question.
    pub fn parse(&self) -> Result<Config, String> {
        self.check().map_err(|problems| self.render(&problems))
    }

    /// Shows problems with the lines in question. What is not text is not shown.
    #[must_use]
    pub fn render(&self, problems: &Problems) -> String {
        let text = document::decode(&self.bytes).unwrap_or_default();
        problems.render(&self.name, text)
    }
}

/// Secrets may stand in it.
impl fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigFile")
            .field("name", &self.name)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_file_is_not_shown() {
        let file = ConfigFile {
            name: "a.yaml".to_owned(),
            bytes: b"secret".to_vec(),
        };
        assert_eq!(
            format!("{file:?}"),
            "ConfigFile { name: \"a.yaml\", bytes: 6 }"
        );
    }
}
