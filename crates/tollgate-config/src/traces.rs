//! Where traces go, and how many.

use http::Uri;

use crate::document::Problems;
use crate::document::reading::{Fields, Place, choice, shown, text};

pub(super) const TRACES: &[&str] = &["endpoint", "protocol", "sample", "service_name"];

/// The port that collectors listen on for OTLP over HTTP.
const HTTP_PORT: u16 = 4318;

/// Traces for a collector of OpenTelemetry.
#[derive(Clone, Debug, PartialEq)]
pub struct TracesConfig {
    /// The collector: `http://host:port`.
    pub endpoint: Uri,
    /// How it is spoken to.
    pub protocol: TracesProtocol,
    /// The share of requests that are traced, from 0 to 1.
    pub sample: f64,
    /// What this program is called there.
    pub service_name: String,
}

/// How a collector is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracesProtocol {
    /// OTLP over gRPC.
    Grpc,
    /// OTLP in protobuf over HTTP.
    Http,
}

pub(super) fn traces(place: &Place<'_>, problems: &mut Problems) -> Option<TracesConfig> {
    let fields = Fields::of(place, TRACES, problems)?;
    let example = "endpoint: \"http://127.0.0.1:4317\"";
    let endpoint = fields.required("endpoint", example, problems, endpoint);
    let words = [
        ("grpc", TracesProtocol::Grpc),
        ("http", TracesProtocol::Http),
    ];
    let protocol = fields.optional("protocol", problems, choice(&words));
    let sample = fields.or("sample", 0.01, problems, share);
    let name = "tollgate".to_owned();
    let service_name = fields.or("service_name", name, problems, text(100, "a name"));
    let endpoint = endpoint?;
    let usual = match endpoint.port_u16() {
        Some(HTTP_PORT) => TracesProtocol::Http,
        _ => TracesProtocol::Grpc,
    };
    Some(TracesConfig {
        protocol: protocol.unwrap_or(usual),
        endpoint,
        sample,
        service_name,
    })
}

fn endpoint(place: &Place<'_>, problems: &mut Problems) -> Option<Uri> {
    let expected = "the address of a collector such as http://127.0.0.1:4317";
    let scalar = place.scalar(expected, problems)?;
    let uri = scalar.text.parse::<Uri>().ok();
    let is_right = |uri: &Uri| {
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        uri.scheme_str() == Some("http")
            && uri.port_u16().is_some()
            && !authority.contains('@')
            && matches!(uri.path(), "" | "/")
            && uri.query().is_none()
    };
    let right = uri.filter(is_right);
    if right.is_none() {
        let got = shown(scalar);
        place
            .error(problems, format!("{got} is not {expected}"))
            .help(
                "http://, a host and a port; TLS is not spoken with collectors, so have one beside",
            );
    }
    right
}

/// A number from 0 to 1.
fn share(place: &Place<'_>, problems: &mut Problems) -> Option<f64> {
    let expected = "a share from 0 to 1, such as 0.01 for one request in a hundred";
    let scalar = place.scalar(expected, problems)?;
    let is_plain = scalar.text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let share = scalar.text.parse::<f64>().ok().filter(|_| is_plain);
    let right = share.filter(|share| (0.0..=1.0).contains(share));
    if right.is_none() {
        place.error(
            problems,
            format!("expected {expected}, got {}", shown(scalar)),
        );
    }
    right
}
