//! Certificates and keys that a configuration names: opened, where they are to be used, for whoever checks it before a start.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use tollgate_http::tls;

use super::config::Config;

use crate::document::{Node, Problems, Spot, Value};

mod validity;

use validity::wrong_at;

/// Opens all of them; `root` is the document that the configuration was read from.
pub(super) fn check(config: &Config, root: &Node, problems: &mut Problems) {
    let Some(gateway) = &config.gateway else {
        return;
    };
    let section = root.get("gateway");
    if let (Some(files), Some(node)) = (&gateway.front.tls, section.and_then(|s| s.get("tls"))) {
        let spot = |name| spot(node.get(name), format!("gateway.tls.{name}"));
        check_pair(files, &spot("cert"), &spot("key"), problems);
    }
    let Some(Value::List(upstreams)) = section
        .and_then(|section| section.get("upstreams"))
        .map(|node| &node.value)
    else {
        return;
    };
    for (nth, upstream) in upstreams.iter().enumerate() {
        let Some((file, node)) = named(upstream, "ca") else {
            continue;
        };
        let spot = spot(Some(node), format!("gateway.upstreams[{nth}].ca"));
        match tls::authorities(&file) {
            Ok(certificates) => warn_of_dates(&certificates, &file, &spot, problems),
            Err(error) => complain(problems, spot, error.to_string()),
        }
    }
}

/// The certificate of the gateway and its key.
fn check_pair(files: &tls::TlsFiles, cert: &Spot, key: &Spot, problems: &mut Problems) {
    let chain = tls::certificates(&files.cert);
    let private = tls::private_key(&files.key, &tls::provider());
    match &chain {
        Ok(chain) => warn_of_dates(chain, &files.cert, cert, problems),
        Err(error) => complain(problems, cert.clone(), error.to_string()),
    }
    match (chain, private) {
        (Ok(chain), Ok(private)) => {
            if let Err(error) = tls::together(files, chain, private) {
                complain(problems, key.clone(), error.to_string());
            }
        }
        (_, Err(error)) => complain(problems, key.clone(), error.to_string()),
        (Err(_), Ok(_)) => {}
    }
}

fn complain(problems: &mut Problems, spot: Spot, message: String) {
    problems
        .error(spot, message)
        .help("--no-files leaves files alone that are not on this machine");
}

fn warn_of_dates(
    certificates: &[CertificateDer<'_>],
    file: &Path,
    spot: &Spot,
    problems: &mut Problems,
) {
    let now = SystemTime::now();
    for (nth, certificate) in certificates.iter().enumerate() {
        // What cannot be read is for whoever uses it to refuse.
        let Some(said) = wrong_at(certificate, now) else {
            continue;
        };
        let which = match certificates.len() {
            1 => "the certificate".to_owned(),
            _ => format!("certificate {}", nth + 1),
        };
        problems.warning(spot.clone(), format!("{which} in {file:?} {said}"));
    }
}

/// A file that a field names.
fn named<'n>(map: &'n Node, field: &str) -> Option<(PathBuf, &'n Node)> {
    let node = map.get(field)?;
    match &node.value {
        Value::Scalar(scalar) => Some((PathBuf::from(&scalar.text), node)),
        _ => None,
    }
}

fn spot(node: Option<&Node>, path: String) -> Spot {
    Spot {
        at: node.and_then(|node| node.at),
        path,
    }
}
