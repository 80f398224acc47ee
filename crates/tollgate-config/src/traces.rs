//! The export of traces.

use http::Uri;

use crate::document::reading::{Fields, Input, choice, text};

/// The default port of collectors for OTLP over HTTP.
const HTTP_PORT: u16 = 4318;

/// Traces for an OpenTelemetry collector.
#[derive(Clone, Debug, PartialEq)]
pub struct TracesConfig {
    /// The collector: `http://host:port`.
    pub endpoint: Uri,
    /// The protocol of the collector.
    pub protocol: TracesProtocol,
    /// The share of requests that are traced, from 0 to 1.
    pub sample: f64,
    /// The name of this program in traces.
    pub service_name: String,
}

/// The protocol of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracesProtocol {
    /// OTLP over gRPC.
    Grpc,
    /// OTLP in protobuf over HTTP.
    Http,
}

pub(super) fn traces(fields: &Fields<'_>) -> Option<TracesConfig> {
    let endpoint = fields.required("endpoint", "endpoint: \"http://127.0.0.1:4317\"", endpoint);
    let words = [
        ("grpc", TracesProtocol::Grpc),
        ("http", TracesProtocol::Http),
    ];
    let protocol = fields.read("protocol", choice(&words));
    let (mut sample, mut service_name) = (0.01, "tollgate".to_owned());
    fields.set("sample", &mut sample, share);
    fields.set("service_name", &mut service_name, text(100, "a name"));
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

fn endpoint(input: &Input<'_>) -> Option<Uri> {
    let expected = "the address of a collector such as http://127.0.0.1:4317";
    let uri = input.scalar(expected)?.text.parse::<Uri>().ok();
    let is_collector = |uri: &Uri| {
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        uri.scheme_str() == Some("http")
            && uri.port_u16().is_some()
            && !authority.contains('@')
            && matches!(uri.path(), "" | "/")
            && uri.query().is_none()
    };
    uri.filter(is_collector).or_else(|| {
        let help =
            "http://, a host and a port; TLS is not supported, so run a collector on this machine";
        input.reject_value(expected, help)
    })
}

/// A number from 0 to 1.
fn share(input: &Input<'_>) -> Option<f64> {
    let expected = "a share from 0 to 1, such as 0.01 for one request in a hundred";
    input.parse(expected, |text| {
        let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let share = text.parse().ok().filter(|_| is_plain)?;
        (0.0..=1.0).contains(&share).then_some(share)
    })
}
