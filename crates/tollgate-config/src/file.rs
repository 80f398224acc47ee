//! The configuration as a file: read, checked with the certificates and keys that it names, and its problems shown with its lines.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use tollgate_http::tls;
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

use super::config::Config;
use super::sections::parse;
use crate::document::{self, Location, MAX_BYTES, Node, Problems, Value};

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
        check_certificates(&config, &self.document()?, &mut problems);
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

/// Opens all of them. `root` is the document that the configuration was read from.
fn check_certificates(config: &Config, root: &Node, problems: &mut Problems) {
    let Some(gateway) = &config.gateway else {
        return;
    };
    let section = root.get("gateway");
    if let Some(files) = &gateway.front.tls {
        let node = section.and_then(|section| section.get("tls"));
        check_pair(files, &|name| location(node, "gateway.tls", name), problems);
    }
    let upstreams = section.and_then(|section| section.get("upstreams"));
    let Some(Value::List(nodes)) = upstreams.map(|node| &node.value) else {
        return;
    };
    // A configuration without errors has as many upstreams as its document.
    for (nth, (node, upstream)) in nodes.iter().zip(&gateway.upstreams).enumerate() {
        let Some(file) = &upstream.ca else { continue };
        let location = location(Some(node), &format!("gateway.upstreams[{nth}]"), "ca");
        match tls::authorities(file) {
            Ok(certificates) => warn_of_dates(&certificates, file, &location, problems),
            Err(error) => report(problems, location, error.to_string()),
        }
    }
}

fn check_pair(files: &tls::TlsFiles, location: &dyn Fn(&str) -> Location, problems: &mut Problems) {
    let chain = tls::certificates(&files.cert);
    let key = tls::private_key(&files.key, &tls::provider());
    match &chain {
        Ok(chain) => warn_of_dates(chain, &files.cert, &location("cert"), problems),
        Err(error) => report(problems, location("cert"), error.to_string()),
    }
    let key_error = match (chain, key) {
        (_, Err(error)) => error,
        (Err(_), Ok(_)) => return,
        (Ok(chain), Ok(key)) => match tls::certified_key(files, chain, key) {
            Ok(_) => return,
            Err(error) => error,
        },
    };
    report(problems, location("key"), key_error.to_string());
}

fn location(map: Option<&Node>, path: &str, field: &str) -> Location {
    let node = map.and_then(|map| map.get(field));
    Location {
        span: node.and_then(|node| node.span),
        path: format!("{path}.{field}"),
    }
}

fn report(problems: &mut Problems, location: Location, message: String) {
    problems
        .error(location, message)
        .help("--no-files skips files that are not on this machine");
}

fn warn_of_dates(
    certificates: &[CertificateDer<'_>],
    file: &Path,
    location: &Location,
    problems: &mut Problems,
) {
    for (nth, certificate) in certificates.iter().enumerate() {
        // A certificate that cannot be parsed is rejected where it is used.
        let Some(wrong) = wrong_at(certificate, SystemTime::now()) else {
            continue;
        };
        let which = match certificates.len() {
            1 => "the certificate".to_owned(),
            _ => format!("certificate {}", nth + 1),
        };
        let help = "renew it, or check the clock of this machine";
        problems.warning(
            location.clone(),
            format!("{which} in {file:?} {wrong}"),
            help,
        );
    }
}

/// What is wrong with the dates of a DER certificate at a time; `None` if nothing is, or if it is not a certificate.
fn wrong_at(certificate: &[u8], now: SystemTime) -> Option<String> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    let validity = certificate.validity();
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = ASN1Time::from_timestamp(i64::try_from(now).ok()?).ok()?;
    let day = |time: ASN1Time| time.to_datetime().date();
    if validity.not_after < now {
        return Some(format!("expired on {}", day(validity.not_after)));
    }
    let is_early = validity.not_before > now;
    is_early.then(|| format!("is not valid before {}", day(validity.not_before)))
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

    use std::time::Duration;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn certificate(from: (i32, u8, u8), until: (i32, u8, u8)) -> Vec<u8> {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from.0, from.1, from.2);
        params.not_after = date_time_ymd(until.0, until.1, until.2);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn dates_before_and_after_2050_are_read() {
        // 2027-01-15.
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        for (from, until, expected) in [
            ((1999, 1, 1), (2027, 1, 16), None),
            ((1999, 1, 1), (2027, 1, 14), Some("expired on 2027-01-14")),
            ((1951, 1, 1), (1960, 2, 3), Some("expired on 1960-02-03")),
            (
                (2027, 1, 16),
                (2060, 1, 1),
                Some("is not valid before 2027-01-16"),
            ),
            ((2026, 1, 1), (2060, 1, 1), None),
        ] {
            let wrong = wrong_at(&certificate(from, until), now);
            assert_eq!(wrong.as_deref(), expected);
        }
    }

    #[test]
    fn damaged_certificates_have_no_dates() {
        let whole = certificate((2020, 1, 1), (2030, 1, 1));
        for end in 0..whole.len() {
            assert_eq!(wrong_at(&whole[..end], UNIX_EPOCH), None, "{end}");
        }
        for junk in [
            &b"\x30\x84\xff\xff\xff\xff"[..],
            b"\x30\x80",
            b"\x30\x89123456789",
        ] {
            assert_eq!(wrong_at(junk, UNIX_EPOCH), None);
        }
    }
}
