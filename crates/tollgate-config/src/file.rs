//! The configuration as a file: read, checked, and its problems shown with its lines.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::certificates;
use super::config::Config;
use super::sections::parse;
use crate::document::{self, MAX_BYTES, Node, Problems};

/// The content of a configuration file.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigFile {
    name: String,
    bytes: Vec<u8>,
}

impl ConfigFile {
    /// Reads a file; `-` is stdin.
    ///
    /// # Errors
    /// If it cannot be read: a message for people.
    pub fn read(file: &Path) -> Result<Self, String> {
        let is_stdin = file.as_os_str() == "-";
        let name = match is_stdin {
            true => "stdin".to_owned(),
            false => file.display().to_string(),
        };
        // More than allowed, so that too long a file is noticed but not read to its end.
        let limit = MAX_BYTES as u64 + 4;
        let mut bytes = Vec::new();
        let read = match is_stdin {
            true => io::stdin().lock().take(limit).read_to_end(&mut bytes),
            false => File::open(file).and_then(|file| file.take(limit).read_to_end(&mut bytes)),
        };
        match read {
            Ok(_) => Ok(Self { name, bytes }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!(
                "cannot read {name}: {error}; `tollgate init` writes one to begin with"
            )),
            Err(error) => Err(format!("cannot read {name}: {error}")),
        }
    }

    /// The name of the file in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The configuration, with all certificates and keys checked as well. They are not kept.
    ///
    /// # Errors
    /// All problems in this file and those.
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

    /// The configuration, without opening any other file.
    ///
    /// # Errors
    /// All problems in this file.
    pub fn check_alone(&self) -> Result<Config, Problems> {
        parse(document::decode(&self.bytes)?, &variable)
    }

    /// The file as a document, which need not be a configuration.
    ///
    /// # Errors
    /// All problems of its form.
    pub fn document(&self) -> Result<Node, Problems> {
        let document = document::parse(document::decode(&self.bytes)?, &variable);
        let is_wrong = document.problems.has_errors();
        document.root.filter(|_| !is_wrong).ok_or(document.problems)
    }

    /// The configuration, with the variables of this process and the body of denials, if that is in a file.
    ///
    /// # Errors
    /// All problems as text, with their lines.
    pub fn parse(&self) -> Result<Config, String> {
        let config = self.check_alone().and_then(|mut config| {
            let mut problems = Problems::default();
            config.policy.read_denied_file(&mut problems);
            match problems.has_errors() {
                true => Err(problems),
                false => Ok(config),
            }
        });
        config.map_err(|problems| self.render(&problems))
    }

    /// Problems with their lines, unless the file is not text.
    #[must_use]
    pub fn render(&self, problems: &Problems) -> String {
        let text = document::decode(&self.bytes).unwrap_or_default();
        problems.render(&self.name, text)
    }
}

/// Shows only the size, because the file may hold secrets.
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
    fn debug_does_not_show_the_content() {
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
